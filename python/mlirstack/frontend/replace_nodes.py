"""Replaces single calls of an exported graph by the calls of a rule: a decomposition after the graph has been decomposed.

``run_decompositions`` works on whole programs before a route is known; what only one route needs taken apart is taken apart
here, node by node, on a copy of the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from mlirstack.frontend.decompositions.table import decomposition_table
from mlirstack.frontend.devices import with_constants_in_place
from mlirstack.frontend.graph import fake_mode

Rule = Callable[..., Any]
"""Called with the numbers of the results that are read, then the operands; NotImplemented where it does not apply."""


def replace_nodes(module: fx.GraphModule, rules: Mapping[Any, Rule]) -> dict[fx.Node, fx.Node]:
    """Replace calls of static shapes that have a rule, in place; returns new node → the node that it stands for."""
    origins: dict[fx.Node, fx.Node] = {}
    for node in list(module.graph.nodes):
        rule = rules.get(node.target) if node.op == "call_function" else None
        traced = _traced(node, rule) if rule is not None else None
        if traced is not None:
            origins |= inline(module.graph, node, traced, node.all_input_nodes)
    if origins:
        module.graph.lint()
        module.recompile()
    return origins


def applies(node: fx.Node, rules: Mapping[Any, Rule]) -> bool:
    """Whether :func:`replace_nodes` would replace ``node``."""
    rule = rules.get(node.target)
    return rule is not None and _called(node, rule) is not None


def _traced(node: fx.Node, rule: Rule) -> fx.GraphModule | None:
    """The calls of ``rule`` for the operands of ``node``, one placeholder for each node among them, or None."""
    call = _called(node, rule)
    if call is None:
        return None
    values = [operand.meta["val"] for operand in node.all_input_nodes]
    with torch.no_grad(), _mode(node):
        return make_fx(call, decomposition_table=decomposition_table())(*values)


def _called(node: fx.Node, rule: Rule) -> Callable[..., Any] | None:
    """``rule`` as a function of the nodes that ``node`` reads; None where it does not apply, told without tracing it."""
    values = [operand.meta["val"] for operand in node.all_input_nodes]
    tensors = [v for v in pytree.tree_leaves((values, node.meta["val"])) if isinstance(v, torch.Tensor)]
    if any(not isinstance(size, int) for tensor in tensors for size in tensor.shape):
        return None
    used = _used(node)

    def call(*operands: Any) -> Any:
        bound = dict(zip(node.all_input_nodes, operands, strict=True))
        args, kwargs = fx.map_arg((node.args, node.kwargs), bound.__getitem__)
        return with_constants_in_place(rule)(used, *args, **kwargs)

    with torch.no_grad(), _mode(node):
        return None if call(*values) is NotImplemented else call


def _mode(node: fx.Node) -> FakeTensorMode:
    mode = fake_mode((*node.all_input_nodes, node))
    assert mode is not None, f"'{node.target}' neither reads nor makes a tensor"
    return mode


def _used(node: fx.Node) -> frozenset[int]:
    """Numbers of the results of ``node`` that are read; 0 where it has only one."""
    if not isinstance(node.meta["val"], (tuple, list)):
        return frozenset((0,))
    return frozenset(int(user.args[1]) for user in node.users if user.target is operator.getitem and user.users)  # type: ignore[arg-type]


def inline(
    graph: fx.Graph, node: fx.Node, traced: fx.GraphModule, operands: Iterable[fx.Node]
) -> dict[fx.Node, fx.Node]:  # fmt: skip
    """Put the calls of ``traced``, whose placeholders are ``operands``, in the place of ``node``; new node → ``node``."""
    twins: dict[fx.Node, Any] = {}
    origins: dict[fx.Node, fx.Node] = {}
    operands = iter(operands)
    results: Any = None
    for inner in traced.graph.nodes:
        if inner.op == "placeholder":
            twins[inner] = next(operands)
        elif inner.op == "output":
            results = fx.map_arg(inner.args[0], twins.__getitem__)
        else:
            assert inner.op == "call_function", f"a rule for '{node.target}' holds a constant tensor"
            with graph.inserting_before(node):
                twins[inner] = graph.node_copy(inner, twins.__getitem__)
            twins[inner].meta = {"val": inner.meta["val"], "stack_trace": node.meta.get("stack_trace")}
            origins[twins[inner]] = node
    if isinstance(results, (tuple, list)):
        for user in list(node.users):
            user.replace_all_uses_with(results[int(user.args[1])])  # type: ignore[arg-type]
            graph.erase_node(user)
    else:
        node.replace_all_uses_with(results)
    graph.erase_node(node)
    return origins
