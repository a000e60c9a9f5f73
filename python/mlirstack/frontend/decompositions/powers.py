"""Whole powers that are written out as multiplications."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_EXPONENT = 64


def whole_power(x: Tensor, exponent: int) -> Tensor:
    """``x`` of any dtype to an ``exponent`` that is not negative, by repeated squaring."""
    result: Tensor | None = None
    square, rest = x, exponent
    while rest:
        if rest & 1:
            result = square if result is None else result * square
        rest >>= 1
        if rest:
            square = square * square
    return torch.ones_like(x) if result is None else result
