"""Decompositions for uint8: it is made wider before an operation that torch-mlir would give the bits of a signed number.

Its conversion to linalg drops the sign from the type, so that 200 counts as -56 wherever an operation orders numbers, or
converts them on the way: to the dtype of another operand, to the int64 of a sum, to the float32 of a quotient
(torch-mlir 20261001).  A cast of its own is right, and is folded into the loops that read it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from torch.utils import _pytree as pytree

from mlirstack.frontend.decompositions.extend import Decomposition, extend

aten = torch.ops.aten

# Arithmetic; of integers alone see mlirstack.frontend.decompositions.integers.
_WITH_REAL_NUMBERS = (
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor_mode, aten.floor_divide.default,
    aten.remainder.Tensor, aten.fmod.Tensor, aten.pow.Tensor_Tensor, aten.addcmul.default,
)  # fmt: skip
# All tensors and numbers are operands (or whole numbers that change no dtype), and are taken in one dtype.
_OF_ONE_DTYPE = (
    *_WITH_REAL_NUMBERS, aten.div.Tensor, aten.atan2.default, aten.hypot.default, aten.copysign.Tensor,
    aten.addcdiv.default, aten.maximum.default, aten.minimum.default, aten.clamp.Tensor, aten.eq.Tensor, aten.ne.Tensor,
    aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor, aten.cat.default, aten.bitwise_and.Tensor,
    aten.bitwise_or.Tensor, aten.bitwise_xor.Tensor, aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor,
)  # fmt: skip
_OF_REAL_NUMBERS = (aten.div.Tensor, aten.atan2.default, aten.copysign.Tensor)  # to which they convert integers
# The first operand alone is made wider: all else are options.
_KEEP_DTYPE = (
    aten.abs.default,
    aten.sign.default,
    aten.sgn.default,
    aten.amax.default,
    aten.amin.default,
)
_OF_ONE_TENSOR = (
    *_KEEP_DTYPE, aten.sum.default, aten.sum.dim_IntList, aten.prod.default, aten.prod.dim_int, aten.cumsum.default,
    aten.cumprod.default, aten.max.dim, aten.min.dim, aten.argmax.default, aten.argmin.default, aten.sort.default,
    aten.sort.stable, aten.topk.default, aten.div.Scalar,
)  # fmt: skip


def add_unsigned_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table`` for uint8; what stands there already is kept for all other dtypes."""
    for op in _OF_ONE_DTYPE:
        extend(table, op, functools.partial(_of_one_dtype, op))
    for op in _OF_ONE_TENSOR:
        extend(table, op, functools.partial(_of_one_tensor, op))
    extend(table, aten.where.self, _where)
    extend(table, aten.clamp.default, _clamp)
    extend(table, aten.ldexp.Tensor, _ldexp)


def common_dtype(values: Sequence[Any]) -> torch.dtype:
    """What eager converts the operands ``values`` to, tensors and Python numbers: those without dimensions count less."""
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH
    dtype: torch.dtype = elementwise_dtypes(*values, type_promotion_kind=kind)[1]
    return dtype


def _of_one_dtype(op: Any, *args: Any, **kwargs: Any) -> Any:
    operands = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, (Tensor, int, float))]
    if not any(isinstance(operand, Tensor) and operand.dtype == torch.uint8 for operand in operands):
        return NotImplemented
    common = common_dtype(operands)
    if op in _WITH_REAL_NUMBERS and not common.is_floating_point:
        return NotImplemented
    if op in _OF_REAL_NUMBERS and not common.is_floating_point and not common.is_complex:
        common = torch.get_default_dtype()
    wide = torch.int32 if common == torch.uint8 else common
    # Through the dtype of both: a wider number without dimensions is cut to eight bits.
    given, options = pytree.tree_map(lambda x: x.to(common).to(wide) if isinstance(x, Tensor) else x, (args, kwargs))
    return _back(op(*given, **options), common)


def compared_with(x: Tensor, number: float) -> tuple[Tensor, Tensor]:
    """Bytes and a number as eager compares them: in the dtype of both, whole numbers modulo 256."""
    common = common_dtype((x, number))
    wide = torch.int32 if common == torch.uint8 else common
    limit = number % 256 if common == torch.uint8 else number
    return x.to(wide), torch.full((), limit, dtype=wide, device=x.device)


def _of_one_tensor(op: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    if x.dtype != torch.uint8:
        return NotImplemented
    # Its scans and extrema know no int32.
    result = op(x.to(torch.int64), *args, **kwargs)
    if op in _KEEP_DTYPE:
        return result.to(torch.uint8)
    return (result[0].to(torch.uint8), result[1]) if isinstance(result, tuple) else result


def _clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Any:
    """Bounds that are whole are taken modulo 256, as eager does."""
    if x.dtype != torch.uint8:
        return NotImplemented
    common = common_dtype((x, *(bound for bound in (low, high) if bound is not None)))
    if common != torch.uint8:
        return torch.clamp(x.to(common), low, high)
    low, high = (None if bound is None else bound % 256 for bound in (low, high))
    return torch.clamp(x.to(torch.int32), low, high).to(torch.uint8)


def _ldexp(x: Tensor, exponent: Tensor) -> Any:
    if torch.uint8 not in (x.dtype, exponent.dtype):
        return NotImplemented
    return x * torch.pow(2.0, exponent)


def _where(condition: Tensor, x: Tensor, y: Tensor) -> Any:
    """Also of truth values and int8, whose conversion on the way ends the process."""
    if x.dtype == y.dtype or not {torch.uint8, torch.bool} & {x.dtype, y.dtype}:
        return NotImplemented
    common = common_dtype((x, y))
    return torch.where(condition, x.to(common), y.to(common))


def _back(result: Any, common: torch.dtype) -> Any:
    """``result`` as uint8 where its operands were, but for truth values, places, sums and quotients."""
    if common != torch.uint8:
        return result
    return pytree.tree_map(lambda x: x.to(torch.uint8) if x.dtype == torch.int32 else x, result)
