"""Rewrites an exported graph so that what is computed from constants of one number, and is one number itself, is that one.

Torch-mlir folds comparisons of constants, and reads the bits of real numbers as whole ones where the other operand is a
whole number, as in its own formula of ``sign``: a wrong answer, or the end of the process (torch-mlir 20261001).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, fx

from mlirstack.frontend.graph import calls, graph_modules, node_tensors
from mlirstack.frontend.literals import rounded

aten = torch.ops.aten

Number = int | float | bool

_LARGEST = 2**20  # elements of what is evaluated
_FILLS = (aten.full, aten.full_like, aten.scalar_tensor)
_BYTES = (torch.int8, torch.uint8)  # their constants are made as int64, and cut


def rewrite_uniform_constants(module: fx.GraphModule) -> None:
    """Replace calls in ``module`` and in the bodies of its control flow, in place; names of nodes stay."""
    known: dict[fx.Node, Number] = {}
    for graph in (child.graph for child in graph_modules(module)):
        for node in graph.nodes:
            number = _number(node, known)
            if number is not None:
                known[node] = number
    for node in calls(module):
        if node in known and getattr(node.target, "overloadpacket", None) not in _FILLS:
            fill_with(node, known[node])


def fill_with(node: fx.Node, number: Number) -> None:
    """Make ``node``, which gives one tensor, a constant that is ``number`` in all places."""
    (found,) = node_tensors(node)
    node.target, node.args = aten.full.default, ([*found.shape], number)
    node.kwargs = {"dtype": found.dtype, "device": found.device}


def uniform_result(node: fx.Node, value_of: Callable[[fx.Node], Tensor]) -> Number | None:
    """The number that ``node`` gives in all places if it reads what ``value_of`` says; None where they differ."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), value_of)
    result: Tensor = node.target(*args, **{**kwargs, **({"device": "cpu"} if "device" in kwargs else {})})  # type: ignore[operator]
    return _uniform(result)


def _uniform(result: Tensor) -> Number | None:
    number: Number = result.flatten()[0].item()
    same = torch.full_like(result, number)
    is_uniform = torch.equal(result.isnan(), same.isnan()) and torch.equal(result.nan_to_num(), same.nan_to_num())
    return number if is_uniform else None


def _number(node: fx.Node, known: dict[fx.Node, Number]) -> Number | None:
    """The number that ``node`` holds in all places, so far as ``known`` tells of what it reads."""
    if node.op == "get_attr":
        held = getattr(node.graph.owning_module, str(node.target), None)
        return _uniform(held) if isinstance(held, Tensor) and held.numel() == 1 and not held.is_complex() else None
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload) or not _is_plain(node):
        return None
    if node.target.overloadpacket in _FILLS:
        number = node.args[-1]
        return number if isinstance(number, (int, float)) else None
    read = node.all_input_nodes
    if node.target.namespace not in ("aten", "prims") or not read:
        return None
    if not all(operand in known and _is_plain(operand) for operand in read):
        return None
    return uniform_result(node, lambda operand: _filled(operand, known[operand]))


def _is_plain(node: fx.Node) -> bool:
    """Is the result one tensor of known sizes, not too large, and the same in every call?"""
    found = node_tensors(node)
    if len(found) != 1 or found[0] is not node.meta["val"] or found[0].is_complex() or found[0].dtype in _BYTES:
        return False
    if isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    return all(isinstance(size, int) for size in found[0].shape) and 0 < found[0].numel() <= _LARGEST


def _filled(node: fx.Node, number: Number) -> Tensor:
    (found,) = node_tensors(node)
    return torch.full(found.shape, rounded(number, found.dtype), dtype=found.dtype)
