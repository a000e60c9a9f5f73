"""Shifts by any number of bits.

Eager leaves nothing of an integer that is shifted to the left by as many bits as it has, or by less than 0, and its sign
where it is shifted to the right.  In MLIR such a shift is poison, which a processor's vector code may have right, and its
scalar code has not.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend

aten = torch.ops.aten

_LEFT, _RIGHT = aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor
_OTHER_NAMES = {
    aten.__lshift__.Tensor: _LEFT,
    aten.__rshift__.Tensor: _RIGHT,
}
_BY_NUMBER = {
    aten.bitwise_left_shift.Tensor_Scalar: _LEFT,
    aten.bitwise_right_shift.Tensor_Scalar: _RIGHT,
    aten.__lshift__.Scalar: _LEFT,
    aten.__rshift__.Scalar: _RIGHT,
}


def add_shift_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``."""
    table.update(_OTHER_NAMES)
    for op in (_LEFT, _RIGHT):
        extend(table, op, functools.partial(_shifted, op))
    for by_number, op in _BY_NUMBER.items():
        table[by_number] = functools.partial(_shifted_by_number, op)


# Set while a rule writes a shift by fewer bits than the operand has.
_is_in_range: ContextVar[bool] = ContextVar("_is_in_range", default=False)


def _shifted(op: Any, x: Tensor, count: Tensor) -> Any:
    dtype = torch.result_type(x, count)
    if _is_in_range.get() or dtype.is_floating_point or dtype == torch.bool:
        return NotImplemented
    x, count = x.to(dtype), count.to(dtype)
    bits = torch.iinfo(dtype).bits
    is_in_range = torch.logical_and(count >= 0, count < bits)
    if op is _RIGHT:
        return _written(op, x, torch.where(is_in_range, count, bits - 1))
    return torch.where(is_in_range, _written(op, x, torch.where(is_in_range, count, 0)), 0)


def _shifted_by_number(op: Any, x: Tensor, number: int) -> Any:
    dtype = torch.result_type(x, number)
    if dtype.is_floating_point or isinstance(number, float):
        return NotImplemented
    bits = torch.iinfo(dtype).bits
    is_in_range = 0 <= number < bits
    if not is_in_range and (op is _LEFT or not dtype.is_signed):
        return torch.zeros_like(x, dtype=dtype)
    count = torch.full((), number if is_in_range else bits - 1, dtype=dtype, device=x.device)
    return _written(op, x, count)


def _written(op: Any, x: Tensor, count: Tensor) -> Tensor:
    token = _is_in_range.set(True)
    try:
        result: Tensor = op(x, count)
        return result
    finally:
        _is_in_range.reset(token)
