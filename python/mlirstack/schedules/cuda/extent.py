"""Sizes that are known at run time only: a kernel gets them as parameters, its launch computes the grid from them.

A graph that emitters take has at most one, the size of the outermost dimension of some of its tensors.  Strides, tiles and
vectors are numbers all the same; what varies is how far a kernel goes.  Shapes then hold the most that the size can be, and
an :class:`Extent` says what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, overload

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions


@dataclass(frozen=True)
class Extent:
    """The size of dimension ``axis`` of ``value``, a tensor or (where kernels are written) a memref, and numbers made of it:
    ``ceil(size * factor / unit) * count``."""

    value: Any
    axis: int
    factor: int = 1
    unit: int = 1
    count: int = 1


Size = int | Extent


def times(size: Size, count: int) -> Size:
    """``size * count``."""
    if not isinstance(size, Extent):
        return size * count
    return replace(size, factor=size.factor * count) if size.unit == 1 else replace(size, count=size.count * count)


@overload
def ceil_div(size: int, unit: int) -> int: ...


@overload
def ceil_div(size: Size, unit: int) -> Size: ...


def ceil_div(size: Size, unit: int) -> Size:
    """How many units hold ``size``."""
    if not isinstance(size, Extent):
        return -(-size // unit)
    if is_multiple(size, unit) and size.unit == 1:
        return replace(size, factor=size.factor // unit)
    assert size.count == 1, "pieces are counted before they are multiplied"
    return replace(size, unit=size.unit * unit)


def is_multiple(size: Size, unit: int) -> bool:
    """Is it known to be a multiple of ``unit``?"""
    if not isinstance(size, Extent):
        return size % unit == 0
    return (size.factor if size.unit == 1 else size.count) % unit == 0


def host(function: Any) -> Any:
    """Insertion point of host code: before the return of ``function``."""
    return ir.InsertionPoint(functions.return_op(function))


def host_size(function: Any, memref: Any, axis: int) -> Any:
    """Size of an axis: an int, or a host value of type index."""
    kind = ir.MemRefType(memref.type)
    if not kind.is_dynamic_dim(axis):
        return kind.get_dim_size(axis)
    with host(function), function.location:
        position = dialect("arith").ConstantOp(ir.IndexType.get(), axis).result
        return dialect("memref").DimOp(memref, position).result


def host_number(function: Any, size: Size) -> Any:
    """``size`` as a host value of type index."""
    arith, index = dialect("arith"), ir.IndexType.get()

    def constant(number: int) -> Any:
        return arith.ConstantOp(index, number).result

    with host(function), function.location:
        if not isinstance(size, Extent):
            return constant(size)
        number = host_size(function, size.value, size.axis)
        if size.factor > 1:
            number = arith.MulIOp(number, constant(size.factor)).result
        if size.unit > 1:
            number = arith.CeilDivSIOp(number, constant(size.unit)).result
        return arith.MulIOp(number, constant(size.count)).result if size.count > 1 else number
