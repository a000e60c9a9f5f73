"""Reshapes of dynamic shapes, in terms that torch-mlir cannot misread.

Its conversion of ``aten.view`` pairs dimensions from the left and takes a dynamic one for the same as a dynamic one: merging
``[batch, length, 16]`` into ``[batch * length, 16]`` becomes ``[batch, 16]``, without an error.  The symbolic sizes of the
graph say which dimensions are merged and which are split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import fx

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


@dataclass(frozen=True)
class Group:
    """Neighbouring dimensions of the operand that become neighbouring dimensions of the result."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def rewrite_dynamic_views(graph: fx.Graph) -> None:
    """Write views that merge or split dynamic dimensions as ``flatten`` and ``unflatten``, in place."""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _VIEWS or not isinstance(node.args[0], fx.Node):
            continue
        before, after = _sizes(node.args[0].meta["val"]), _sizes(node.meta["val"])
        if 0 in before:
            continue  # nothing to misplace
        groups = matched_groups(before, after)
        if any(is_ambiguous(group, before, after) for group in groups):
            _replace(graph, node, groups)


def _sizes(tensor: torch.Tensor) -> list[Any]:
    """Sizes as integers or sympy expressions."""
    return [size.node.expr if isinstance(size, torch.SymInt) else int(size) for size in tensor.shape]


def matched_groups(before: Sequence[Any], after: Sequence[Any]) -> list[Group]:
    """The smallest groups of equal product, in order, of sizes that are numbers or sympy's; in the last one products may
    differ, where the sizes do not say that they are equal."""
    groups: list[Group] = []
    i = j = 0
    while i < len(before) or j < len(after):
        start = i, j
        i, j = min(i + 1, len(before)), min(j + 1, len(after))
        while not _equal(before[start[0] : i], after[start[1] : j]):
            if i == len(before) and j == len(after):
                break
            left, right = len(before) - i, len(after) - j
            if right == 0 or (left and _divides(before[start[0] : i], after[start[1] : j])):
                i += 1
            else:
                j += 1
        groups.append(Group(tuple(range(start[0], i)), tuple(range(start[1], j))))
    return groups


def _equal(before: Sequence[Any], after: Sequence[Any]) -> bool:
    return bool(math.prod(before) - math.prod(after) == 0)


def _divides(part: Sequence[Any], whole: Sequence[Any]) -> bool:
    """Is the product of ``part`` a factor of the product of ``whole``, whatever the symbols are?"""
    if 0 in part:
        return False
    quotient = sympy.together(sympy.sympify(math.prod(whole)) / math.prod(part))
    return bool(sympy.denom(quotient) == 1)


def is_ambiguous(group: Group, before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Does ``group`` merge or split dimensions of sizes that are not all numbers?"""
    sizes = [*(before[i] for i in group.before), *(after[j] for j in group.after)]
    is_dynamic = any(not isinstance(size, int) for size in sizes)
    return is_dynamic and not (len(group.before) == 1 and len(group.after) == 1)


def _replace(graph: fx.Graph, node: fx.Node, groups: Sequence[Group]) -> None:
    sizes = node.args[1]
    value: Any = node.args[0]
    wanted = node.meta["val"]
    assert isinstance(sizes, (list, tuple))
    with graph.inserting_before(node):
        # From the last group to the first, so that the positions of the others stay.
        for group in reversed(groups):
            if len(group.before) > 1:
                value = _call(graph, node, aten.flatten.using_ints, value, group.before[0], group.before[-1])
            if not group.before:  # dimensions of size 1 at the end
                for _ in group.after:
                    value = _call(graph, node, aten.unsqueeze.default, value, -1)
            elif not group.after:
                value = _call(graph, node, aten.squeeze.dim, value, group.before[0])
            elif len(group.after) > 1:
                split = [sizes[axis] for axis in group.after]
                value = _call(graph, node, aten.unflatten.int, value, group.before[0], split)
    value.meta = {**node.meta, "val": wanted}
    node.replace_all_uses_with(value)
    graph.erase_node(node)


def _call(graph: fx.Graph, like: fx.Node, target: Any, operand: fx.Node, *arguments: Any) -> fx.Node:
    call = graph.call_function(target, (operand, *arguments))
    fakes = fx.map_arg((operand, *arguments), lambda node: node.meta["val"])
    # Not ``tensor_meta``: it is the shape of the whole view, and the importer believes it first.
    call.meta = {key: value for key, value in like.meta.items() if key != "tensor_meta"}
    call.meta["val"] = target(*fakes)
    return call
