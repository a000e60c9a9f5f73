"""Making elementwise linalg ops: the passes that need one of their own write only what becomes of an element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlirstack.bindings import dialect, ir


def elementwise(sources: Sequence[Any], element: Any, compute: Callable[..., Any], *, backwards: bool = False) -> Any:
    """A ``linalg.generic`` at the insertion point: tensors of one rank → one of the shape that all of them are stretched to.

    Where one of ``sources`` has size 1 and another has not, it is stretched.  ``compute`` is given an element of each, and
    makes the element of the result, of the type ``element``.  The loops run over the dimensions in order, or ``backwards``.
    """
    linalg = dialect("linalg")
    shapes = [ir.RankedTensorType(source.type).shape for source in sources]
    shape = stretched_shape(sources)
    empty = dialect("tensor").EmptyOp.build_generic([ir.RankedTensorType.get(shape, element)], _sizes(sources, shape))
    order = [*reversed(range(len(shape)))] if backwards else [*range(len(shape))]
    places = [
        ir.AffineMap.get(len(shape), 0, [_place(axis, of, full) for axis, of, full in zip(order, sizes, shape, strict=True)])
        for sizes in (*shapes, shape)
    ]
    op = linalg.GenericOp(
        [empty.result.type],
        list(sources),
        [empty.result],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(place) for place in places]),
        ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * len(shape)),
    )
    types = [*(ir.RankedTensorType(source.type).element_type for source in sources), element]
    block = op.regions[0].blocks.append(*types, arg_locs=[op.location] * len(types))
    with ir.InsertionPoint(block), op.location:
        linalg.YieldOp([compute(*list(block.arguments)[:-1])])
    return op.results[0]


def dynamic_sizes(tensor: Any) -> list[Any]:
    """Values of the dynamic sizes of a tensor, made at the insertion point."""
    kind = ir.RankedTensorType(tensor.type)
    return [_size(tensor, axis) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]


def stretched_shape(sources: Sequence[Any]) -> list[int]:
    """The shape that tensors of one rank have together, where sizes of 1 are stretched."""
    shapes = [ir.RankedTensorType(source.type).shape for source in sources]
    return [next((size for size in sizes if size != 1), 1) for sizes in zip(*shapes, strict=True)]


def _sizes(sources: Sequence[Any], shape: Sequence[int]) -> list[Any]:
    """Values of the dynamic sizes of ``shape``, each of a source that has it."""
    return [
        _size(next(source for source in sources if ir.RankedTensorType(source.type).is_dynamic_dim(axis)), axis)
        for axis, size in enumerate(shape)
        if size == ir.ShapedType.get_dynamic_size()
    ]


def _size(tensor: Any, axis: int) -> Any:
    index = ir.IndexType.get()
    place = {"value": ir.IntegerAttr.get(index, axis)}
    number = ir.Operation.create("arith.constant", results=[index], attributes=place).result
    return ir.Operation.create("tensor.dim", results=[index], operands=[tensor, number]).result


def _place(axis: int, size: int, full: int) -> Any:
    """Where dimension ``axis`` of the loops is read, of a tensor that has ``size`` there, and the result ``full``."""
    return ir.AffineConstantExpr.get(0) if size == 1 != full else ir.AffineDimExpr.get(axis)
