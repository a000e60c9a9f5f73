"""Decompositions of scans: running sums begin at zero, and none leaves the range of numbers on the way.

Torch-mlir begins a running sum with its first term, which eager adds to zero: a negative zero would stay one.  It takes the
logarithm of running sums of exponentials, which are infinite from 89 on in float32, and 0 below -104, has no scans of
tensors without dimensions, and no running products in a dtype that is asked for (torch-mlir 20261001).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend, not_itself
from mlirstack.frontend.half import accumulation

aten = torch.ops.aten


def add_scan_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for complex numbers and for dynamic sizes."""
    extend(table, aten.logcumsumexp.default, _logcumsumexp)
    extend(table, aten.cumsum.default, _cumsum)
    extend(table, aten.cumprod.default, _cumprod)
    for op in (aten.cumsum.default, aten.cumprod.default):
        extend(table, op, _of_one_number)


@not_itself
def _cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    kind = dtype or x.dtype
    if not (x.is_floating_point() and kind.is_floating_point):
        return NotImplemented
    return aten.cumsum.default(x.to(kind) + 0.0, dim)  # terms of which none is a negative zero


def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Products of integers in int64, which holds those of narrower ones modulo their size."""
    kind = dtype or (x.dtype if _is_inexact(x.dtype) else torch.int64)
    carried = kind if _is_inexact(kind) else torch.int64
    if dtype is None and x.dtype == carried:
        return NotImplemented
    return aten.cumprod.default(x.to(kind).to(carried), dim).to(kind)


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _of_one_number(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    if x.dim():
        return NotImplemented
    return x.to(dtype or (x.dtype if _is_inexact(x.dtype) else torch.int64), copy=True)


def _logcumsumexp(x: Tensor, dim: int) -> Any:
    """In as many steps as the size has bits: what each place has so far, and what the place 1, 2, 4, … before it has.

    Method: Hillis and Steele, "Data parallel algorithms", 1986.
    """
    if x.is_complex():
        return NotImplemented
    if not x.dim():
        return x.clone()
    dim, size, shift = dim % x.dim(), x.shape[dim], 1
    if not isinstance(size, int):
        return NotImplemented
    sums = x.to(accumulation(x.dtype))
    while shift < size:
        pads = [0, 0] * (x.dim() - 1 - dim) + [shift, 0]
        sums = _logarithm_of_sum(sums, aten.constant_pad_nd(sums.narrow(dim, 0, size - shift), pads, -math.inf))
        shift *= 2
    return sums.to(x.dtype)


def _logarithm_of_sum(x: Tensor, y: Tensor) -> Tensor:
    """``log(exp(x) + exp(y))``; equal infinities have no distance."""
    distance = torch.where(x == y, 0.0, (x - y).abs())
    return torch.maximum(x, y) + torch.log1p(torch.exp(-distance))
