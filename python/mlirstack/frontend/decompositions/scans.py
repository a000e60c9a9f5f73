"""Decompositions of scans that would leave the range of numbers on the way.

Torch-mlir takes the logarithm of running sums of exponentials, which are infinite from 89 on in float32, and 0 below -104
(torch-mlir 20261001).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.half import accumulation

aten = torch.ops.aten


def add_scan_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for complex numbers and for dynamic sizes."""
    extend(table, aten.logcumsumexp.default, _logcumsumexp)


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
