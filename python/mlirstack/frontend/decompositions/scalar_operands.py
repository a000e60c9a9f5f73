"""Decompositions for operands without dimensions, whose dtype may be wider than the result's: they are cut to it first.

Eager computes in the dtype of the operands that have dimensions: an int8 is compared with 300 as with 44.  Torch-mlir
computes in the widest dtype, or ends the process where a shift's or bit operation's is not that of its result (torch-mlir
20261001).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.decompositions.unsigned import common_dtype
from mlirstack.frontend.half import HALF
from mlirstack.frontend.literals import rounded

aten = torch.ops.aten

_COMPARISONS = (
    aten.eq.Tensor, aten.ne.Tensor, aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor, aten.maximum.default,
    aten.minimum.default,
)  # fmt: skip
# Sums and products need none of it: their lower bits are the same, and real numbers differ by a rounding.
_ARITHMETIC = (
    aten.clamp.Tensor, aten.div.Tensor_mode, aten.floor_divide.default, aten.remainder.Tensor, aten.fmod.Tensor,
    aten.pow.Tensor_Tensor, aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor, aten.bitwise_and.Tensor,
    aten.bitwise_or.Tensor, aten.bitwise_xor.Tensor,
)  # fmt: skip


def add_scalar_operand_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept where no operand is cut."""
    for op in (*_COMPARISONS, *_ARITHMETIC):
        extend(table, op, functools.partial(_in_common_dtype, op))
    for op in (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar):
        extend(table, op, functools.partial(_beyond_half, op))
    extend(table, aten.leaky_relu.default, _beyond_half_slope)


def _beyond_half(op: Any, x: Any, number: Any, **options: Any) -> Any:
    """Products with a number, and quotients by it, that half precision cannot hold: eager has it in float32."""
    if not isinstance(x, Tensor) or x.dtype not in HALF or isinstance(number, Tensor):
        return NotImplemented
    if rounded(number, x.dtype) == number:
        return NotImplemented
    return op(x.float(), number, **options).to(x.dtype)


def _beyond_half_slope(x: Tensor, slope: float = 0.01) -> Any:
    if x.dtype not in HALF or rounded(slope, x.dtype) == slope:
        return NotImplemented
    return aten.leaky_relu.default(x.float(), slope).to(x.dtype)


def _in_common_dtype(op: Any, *args: Any, **kwargs: Any) -> Any:
    operands = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, (Tensor, int, float))]
    dtypes = {operand.dtype for operand in operands if isinstance(operand, Tensor)}
    if len(dtypes) == 1 or (op is aten.div.Tensor_mode and kwargs.get("rounding_mode") is None):
        return NotImplemented  # a quotient that is not rounded is of real numbers
    common = common_dtype(operands)
    if common in HALF and op in _ARITHMETIC:
        return NotImplemented  # eager computes in float32, and leaves a scalar its digits
    if common.is_complex or all(torch.promote_types(dtype, common) == common for dtype in dtypes):
        return NotImplemented
    given, options = pytree.tree_map(lambda x: x.to(common) if isinstance(x, Tensor) else x, (args, kwargs))
    return op(*given, **options)
