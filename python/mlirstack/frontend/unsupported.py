"""Finds every operation of a graph that cannot be lowered, by lowering each one alone.

The conversions stop at the first operation they cannot express; a user wants to know all of them at once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

import torch
from torch import fx
from torch.utils import _pytree as pytree

from mlirstack.errors import StageError
from mlirstack.frontend.checks import is_check
from mlirstack.frontend.graph import FxGraph, describe
from mlirstack.frontend.program import ArgumentSpec
from mlirstack.pipeline.runner import Payload, Runner
from mlirstack.pipeline.stage import Pipeline, Stage

Route = tuple[Stage, ...]


def failing_nodes(graph: FxGraph, routes: Sequence[Route]) -> list[tuple[fx.Node, StageError]]:
    """The calls in ``graph`` that fail on all ``routes``, with the error of the last; alike calls are lowered once."""
    known: dict[str, StageError | None] = {}
    failing: list[tuple[fx.Node, StageError]] = []
    for node in graph.module.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem or is_check(node):
            continue
        key = _key(node)
        if key not in known:
            known[key] = failure(functools.partial(_alone, graph, node), routes)
        error = known[key]
        if error is not None:
            failing.append((node, error))
    return failing


def _key(node: fx.Node) -> str:
    """Text that is equal for calls that lower in the same way: target, constants, shapes and dtypes of operands."""
    arguments = pytree.tree_map(lambda a: str(_meta(a)) if isinstance(a, fx.Node) else a, (node.args, node.kwargs))
    return f"{describe(node)} {arguments}"


def _meta(node: fx.Node) -> object:
    value = node.meta.get("val")
    return (value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else value


def failure(operation: Callable[[], Payload], routes: Sequence[Route]) -> StageError | None:
    """The error of the last of ``routes``, None where one can lower what ``operation`` makes."""
    last: StageError | None = None
    for stages in routes:
        try:
            Runner().run(Pipeline("alone", stages), operation())
        except StageError as error:
            last = error
            continue
        return None
    return last


def _alone(graph: FxGraph, node: fx.Node) -> FxGraph:
    """A graph of ``node`` only: what it reads are arguments, what it produces are results."""
    single = fx.Graph(owning_module=graph.module)
    copies: dict[fx.Node, fx.Node] = {}
    arguments: list[ArgumentSpec] = []
    for operand in node.all_input_nodes:
        if operand.op == "get_attr":
            copies[operand] = single.get_attr(str(operand.target))
        else:
            copies[operand] = single.placeholder(operand.name)
            arguments.append(ArgumentSpec(operand.name, "input", None, ""))
        copies[operand].meta = dict(operand.meta)
    call = single.node_copy(node, lambda operand: copies[operand])
    parts = [user for user in node.users if user.target is operator.getitem]
    results = [single.node_copy(part, lambda _: call) for part in parts] or [call]
    single.output(tuple(results))
    return FxGraph(fx.GraphModule(graph.module, single), tuple(arguments))
