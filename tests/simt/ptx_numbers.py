"""Meanings of PTX instructions on numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from .faults import Unsupported
from .frames import Frame
from .kinds import unsigned
from .ptx import INTEGERS, TYPES, Bound, instruction


def kind_suffix(bound: Bound) -> np.dtype[Any]:
    """The type that the last suffix names."""
    return TYPES[bound.instruction.suffixes[-1]]


_UNARY: dict[str, Callable[[Any], Any]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda a: 1.0 / a,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "abs": np.abs,
    "neg": np.negative,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _lanes(bound: Bound, count: int) -> list[list[Any]]:
    """Operands after the first, as floats in double precision; packed types give two values."""
    last = bound.instruction.suffixes[-1]
    if last in ("f16x2", "bf16x2"):
        dtype = TYPES[last[:-2]]
        return [_halves(bound.read(o, np.int32), dtype) for o in bound.operands[1 : 1 + count]]
    return [[bound.read(o, TYPES[last])] for o in bound.operands[1 : 1 + count]]


def _halves(word: Any, dtype: np.dtype[Any]) -> list[Any]:
    bits = word.view(np.uint32)
    return [(bits & 0xFFFF).astype(np.uint16).view(dtype), (bits >> 16).astype(np.uint16).view(dtype)]


def pack_halves(low: Any, high: Any) -> Any:
    """Two 16-bit values as one i32."""
    bits = [np.asarray(v).view(np.uint16).astype(np.uint32) for v in (low, high)]
    return (bits[0] | (bits[1] << 16)).view(np.int32)[()]


def _numeric(bound: Bound, count: int, function: Callable[..., Any]) -> None:
    results = []
    for values in zip(*_lanes(bound, count), strict=True):
        dtype = values[0].dtype
        if dtype.kind == "i":
            results.append(function(*values).astype(dtype))
        else:
            wide = [np.asarray(v).astype(np.float64) for v in values]
            results.append(np.asarray(function(*wide)).astype(dtype)[()])
    bound.write(bound.operands[0], results[0] if len(results) == 1 else pack_halves(*results))


for _name, _function in _UNARY.items():
    instruction(_name)(lambda frame, bound, f=_function: _numeric(bound, 1, f))
for _name, _function2 in _BINARY.items():
    instruction(_name)(lambda frame, bound, f=_function2: _numeric(bound, 2, f))


@instruction("fma", "mad.lo")
def _(frame: Frame, bound: Bound) -> None:
    _numeric(bound, 3, lambda a, b, c: a * b + c)


@instruction("min", "max")
def _(frame: Frame, bound: Bound) -> None:
    largest = bound.instruction.suffixes[0] == "max"
    if bound.instruction.suffixes[-1] in ("u32", "u64", "u16"):
        bits = unsigned(kind_suffix(bound))
        a, b = (bound.read(o, kind_suffix(bound)).view(bits) for o in bound.operands[1:3])
        bound.write(bound.operands[0], (np.maximum if largest else np.minimum)(a, b).view(kind_suffix(bound)))
        return
    nan = bound.has("NaN") or kind_suffix(bound).kind == "i" if bound.instruction.suffixes[-1] in TYPES else bound.has("NaN")
    function = (np.maximum if largest else np.minimum) if nan else (np.fmax if largest else np.fmin)
    _numeric(bound, 2, function)


@instruction("shl", "shr")
def _(frame: Frame, bound: Bound) -> None:
    dtype = kind_suffix(bound)
    bits = dtype if bound.instruction.suffixes[-1].startswith("s") else unsigned(dtype)
    value = bound.read(bound.operands[1], dtype).view(bits)
    amount = bound.read(bound.operands[2], np.int32).astype(bits)
    limit = dtype.itemsize * 8 - 1
    shifted = value << np.minimum(amount, limit) if bound.has("shl") else value >> np.minimum(amount, limit)
    if bits.kind == "u" or bound.has("shl"):
        shifted = np.where(amount > limit, bits.type(0), shifted)[()]
    bound.write(bound.operands[0], shifted.view(dtype))


@instruction("mov")
def _(frame: Frame, bound: Bound) -> None:
    target, source = bound.operands
    bits = TYPES[bound.instruction.suffixes[-1]].itemsize * 8
    if isinstance(source, tuple):  # pack
        width = bits // len(source)
        parts = [bound.read(o, INTEGERS[width]).view(unsigned(INTEGERS[width])).astype(np.uint64) for o in source]
        word = sum((part << np.uint64(width * i) for i, part in enumerate(parts)), np.uint64(0))
        bound.write(target, word.astype(unsigned(INTEGERS[bits])).view(INTEGERS[bits]))
    elif isinstance(target, tuple):  # unpack
        width = bits // len(target)
        word = bound.read(source, INTEGERS[bits]).view(unsigned(INTEGERS[bits]))
        for position, register in enumerate(target):
            part = (word >> word.dtype.type(width * position)).astype(unsigned(INTEGERS[width]))
            bound.write(register, part.view(INTEGERS[width]))
    else:
        bound.write(target, bound.read(source, TYPES[bound.instruction.suffixes[-1]]))


@instruction("cvt")
def _(frame: Frame, bound: Bound) -> None:
    *_, to, source = bound.instruction.suffixes
    if to.endswith("x2"):
        _convert_pair(bound, to, source)
        return
    value = bound.read(bound.operands[1], TYPES[source])
    if to == "tf32":
        bound.write(bound.operands[0], round_tf32(value, to_even=bound.has("rn")))
        return
    if source[0] == "u":
        value = value.view(unsigned(value.dtype))
    if TYPES[to].kind == "i" and value.dtype.kind not in "iu":
        raise Unsupported(f"{bound.instruction.name}: conversions to integers")
    bound.write(bound.operands[0], value.astype(TYPES[to]))


def _convert_pair(bound: Bound, to: str, source: str) -> None:
    """``cvt.rn.bf16x2.f32 d, a, b``: a becomes the upper half.  Also from and to pairs of 8-bit floats."""
    dtype = TYPES[to[:-2]]
    if source.endswith("x2"):
        narrow = TYPES[source[:-2]]
        word = bound.read(bound.operands[1], np.int16).view(np.uint16)
        values = [(word & 0xFF).astype(np.uint8).view(narrow), (word >> 8).astype(np.uint8).view(narrow)]
        bound.write(bound.operands[0], pack_halves(*[value.astype(dtype) for value in values]))
        return
    high, low = (bound.read(operand, TYPES[source]) for operand in bound.operands[1:3])
    if bound.has("relu"):
        high, low = (np.maximum(value, value.dtype.type(0)) for value in (high, low))
    if dtype.itemsize == 2:
        bound.write(bound.operands[0], pack_halves(low.astype(dtype), high.astype(dtype)))
        return
    limit = float(ml_dtypes.finfo(dtype).max)  # satfinite
    bits = [np.clip(value, -limit, limit).astype(dtype).view(np.uint8).astype(np.uint16) for value in (low, high)]
    bound.write(bound.operands[0], (bits[0] | (bits[1] << 8)).view(np.int16))


def round_tf32(value: Any, *, to_even: bool = False) -> Any:
    """f32 rounded to 10 bits of fraction, ties away from zero (``cvt.rna.tf32.f32``) or to even (``cvt.rn.tf32.f32``)."""
    bits = value.view(np.uint32)
    half = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1)) if to_even else np.uint32(0x1000)
    rounded = ((bits + half) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(value), rounded, value)[()]


def truncate_tf32(value: Any) -> Any:
    """What tensor cores see of an f32: its low 13 bits are ignored."""
    return (value.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@instruction("prmt")
def _(frame: Frame, bound: Bound) -> None:
    a, b, selector = (bound.read(o, np.int32).view(np.uint32).astype(np.uint64) for o in bound.operands[1:4])
    pool = a | (b << np.uint64(32))
    result = np.uint32(0)
    for position in range(4):
        choice = (selector >> np.uint64(4 * position)) & np.uint64(0xF)
        byte = (pool >> (np.uint64(8) * (choice & np.uint64(7)))) & np.uint64(0xFF)
        byte = np.where(choice & np.uint64(8), np.where(byte & np.uint64(0x80), 0xFF, 0), byte)
        result = result | (byte.astype(np.uint32) << np.uint32(8 * position))
    bound.write(bound.operands[0], np.asarray(result, np.uint32)[()].view(np.int32))


@instruction("lop3")
def _(frame: Frame, bound: Bound) -> None:
    a, b, c = (bound.read(o, np.int32) for o in bound.operands[1:4])
    table = int(bound.operands[4], 0)
    result = np.int32(0)
    for index in range(8):
        if table >> index & 1:
            terms = [x if index >> (2 - i) & 1 else ~x for i, x in enumerate((a, b, c))]
            result = result | (terms[0] & terms[1] & terms[2])
    bound.write(bound.operands[0], result)
