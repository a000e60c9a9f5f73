"""Decompositions for integers: what torch-mlir's conversion to linalg crashes on, does not know, or gets wrong.

Arithmetic on 8-bit integers is done in int32 and cut back, which is the same modulo 256; the conversion ends the process on
many of these ops (torch-mlir 20261001: "dstOriginalDtype has to be passed to convertScalarToDtype").
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from mlirstack.frontend.decompositions.division import add_division_decompositions
from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.decompositions.powers import MAX_EXPONENT, whole_power
from mlirstack.frontend.decompositions.unsigned import common_dtype

aten = torch.ops.aten

_BYTES = (torch.int8, torch.uint8)
_BYTE_ARITHMETIC = (
    aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Tensor, aten.rsub.Scalar,
    aten.mul.Tensor, aten.mul.Scalar, aten.addcmul.default, aten.floor_divide.default, aten.floor_divide.Scalar,
    aten.div.Tensor_mode, aten.div.Scalar_mode, aten.remainder.Scalar, aten.remainder.Tensor, aten.fmod.Scalar,
    aten.fmod.Tensor, aten.max.default, aten.min.default, aten.mm.default, aten.bmm.default, aten.addmm.default,
    aten.pow.Tensor_Scalar,
)  # fmt: skip
_BITWISE = (
    (aten.bitwise_and.Scalar, aten.bitwise_and.Tensor),
    (aten.bitwise_or.Scalar, aten.bitwise_or.Tensor),
    (aten.bitwise_xor.Scalar, aten.bitwise_xor.Tensor),
)
_SUMS = (aten.sum.default, aten.sum.dim_IntList, aten.cumsum.default)
_PRODUCTS = (aten.prod.default, aten.prod.dim_int)


def add_integer_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for all other dtypes."""
    for with_scalar, with_tensor in _BITWISE:
        table[with_scalar] = _bitwise(with_tensor)
    extend(table, aten.pow.Tensor_Scalar, _integer_power)
    extend(table, aten.pow.Tensor_Tensor, _integer_power_of_tensors)
    extend(table, aten.pow.Scalar, _power_of_number)
    for op in (aten.fmod.Scalar, aten.fmod.Tensor):
        extend(table, op, _integer_fmod)
    add_division_decompositions(table)
    for op in _BYTE_ARITHMETIC:
        extend(table, op, functools.partial(_in_int32, op))
    extend(table, aten.addcmul.default, _addcmul)
    extend(table, aten.add.Tensor, _sum_of_truths)
    extend(table, aten.neg.default, _integer_neg)
    for op in (*_SUMS, *_PRODUCTS):
        extend(table, op, functools.partial(_accumulated, op))
    for op in (aten.arange.start_step, aten.full.default, aten.full_like.default):
        extend(table, op, functools.partial(_made_as_int64, op))
    for op in (aten.any.default, aten.any.dim):
        extend(table, op, functools.partial(_any_of_bytes, op))
    extend(table, aten.cat.default, _joined_in_one_dtype)


def _bitwise(with_tensor: Any) -> Decomposition:
    def decomposition(x: Tensor, number: int) -> Any:
        return with_tensor(x, torch.full((), number, dtype=torch.result_type(x, number), device=x.device))

    return decomposition


def _in_int32(op: Any, *args: Any, **kwargs: Any) -> Any:
    leaves = pytree.tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    narrow = any(t.dtype in _BYTES for t in tensors) and not any(t.is_floating_point() or t.is_complex() for t in tensors)
    if not narrow or any(isinstance(leaf, float) for leaf in leaves):
        return NotImplemented
    wanted = common_dtype(tensors)
    wide, options = pytree.tree_map(lambda x: _wide(x, wanted), (args, kwargs))
    result = op(*wide, **options)
    return pytree.tree_map(lambda x: x.to(wanted), result)


def _wide(value: Any, dtype: torch.dtype) -> Any:
    """Bytes as int32; the numbers beside them as eager takes them, which is modulo the size of ``dtype``."""
    if _is_bytes(value):
        return value.to(torch.int32)
    if not isinstance(value, int) or isinstance(value, bool) or dtype not in _BYTES:
        return value
    least = torch.iinfo(dtype).min
    return (value - least) % 256 + least


def _accumulated(op: Any, x: Tensor, *args: Any, dtype: torch.dtype | None = None) -> Any:
    """Sums and products of integers in the dtype of the result, int64 if none is given; bytes in int32, and cut back.

    The conversion to TOSA would accumulate in the dtype of ``x``.
    """
    if x.is_floating_point() or x.is_complex():
        return NotImplemented
    wanted = dtype or torch.int64
    wide = torch.int32 if wanted in _BYTES else wanted
    if wanted == torch.bool or (x.dtype == wide and dtype in (None, wide)):
        return NotImplemented
    result = op(x.to(wanted).to(wide), *args, dtype=wide)
    return result if wide == wanted else result.to(wanted)


def _integer_neg(x: Tensor) -> Any:
    """The negative of an integer as a difference: the conversion would round it to a float32."""
    if x.is_floating_point() or x.is_complex():
        return NotImplemented
    return torch.zeros((), dtype=x.dtype) - x


def _sum_of_truths(x: Tensor, y: Any, **options: Any) -> Any:
    """The sum of truth values is their disjunction; one bit of an addition would be the exclusive one."""
    if x.dtype != torch.bool or not isinstance(y, Tensor) or y.dtype != torch.bool:
        return NotImplemented
    return torch.logical_or(x, y if options.get("alpha", 1) else torch.zeros_like(y))


def _addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Any:
    """Of whole numbers with a whole number that is written as a real one, which torch's own decomposition refuses."""
    if not isinstance(value, float) or any(t.is_floating_point() or t.is_complex() for t in (x, a, b)):
        return NotImplemented
    return torch.addcmul(x, a, b, value=int(value))


def _is_bytes(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype in _BYTES


def _integer_power(x: Tensor, exponent: float) -> Any:
    """An integer tensor to a small integer power, by repeated squaring; to a real power as a real number."""
    if x.dtype == torch.bool and not isinstance(exponent, bool):  # a number makes a whole or a real number of it
        return torch.pow(x.to(torch.result_type(x, exponent)), exponent)
    integers = not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool
    if integers and isinstance(exponent, float):
        return torch.pow(x.to(torch.get_default_dtype()), exponent)
    if not integers or not isinstance(exponent, int) or not 0 <= exponent <= MAX_EXPONENT:
        return NotImplemented
    return whole_power(x, exponent)


def _integer_power_of_tensors(x: Tensor, exponent: Tensor) -> Any:
    """Integers to the power of integers, modulo the size of the dtype, by repeated squaring for each bit of the exponent."""
    dtype = torch.result_type(x, exponent)
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return NotImplemented
    compute = torch.int64 if dtype == torch.int64 else torch.int32
    base, power = x.to(compute), exponent.to(compute)
    result, square, rest = torch.ones_like(base * power), base, power
    bits = torch.iinfo(dtype).max.bit_length()
    for bit in range(bits):
        result = torch.where(rest & 1 == 1, result * square, result)
        if bit < bits - 1:
            square, rest = square * square, rest >> 1
    # One over a whole number: eager keeps what is whole of it.
    odd = torch.where(power & 1 == 1, base, 1)
    inverse = torch.where((base == 1) | (base == -1), odd, 0)
    return torch.where(power < 0, inverse, result).to(dtype)


def _power_of_number(number: float, exponent: Tensor) -> Any:
    if exponent.is_floating_point() or exponent.is_complex() or isinstance(number, complex):
        return NotImplemented
    dtype = torch.result_type(exponent, number)
    if dtype.is_floating_point:
        return torch.pow(number, exponent.to(dtype))
    base = torch.full_like(exponent, number, dtype=torch.int64).to(dtype)
    return torch.pow(base, exponent.to(dtype))


def _integer_fmod(x: Tensor, y: Any) -> Any:
    """The remainder of a division that rounds to zero: it has the sign of the dividend."""
    if x.is_floating_point() or isinstance(y, float) or (isinstance(y, Tensor) and y.is_floating_point()):
        return NotImplemented
    return x - torch.div(x, y, rounding_mode="trunc") * y


def _made_as_int64(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Constants of 8-bit dtypes: made as int64, then cut."""
    wanted = kwargs.get("dtype")
    if wanted is None and args and isinstance(args[0], Tensor):
        wanted = args[0].dtype
    if wanted not in _BYTES:
        return NotImplemented
    return op(*args, **{**kwargs, "dtype": torch.int64}).to(wanted)


def _any_of_bytes(op: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``any`` of uint8, whose result is uint8 as well."""
    if x.dtype != torch.uint8:
        return NotImplemented
    return op(x != 0, *args, **kwargs).to(torch.uint8)


def _joined_in_one_dtype(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """Tensors of several dtypes in the common one: converted on the way, truth values end the process next to bytes."""
    dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors])
    if all(x.dtype == dtype for x in tensors):
        return NotImplemented
    return aten.cat.default([x.to(dtype) for x in tensors], dim)
