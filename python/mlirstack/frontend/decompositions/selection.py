"""Decompositions for what selects numbers by their order, and that torch-mlir does not know: running extrema with their
places, medians, and places in sorted numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition

aten = torch.ops.aten


def add_selection_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; calls with dynamic sizes along the dimension in question stay."""
    table[aten.cummax.default] = functools.partial(_running, torch.ge)
    table[aten.cummin.default] = functools.partial(_running, torch.le)
    table[aten.median.dim] = _median
    table[aten.median.default] = lambda x: _of_all(_median, x)
    table[aten.nanmedian.dim] = _nanmedian
    table[aten.nanmedian.default] = lambda x: _of_all(_nanmedian, x)
    for op in (aten.searchsorted.Tensor, aten.searchsorted.Scalar):
        table[op] = _searchsorted
    for op in (aten.bucketize.Tensor, aten.bucketize.Scalar):
        table[op] = _bucketize


def _running(at_least: Callable[[Tensor, Tensor], Tensor], x: Tensor, dim: int) -> Any:
    """Extrema of all numbers up to each, and the place of the last of them; NaN beats every number.

    In as many steps as the size has bits: what each place has so far, and what the place 1, 2, 4, … before it has.
    """
    if not x.dim():
        return x.clone(), torch.zeros((), dtype=torch.int64)
    dim = dim % x.dim()
    size = x.shape[dim]
    if not isinstance(size, int) or x.is_complex():
        return NotImplemented
    along = [-1 if axis == dim else 1 for axis in range(x.dim())]
    order = torch.arange(size).reshape(along)
    values, places, shift = x, order.expand(x.shape), 1
    while shift < size:
        # The first elements have nobody so far before them, and meet themselves.
        back = torch.clamp(torch.arange(size) - shift, min=0)
        before, place = values.index_select(dim, back), places.index_select(dim, back)
        keep = at_least(values, before)
        if x.is_floating_point():
            keep = torch.logical_or(torch.isnan(values), torch.logical_and(keep, torch.logical_not(torch.isnan(before))))
        keep = torch.logical_or(keep, order < shift)
        values, places = torch.where(keep, values, before), torch.where(keep, places, place)
        shift *= 2
    return (values, places) if size > 1 else (x.clone(), places.clone())


# ---------------------------------------------------------------------------------------------------------------- medians


def _of_all(rule: Callable[..., Any], x: Tensor) -> Any:
    flat = x.reshape(-1)
    if not isinstance(flat.shape[0], int) or not flat.shape[0]:
        return NotImplemented
    found = rule(flat, 0)
    return NotImplemented if found is NotImplemented else found[0]


def _median(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The lower of the two in the middle; NaN, which is the last in order, where there is any."""
    return _in_order(x, dim, keepdim, lambda ordered, middle: _any_nan_last(ordered, middle, dim))


def _nanmedian(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The same of the numbers that are not NaN; NaN where there is no other."""
    return _in_order(x, dim, keepdim, lambda ordered, middle: _middle_of_numbers(ordered, dim))


def _in_order(x: Tensor, dim: int, keepdim: bool, place_of: Callable[[Tensor, int], Tensor | None]) -> Any:
    """Values and places of what ``place_of`` picks (None: the middle) of the numbers sorted along ``dim``."""
    if not x.dim():
        return x.clone(), torch.zeros((), dtype=torch.int64)
    size = x.shape[dim]
    if not isinstance(size, int) or not size or x.is_complex():
        return NotImplemented
    ordered, order = torch.sort(x, dim)
    middle = (size - 1) // 2
    picked = place_of(ordered, middle) if x.is_floating_point() else None
    if picked is None:
        value, place = ordered.narrow(dim, middle, 1), order.narrow(dim, middle, 1)
    else:
        value, place = ordered.gather(dim, picked), order.gather(dim, picked)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _any_nan_last(ordered: Tensor, middle: int, dim: int) -> Tensor:
    """The middle, or the first NaN."""
    size = ordered.shape[dim]
    count = torch.isnan(ordered).to(torch.int64).sum(dim, keepdim=True)
    return torch.where(count > 0, size - count, middle)


def _middle_of_numbers(ordered: Tensor, dim: int) -> Tensor:
    numbers = torch.logical_not(torch.isnan(ordered)).to(torch.int64).sum(dim, keepdim=True)
    return torch.clamp(numbers - 1, min=0) >> 1


# ------------------------------------------------------------------------------------------------ places in sorted numbers


def _searchsorted(
    sorted_sequence: Tensor,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    """Eager's binary search, step by step: it finds the same place where the sequence is not sorted, or holds NaN."""
    common = torch.result_type(sorted_sequence, self)
    sequence, size = sorted_sequence.to(common), sorted_sequence.shape[-1]
    if not isinstance(size, int):
        return NotImplemented
    given = self.to(common) if isinstance(self, Tensor) else torch.full((), self, dtype=common, device=sequence.device)
    right = right or side == "right"
    flat = sequence.dim() == 1
    wanted = given.reshape(-1) if flat else given
    first = torch.zeros_like(wanted, dtype=torch.int64)
    last = torch.full_like(first, size)
    if size:
        ordered = sequence if sorter is None else sequence.gather(-1, sorter)
        for _ in range(size.bit_length()):
            middle = first + ((last - first) >> 1)
            value = ordered.gather(-1, torch.clamp(middle, max=size - 1))
            beyond = torch.logical_not(value > wanted if right else value >= wanted)
            open_ = first < last
            up = torch.logical_and(open_, beyond)
            down = torch.logical_and(open_, torch.logical_not(beyond))
            first, last = torch.where(up, middle + 1, first), torch.where(down, middle, last)
    found = first.reshape(given.shape)
    return found.to(torch.int32) if out_int32 else found


def _bucketize(self: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    return _searchsorted(boundaries, self, out_int32=out_int32, right=right)
