"""Decompositions of what looks at the bits of numbers: views as another dtype, signs, and floats of 8 bits.

All of it becomes integer arithmetic and views between dtypes of one size; see :mod:`mlirstack.frontend.bitcasts`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend

aten = torch.ops.aten

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def add_bit_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; conversions that have nothing to do with floats of 8 bits are left as they stand there."""
    table[aten.view.dtype] = _view
    table[aten.signbit.default] = _signbit
    table[aten.copysign.Tensor] = _copysign
    table[aten.copysign.Scalar] = lambda x, sign: _copysign(x, torch.full((), float(sign), device=x.device))
    table[aten.nextafter.default] = _nextafter
    table[aten.frexp.Tensor] = _frexp
    convert = torch.ops.prims.convert_element_type.default
    extend(table, convert, _converted)
    table[aten._scaled_mm.default] = _scaled_mm


def _view(x: Tensor, dtype: torch.dtype) -> Any:
    """Elements of another size: the last dimension grows or shrinks, lower bits first."""
    before, after = x.element_size(), dtype.itemsize
    if before == after or x.is_complex() or dtype.is_complex or not x.dim():
        return NotImplemented
    bits = x if x.dtype == _INTEGERS[before] else x.view(_INTEGERS[before])
    if before > after:
        pieces = [(bits >> 8 * after * i).to(_INTEGERS[after]) for i in range(before // after)]
        integers = torch.stack(pieces, -1).flatten(-2)
    else:
        rows = bits.to(_INTEGERS[after]).reshape([*x.shape[:-1], -1, after // before])
        mask = 2 ** (8 * before) - 1
        integers = rows.select(-1, 0) & mask
        for i in range(1, after // before):
            integers = integers | (rows.select(-1, i) & mask) << 8 * before * i
    return integers if integers.dtype == dtype else integers.view(dtype)


def _signbit(x: Tensor) -> Tensor:
    if x.dtype == torch.bool or not x.dtype.is_signed:
        return torch.zeros_like(x, dtype=torch.bool)
    return (x.view(_INTEGERS[x.element_size()]) if x.is_floating_point() else x) < 0


def _copysign(x: Tensor, sign: Tensor) -> Tensor:
    dtype = torch.result_type(x, sign)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    size = x.to(dtype).abs()
    return torch.where(_signbit(sign), -size, size)


def _nextafter(x: Tensor, y: Tensor) -> Tensor:
    """The number next to ``x`` on the way to ``y``: its bits, as those of an integer, one up or down."""
    dtype = torch.result_type(x, y)
    x, y = aten.broadcast_tensors.default([x.to(dtype), y.to(dtype)])
    integer = _INTEGERS[x.element_size()]
    bits = x.view(integer)
    away = torch.where((y > x) == (x > 0), 1, -1).to(integer)
    smallest = torch.where(y > 0, 1, torch.iinfo(integer).min + 1).to(integer)
    moved = torch.where(x == 0, smallest, bits + away).view(dtype)
    return torch.where(x == y, y, torch.where(torch.isnan(x) | torch.isnan(y), math.nan, moved)).to(dtype)


def _frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """``x`` as a number of at least 0.5 and below 1 times a power of two, and the exponent of that (int32)."""
    info, integer = torch.finfo(x.dtype), _INTEGERS[x.element_size()]
    digits = round(-math.log2(info.eps))
    width = 8 * x.element_size() - 1 - digits
    is_small = x.abs() < info.tiny  # these have no leading one: made larger by a power of two
    bits = torch.where(is_small, x * 2.0 ** (digits + 1), x).view(integer)
    exponent = (bits >> digits) & ((1 << width) - 1)
    bias = (1 << (width - 1)) - 2
    half = (bits & ~(((1 << width) - 1) << digits) | (bias << digits)).to(integer).view(x.dtype)
    whole = exponent.int() - bias - torch.where(is_small, digits + 1, 0).int()
    is_number = (x.abs() < math.inf) & (x != 0)
    return torch.where(is_number, half, x), torch.where(is_number, whole, 0).int()


# --------------------------------------------------------------------------------------------------------- floats of 8 bits


def _converted(x: Tensor, dtype: torch.dtype) -> Any:
    """Conversions from and to floats of 8 bits, by way of float32."""
    if x.dtype == dtype or not (x.dtype in _FLOAT8 or dtype in _FLOAT8):
        return NotImplemented
    wide = _decoded(x) if x.dtype in _FLOAT8 else x.to(torch.float32)
    return _encoded(wide, dtype) if dtype in _FLOAT8 else wide.to(dtype)


def _decoded(x: Tensor) -> Tensor:
    """The float32 that each element stands for."""
    bits = x.view(torch.int8).to(torch.int32)
    if x.dtype == torch.float8_e5m2:  # the upper half of a float16
        return (bits << 8).to(torch.int16).view(torch.float16).to(torch.float32)
    exponent, fraction = (bits >> 3) & 15, bits & 7
    normal = (((exponent + 120) << 23) | (fraction << 20)).view(torch.float32)
    size = torch.where(exponent == 0, fraction.to(torch.float32) * 2.0**-9, normal)
    size = torch.where((bits & 127) == 127, float("nan"), size)
    return torch.where(bits < 0, -size, size)


def _encoded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounded to nearest, ties to even; what is too large becomes infinity, in e4m3fn the largest number."""
    e4m3 = dtype == torch.float8_e4m3fn
    fraction, bias, largest, least = (3, 7, 1087 << 20, 121 << 23) if e4m3 else (2, 15, 143 << 23, 113 << 23)
    magic = (127 - bias + 24 - fraction) << 23  # a number whose last bit is the spacing of subnormals
    bits = x.view(torch.int32)
    size = bits & 0x7FFFFFFF
    shift = 23 - fraction
    rounded = (size + ((bias - 127) << 23) + (1 << (shift - 1)) - 1 + ((size >> shift) & 1)) >> shift
    if e4m3:  # the code after the largest number is NaN's
        rounded = torch.clamp(rounded, max=0x7E)
    magic_number = torch.full((), magic, dtype=torch.int32).view(torch.float32)
    small = (size.view(torch.float32) + magic_number).view(torch.int32) - magic
    too_large = torch.where(size > 0x7F800000, 0x7F, 0x7E if e4m3 else 0x7C)
    code = torch.where(size >= largest, too_large, torch.where(size < least, small, rounded))
    return torch.where(bits < 0, code | 0x80, code).to(torch.int8).view(dtype)


def _scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Any:
    """One scale a factor: ``(a @ b) * scale_a * scale_b + bias``, summed in float32; other scalings are not decomposed."""
    del use_fast_accum
    if scale_a.numel() != 1 or scale_b.numel() != 1:
        return NotImplemented
    product = (a.to(torch.float32) @ b.to(torch.float32)) * (scale_a.reshape(()) * scale_b.reshape(()))
    if bias is not None:
        product = product + bias.to(torch.float32)
    if scale_result is not None:
        product = product * scale_result.reshape(())
    return product.to(out_dtype or a.dtype)
