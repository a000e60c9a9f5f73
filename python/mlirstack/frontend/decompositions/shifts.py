"""Shifts by any number of bits.

Eager leaves nothing of an integer that is shifted to the left by as many bits as it has, or by less than 0, and its sign
where it is shifted to the right.  In MLIR such a shift is poison, which a processor's vector code may have right, and its
scalar code has not.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend, not_itself

aten = torch.ops.aten

_LEFT, _RIGHT = aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor
_OTHER_NAMES = {aten.__lshift__.Tensor: _LEFT, aten.__rshift__.Tensor: _RIGHT}
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
        table[by_number] = functools.partial(_shifted, op)


@not_itself
def _shifted(op: Any, x: Tensor, count: Tensor | int) -> Any:
    """``x`` shifted by ``count`` bits, in terms of ``op`` by fewer than there are."""
    dtype = torch.result_type(x, count)
    if dtype.is_floating_point or dtype == torch.bool:
        return NotImplemented
    x, bits = x.to(dtype), torch.iinfo(dtype).bits
    if isinstance(count, int):
        is_in_range = 0 <= count < bits
        if not is_in_range and (op is _LEFT or not dtype.is_signed):
            return torch.zeros_like(x)
        return op(x, torch.full((), count if is_in_range else bits - 1, dtype=dtype, device=x.device))
    count = count.to(dtype)
    fits = torch.logical_and(count >= 0, count < bits)
    if op is _RIGHT:
        return op(x, torch.where(fits, count, bits - 1))
    return torch.where(fits, op(x, torch.where(fits, count, 0)), 0)
