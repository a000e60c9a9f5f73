"""The order in which the dimensions of a tensor lie in memory, where that is not the order of its shape.

A channels-last image has the shape ``[n, c, h, w]`` and lies in memory as ``[n, h, w, c]``.  Compiled code reads and writes
tensors without gaps, outermost dimension first; a program that was exported for such an image takes it as it lies, and
permutes it itself, which most often cancels against a permutation that it needs anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

Order = tuple[int, ...]  # dimensions, outermost first


def order_of(tensor: torch.Tensor) -> Order | None:
    """The order of the dimensions of ``tensor`` in memory; None where that is the order of its shape, or where it has gaps,
    overlaps, or no elements.  Of symbolic sizes the example's are taken."""
    if tensor.layout is not torch.strided:
        return None
    sizes, strides = _numbers(tensor.shape), _numbers(tensor.stride())
    if sizes is None or strides is None or 0 in sizes:
        return None
    order = tuple(sorted(range(len(sizes)), key=lambda axis: -strides[axis]))
    expected = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != expected:
            return None
        expected *= sizes[axis]
    moved = [axis for axis in order if sizes[axis] != 1]
    return None if moved == sorted(moved) else order


def inverse(order: Order) -> Order:
    """The permutation that takes ``tensor.permute(order)`` back."""
    return tuple(order.index(axis) for axis in range(len(order)))


def take_as_stored(graph: fx.Graph, argument: fx.Node, order: Order) -> None:
    """Make ``argument``, a placeholder, a tensor whose shape is in memory order; its users, the output aside, see it as
    before."""
    first = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(first):
        seen = graph.call_function(torch.ops.aten.permute.default, (argument, list(inverse(order))))
    user = next(user for user in argument.users if user is not seen)
    seen.meta = {**argument.meta, "stack_trace": user.meta.get("stack_trace")}
    argument.replace_all_uses_with(seen, delete_user_cb=lambda user: user is not seen and user.op != "output")
    argument.meta = _permuted(argument.meta, order)


def give_as_stored(graph: fx.Graph, result: fx.Node, order: Order) -> fx.Node:
    """A node that is ``result`` with its shape in memory order."""
    with graph.inserting_after(result):
        stored = graph.call_function(torch.ops.aten.permute.default, (result, list(order)))
    stored.meta = _permuted(result.meta, order)
    return stored


def _permuted(meta: dict[str, Any], order: Order) -> dict[str, Any]:
    return {**{key: value for key, value in meta.items() if key != "tensor_meta"}, "val": meta["val"].permute(order)}


def _numbers(sizes: Sequence[int | torch.SymInt]) -> list[int] | None:
    """Sizes or strides as numbers; None where one is symbolic and no example is known."""
    found = [size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes]
    return None if None in found else [int(size) for size in found]
