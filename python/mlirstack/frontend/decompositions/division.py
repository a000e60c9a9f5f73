"""Division of integers that rounds down, and its remainder, in terms of division that rounds to zero.

Torch-mlir's conversion to TOSA divides exactly, but takes the sign from a product that overflows, and remainders of int32 go
through float32 there.  What is written here holds on both routes for all numbers of a dtype.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend

aten = torch.ops.aten


def add_division_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for floating point and for division by the number 0."""
    for op in (aten.floor_divide.default, aten.floor_divide.Scalar):
        extend(table, op, _floor_divide)
    for op in (aten.remainder.Scalar, aten.remainder.Tensor, aten.remainder.Scalar_Tensor):
        extend(table, op, _remainder)
    for op in (aten.div.Tensor_mode, aten.div.Scalar_mode):
        extend(table, op, where_floored(_floor_divide))


def where_floored(rule: Decomposition) -> Decomposition:
    """``rule`` of dividend and divisor, for a division that is told how to round: where that is down."""

    def decomposition(x: Tensor, y: Any, *, rounding_mode: str | None = None) -> Any:
        return rule(x, y) if rounding_mode == "floor" else NotImplemented

    return decomposition


def _are_integers(x: Any, y: Any) -> bool:
    integers = all(
        not v.dtype.is_floating_point and not v.dtype.is_complex and v.dtype != torch.bool
        if isinstance(v, Tensor)
        else isinstance(v, int) and not isinstance(v, bool)
        for v in (x, y)
    )
    return integers and not (isinstance(y, int) and y == 0)


def _floor_divide(x: Any, y: Any) -> Any:
    if not _are_integers(x, y):
        return NotImplemented
    quotient, rest = _quotient_and_rest(x, y)
    return torch.where(_is_one_too_high(rest, y), quotient - 1, quotient)


def _remainder(x: Any, y: Any) -> Any:
    if not _are_integers(x, y):
        return NotImplemented
    _, rest = _quotient_and_rest(x, y)
    return torch.where(_is_one_too_high(rest, y), rest + y, rest)


def _quotient_and_rest(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Of the division that rounds to zero, whose rest has the sign of ``x``."""
    if not isinstance(x, Tensor):
        x = torch.full((), x, dtype=torch.result_type(x, y))
    quotient = torch.div(x, y, rounding_mode="trunc")
    return quotient, x - quotient * y


def _is_one_too_high(rest: Tensor, y: Any) -> Tensor:
    """Where the quotient was rounded up, which it is where the rest and ``y`` have different signs."""
    if isinstance(y, Tensor):
        return torch.logical_and(rest != 0, (rest < 0) != (y < 0))
    return rest < 0 if y > 0 else rest > 0
