"""The size of a graph that is known at run time only: found where there is one, and emitters can take it.

Takes a :class:`~mlirstack.schedules.cuda.graph.KernelGraph` with sizes that are not known.  They must be one and the same,
as loops and tensors that they share say, and the sizes of outermost dimensions, so that no stride depends on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlirstack.bindings import ir
from mlirstack.passes.sizes import most_of
from mlirstack.schedules.cuda.extent import Extent

if TYPE_CHECKING:
    from mlirstack.schedules.cuda.graph import KernelGraph, Node, Tensor

_UNBOUNDED = 1 << 40  # more elements than any memory has, and 64 bits for every index


def extent_of(graph: KernelGraph) -> tuple[int, Extent] | None:
    """The most that the size can be, and what it is at run time; None where there are several, or one elsewhere."""
    axes: dict[Tensor, int] = {}
    for tensor in graph.tensors():
        if not tensor.is_static:
            axis = _outermost(tensor)
            if axis is None:
                return None
            axes[tensor] = axis
    if not _are_one(graph, axes):
        return None
    most = min((n for tensor, axis in axes.items() if (n := most_of(tensor.value, axis)) is not None), default=_UNBOUNDED)
    # The host has arguments of the kernel function.
    tensor = next((t for t in axes if isinstance(t.value.owner, ir.Block)), next(iter(axes)))
    return (most, Extent(tensor.value, axes[tensor])) if most > 1 else None


def _outermost(tensor: Tensor) -> int | None:
    """The dimension that is not known, if it is the only one and those around it are of size 1."""
    axis = tensor.shape.index(None)
    is_outermost = all(size == 1 for size in tensor.shape[:axis]) and None not in tensor.shape[axis + 1 :]
    return axis if is_outermost else None


def _are_one(graph: KernelGraph, axes: dict[Tensor, int]) -> bool:
    """Are the dimensions ``axes`` of the same size, as nodes show that walk along several of them with one loop?"""
    classes = {tensor: {tensor} for tensor in axes}
    for node in graph.nodes:
        loops = {dims[axes[tensor]] if dims else None for tensor, dims in _accesses(node) if tensor in axes}
        if not loops:
            continue
        loop, *others = loops
        if loop is None or others or any(dims.count(loop) != (tensor in axes) for tensor, dims in _accesses(node)):
            return False
        joined = set().union(*(classes[tensor] for tensor, _ in _accesses(node) if tensor in axes))
        classes.update(dict.fromkeys(joined, joined))
    return len({id(members) for members in classes.values()}) == 1


def _accesses(node: Node) -> list[tuple[Tensor, tuple[int | None, ...]]]:
    """The tensors of a node, each with the loops that index its dimensions."""
    return [(operand.tensor, operand.dims) for operand in (*node.inputs, *node.outputs) if operand.tensor is not None]
