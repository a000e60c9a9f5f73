"""Decompositions for windows over integers: convolutions and maxima, on which torch-mlir's conversions end the process.

A convolution of 8 or 16 bits is computed in int32 and cut back, which is the same modulo the size of the dtype.  Maxima are
taken of real numbers that hold the integers exactly; torch-mlir has none of integers in three dimensions, and takes bytes
for signed (torch-mlir 20261001, convert-torch-to-linalg).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend

aten = torch.ops.aten

_NARROW = (torch.int8, torch.uint8, torch.int16)
_EXACT = {
    torch.int8: torch.float32, torch.uint8: torch.float32, torch.int16: torch.float32, torch.int32: torch.float64,
}  # fmt: skip


def add_integer_window_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for real numbers."""
    extend(table, aten.convolution.default, _convolution)
    for op in (aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default):
        extend(table, op, functools.partial(_maxima, op))


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Any:
    if x.dtype not in _NARROW:
        return NotImplemented
    wide = None if bias is None else bias.to(torch.int32)
    return aten.convolution.default(x.to(torch.int32), weight.to(torch.int32), wide, *options).to(x.dtype)


def _maxima(op: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``op`` on real numbers; of int64, which none of them holds, those in three dimensions are refused before they are
    lowered."""
    if x.dtype not in _EXACT:
        return NotImplemented
    values, places = op(x.to(_EXACT[x.dtype]), *args, **kwargs)
    return values.to(x.dtype), places
