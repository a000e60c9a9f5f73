"""Decompositions for what orders numbers: NaN is the largest of all, as eager has it, and zeros of both signs are equal.

torch-mlir's conversions compare, and no comparison with NaN holds: a NaN stays where it lies in a sort, and the place of a
maximum is missed (torch-mlir 20261001, convert-torch-to-tmtensor and convert-torch-to-linalg).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.decompositions.unsigned import common_dtype

aten = torch.ops.aten

_INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}
_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)


def add_ordering_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table`` for floating-point numbers, places of extremes for integers as well; what stands there already is
    kept for all others."""
    extend(table, aten.sort.default, _sort)
    table[aten.sort.stable] = _stable_sort
    extend(table, aten.topk.default, _topk)
    table[aten.kthvalue.default] = _kthvalue
    for op, extreme in ((aten.max.dim, torch.amax), (aten.min.dim, torch.amin)):
        extend(table, op, functools.partial(_with_place, extreme))
    for op, extreme in ((aten.argmax.default, torch.amax), (aten.argmin.default, torch.amin)):
        extend(table, op, functools.partial(_place_alone, extreme))
    for op, larger in ((aten.fmax.default, torch.maximum), (aten.fmin.default, torch.minimum)):
        extend(table, op, functools.partial(_but_for_nan, larger))


def _but_for_nan(extreme: Callable[..., Tensor], x: Tensor, y: Tensor) -> Tensor:
    """The extreme of two numbers, or the one that is a number; torch-mlir's conversion broadcasts no operand."""
    common = common_dtype((x, y))
    x, y = x.to(common), y.to(common)
    if not common.is_floating_point:
        return extreme(x, y)
    return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, extreme(x, y)))


def _keys(x: Tensor) -> Tensor:
    """Integers in the order of ``x``: the bits of a float are those of an integer, but for the negative ones' order."""
    wide = x if x.dtype in _INTEGERS else x.float()
    bits = torch.where(wide == 0, 0.0, wide).to(wide.dtype).view(_INTEGERS[wide.dtype])
    largest = torch.iinfo(bits.dtype).max
    ordered = torch.where(bits < 0, bits ^ largest, bits)
    return torch.where(torch.isnan(wide), largest, ordered).to(bits.dtype)


def _ordered_here(x: Tensor) -> bool:
    return x.is_floating_point() and x.dim() > 0


def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    if not _ordered_here(x):
        return NotImplemented
    order = aten.sort.default(_keys(x), dim, descending)[1]
    return x.gather(dim, order), order


def _stable_sort(x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """Every sort is stable down there: neighbours change places only where they are in the wrong order."""
    if not _ordered_here(x):
        return aten.sort.default(x, dim, descending)
    order = aten.sort.default(_keys(x), dim, descending)[1]
    return x.gather(dim, order), order


def _topk(x: Tensor, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not _ordered_here(x):
        return NotImplemented
    order = aten.topk.default(_keys(x), k, dim, largest, sorted)[1]
    return x.gather(dim, order), order


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, ...]:
    found = torch.sort(x, dim=dim, stable=True)
    chosen = tuple(part.select(dim, k - 1) for part in found)
    return tuple(part.unsqueeze(dim) for part in chosen) if keepdim else chosen


def _is_placed_here(x: Tensor) -> bool:
    """TOSA's conversion seeks places of int32 among float32, and those of minima among negative numbers, which the least
    integer has not; it has none for int64."""
    return x.dim() > 0 and (x.is_floating_point() or x.dtype in _SIGNED)


def _with_place(extreme: Callable[..., Tensor], x: Tensor, dim: int, keepdim: bool = False) -> Any:
    if not _is_placed_here(x):
        return NotImplemented
    value = extreme(x, dim, keepdim=True)
    place = _first(x, value, dim)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _place_alone(extreme: Callable[..., Tensor], x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    if not _is_placed_here(x) or (dim is None and keepdim):
        return NotImplemented
    flat = x.flatten() if dim is None else x
    axis = 0 if dim is None else dim
    place = _first(flat, extreme(flat, axis, keepdim=True), axis)
    return place if keepdim else place.squeeze(axis)


def _first(x: Tensor, value: Tensor, dim: int) -> Tensor:
    """Where along ``dim`` the first ``value`` of ``x`` stands; an extreme is NaN where any number is, so the first NaN."""
    dim = dim % x.dim()
    places = torch.arange(x.shape[dim], dtype=torch.int32).reshape([-1 if axis == dim else 1 for axis in range(x.dim())])
    is_there = (x == value) | torch.isnan(x) if x.is_floating_point() else x == value
    return torch.where(is_there, places, x.shape[dim]).amin(dim, keepdim=True).to(torch.int64)
