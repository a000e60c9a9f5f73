"""Division of real numbers, and by them: quotients that are rounded to whole ones and their remainders, exactly as eager has
them, and quotients of integers by a real number.

torch-mlir's conversions take both from the rounded quotient: a remainder of a large quotient is off, and one by infinity is
NaN.  ``remainder`` has an exact operation on the linalg route, of which the others are made.  What becomes zero keeps
the sign that it had.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.division import where_floored
from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.decompositions.unsigned import common_dtype
from mlirstack.frontend.half import HALF, accumulation
from mlirstack.frontend.literals import constant

aten = torch.ops.aten


def add_real_division_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for integers and for other ways to round."""
    for op in (aten.div.Tensor, aten.div.Scalar):
        extend(table, op, _quotient_by_number)
    extend(table, aten.trunc.default, _trunc)
    for op in (aten.fmod.Tensor, aten.fmod.Scalar):
        extend(table, op, _fmod)
    extend(table, aten.remainder.Scalar_Tensor, _remainder_of_number)
    for op in (aten.div.Tensor_mode, aten.div.Scalar_mode):
        extend(table, op, where_floored(_floor_divide))
        extend(table, op, _half_truncated)
    for op in (aten.floor_divide.default, aten.floor_divide.Scalar):
        extend(table, op, _floor_divide)


def _quotient_by_number(x: Tensor, y: Any) -> Any:
    """Integers are real numbers first: the conversion to TOSA would cut the number off to a whole one."""
    if isinstance(y, Tensor) or x.is_floating_point() or x.is_complex():
        return NotImplemented
    return x.to(torch.get_default_dtype()) / y


def _operands(x: Any, y: Any) -> tuple[Tensor, Tensor, torch.dtype] | None:
    """Both in the dtype in which eager divides, and the dtype of the result; None where that is not of real numbers."""
    dtype = common_dtype((x, y))
    if not dtype.is_floating_point:
        return None
    wide = accumulation(dtype)
    dividend, divisor = (v if isinstance(v, Tensor) else constant(v, dtype) for v in (x, y))
    return dividend.to(wide), divisor.to(wide), dtype


def _remainder_of_number(x: float, y: Tensor) -> Any:
    """Torch-mlir has no remainder of a number by a tensor."""
    dtype = common_dtype((x, y))
    return torch.remainder(constant(x, dtype, y.device), y.to(dtype)) if dtype.is_floating_point else NotImplemented


def _fmod(x: Tensor, y: Any) -> Any:
    operands = _operands(x, y)
    return NotImplemented if operands is None else _rest(operands[0], operands[1]).to(operands[2])


def _rest(x: Tensor, y: Tensor) -> Tensor:
    """The remainder with the sign of ``x``; of magnitudes both kinds of remainder are the same."""
    rest = torch.remainder(x.abs(), y.abs())
    # Of a negative zero: -0 - 0 is one again.
    return torch.where(x > 0, rest, torch.where(x < 0, -rest, x - rest))


def _trunc(x: Tensor) -> Any:
    """Torch-mlir multiplies the sign, which is 0 of a negative zero."""
    return torch.where(x < 0, torch.ceil(x), torch.floor(x)) if x.is_floating_point() else NotImplemented


def _half_truncated(x: Tensor, y: Any, *, rounding_mode: str | None = None) -> Any:
    """The quotient of half precision is cut off before it is rounded: 0.999 is no 1 yet."""
    operands = _operands(x, y)
    if rounding_mode != "trunc" or operands is None or operands[2] not in HALF:
        return NotImplemented
    # A number keeps the digits and the magnitude that it has in float32.
    divisor = operands[1] if isinstance(y, Tensor) else constant(y, operands[1].dtype)
    return torch.trunc(operands[0] / divisor).to(operands[2])


def _floor_divide(x: Any, y: Any) -> Any:
    """The quotient of what is left of ``x`` without the remainder, one less where the signs differ; by zero as it comes."""
    operands = _operands(x, y)
    if operands is None:
        return NotImplemented
    x, divisor, dtype = operands
    rest = _rest(x, divisor)
    quotient = (x - rest) / divisor
    quotient = torch.where(torch.logical_and(rest != 0, (divisor < 0) != (rest < 0)), quotient - 1, quotient)
    # It is whole but for its own rounding.
    down = torch.floor(quotient)
    down = torch.where(quotient - down > 0.5, down + 1, down)
    plain = x / divisor  # at most one where the quotient is zero, which has its sign
    return torch.where(divisor == 0, plain, torch.where(quotient == 0, torch.trunc(plain * 0.5), down)).to(dtype)
