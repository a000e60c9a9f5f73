"""Meanings of ops on integers: arith, index, and the arithmetic of the LLVM dialect."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .build import Op, Step, elementwise, meaning
from .kinds import unsigned

Function = Callable[..., Any]


def on_unsigned(function: Function) -> Callable[[Op], Function]:
    """A function of unsigned integers, applied to the bits of signed ones."""

    def choose(op: Op) -> Function:
        signed = op.kind.dtype
        if signed.kind == "b":
            return lambda a, b: function(a, b).astype(bool)
        bits = unsigned(signed)
        return lambda a, b: function(a.view(bits), b.view(bits)).view(signed)

    return choose


def divide(a: Any, b: Any) -> Any:
    """Signed division, rounded towards zero."""
    quotient = a // b
    return quotient + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def _plain(function: Function, on_bool: Function | None = None) -> Callable[[Op], Function]:
    return lambda op: on_bool if on_bool is not None and op.kind.dtype.kind == "b" else function


def _shift(function: Function) -> Function:
    """A shift by the width or more gives zero (the ops leave it open, hardware clamps)."""

    def shift(a: Any, b: Any) -> Any:
        width = a.dtype.itemsize * 8
        return np.where(b < width, function(a, b % a.dtype.type(width)), a.dtype.type(0))[()]

    return shift


def _shift_signed(a: Any, b: Any) -> Any:
    return a >> np.minimum(b.view(unsigned(b.dtype)), a.dtype.itemsize * 8 - 1).astype(a.dtype)


_INTEGER_OPS: dict[str, Callable[[Op], Function]] = {
    "addi": _plain(operator.add, operator.xor),
    "subi": _plain(operator.sub, operator.xor),
    "muli": _plain(operator.mul, operator.and_),
    "andi": _plain(operator.and_),
    "ori": _plain(operator.or_),
    "xori": _plain(operator.xor),
    "divui": on_unsigned(operator.floordiv),
    "remui": on_unsigned(operator.mod),
    "ceildivui": on_unsigned(lambda a, b: (a // b) + (a % b != 0).astype(a.dtype)),
    "divsi": _plain(divide),
    "remsi": _plain(np.fmod),
    "floordivsi": _plain(operator.floordiv),
    "ceildivsi": _plain(lambda a, b: -((-a) // b)),
    "shli": on_unsigned(_shift(operator.lshift)),
    "shrui": on_unsigned(_shift(operator.rshift)),
    "shrsi": _plain(_shift_signed),
    "minui": on_unsigned(np.minimum),
    "maxui": on_unsigned(np.maximum),
    "minsi": _plain(np.minimum),
    "maxsi": _plain(np.maximum),
}
_LLVM_INTEGER_OPS = {
    **{"add": "addi", "sub": "subi", "mul": "muli", "and": "andi", "or": "ori", "xor": "xori", "udiv": "divui"},
    **{"urem": "remui", "sdiv": "divsi", "srem": "remsi", "shl": "shli", "lshr": "shrui", "ashr": "shrsi"},
    **{"intr.umin": "minui", "intr.umax": "maxui", "intr.smin": "minsi", "intr.smax": "maxsi"},
}
_INDEX_OPS = {
    **{"add": "addi", "sub": "subi", "mul": "muli", "divs": "divsi", "divu": "divui", "ceildivs": "ceildivsi"},
    **{"ceildivu": "ceildivui", "floordivs": "floordivsi", "rems": "remsi", "remu": "remui", "maxs": "maxsi"},
    **{"maxu": "maxui", "mins": "minsi", "minu": "minui", "shl": "shli", "shrs": "shrsi", "shru": "shrui"},
    **{"and": "andi", "or": "ori", "xor": "xori"},
}
for _name, _choose in _INTEGER_OPS.items():
    elementwise(f"arith.{_name}", _choose)
for _prefix, _table in (("llvm", _LLVM_INTEGER_OPS), ("index", _INDEX_OPS)):
    for _name, _same in _table.items():
        elementwise(f"{_prefix}.{_name}", _INTEGER_OPS[_same])

COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def integer_compare(predicate: str, dtype: Any) -> Function:
    """The comparison ``eq``, ``ne``, ``slt`` … of integers held as ``dtype``."""
    function = COMPARE[predicate[-2:]]
    if predicate[0] == "u" or dtype.kind == "b":
        bits = unsigned(dtype)
        return lambda a, b: function(a.view(bits), b.view(bits))
    return function


elementwise("arith.cmpi", lambda op: integer_compare(_PREDICATES[op.attribute("predicate")], op.operand_kinds[0].dtype))
elementwise("llvm.icmp", lambda op: integer_compare(_PREDICATES[op.attribute("predicate")], op.operand_kinds[0].dtype))
elementwise(
    "index.cmp",
    lambda op: integer_compare(op.text("pred").split()[-1].rstrip(">)").split("<")[-1], op.operand_kinds[0].dtype),
)


def _extend_unsigned(op: Op) -> Function:
    source, target = op.operand_kinds[0].dtype, op.kind.dtype
    return lambda a: a.view(unsigned(source)).astype(target)


def _extend_signed(op: Op) -> Function:
    if op.operand_kinds[0].dtype.kind == "b":
        return lambda a: -a.astype(op.kind.dtype)
    return cast(op)


def cast(op: Op) -> Function:
    target = op.kind.dtype
    if target.kind == "b":
        return lambda a: (a & 1).astype(bool)
    return lambda a: a.astype(target)


for _name in ("arith.extui", "arith.index_castui", "llvm.zext", "index.castu"):
    elementwise(_name, _extend_unsigned)
for _name in ("arith.extsi", "arith.index_cast", "llvm.sext", "index.casts"):
    elementwise(_name, _extend_signed)
for _name in ("arith.trunci", "llvm.trunc"):
    elementwise(_name, cast)


def _count_bits(function: Callable[[int, int], int]) -> Callable[[Op], Function]:
    def choose(op: Op) -> Function:
        dtype, width = op.kind.dtype, op.kind.dtype.itemsize * 8
        return np.vectorize(lambda a: function(int(a) & ((1 << width) - 1), width), otypes=[dtype])

    return choose


for _name, _function in {
    "math.ctlz": lambda bits, width: width - bits.bit_length(),
    "math.cttz": lambda bits, width: (bits & -bits).bit_length() - 1 if bits else width,
    "math.ctpop": lambda bits, width: bits.bit_count(),
}.items():
    elementwise(_name, _count_bits(_function))


@meaning("arith.addui_extended")
def _(op: Op) -> Step:
    a, b, bits = *op.operands, unsigned(op.kind.dtype)

    def step(frame: Any) -> None:
        total = frame.env[a] + frame.env[b]
        frame.env[op.results[0]], frame.env[op.results[1]] = total, total.view(bits) < frame.env[a].view(bits)

    return step


@meaning("arith.mului_extended", "arith.mulsi_extended")
def _(op: Op) -> Step:
    a, b, dtype = *op.operands, op.kind.dtype
    width, mask = dtype.itemsize * 8, (1 << dtype.itemsize * 8) - 1
    signed = op.operation.name == "arith.mulsi_extended"

    def wide(x: Any) -> Any:
        return x.astype(object) if signed else x.view(unsigned(dtype)).astype(object)

    def step(frame: Any) -> None:
        product = np.asarray(wide(np.asarray(frame.env[a])) * wide(np.asarray(frame.env[b])), object)
        low, high = product & mask, (product >> width) & mask
        for result, part in zip(op.results, (low, high), strict=True):
            frame.env[result] = np.asarray(part, object).astype(unsigned(dtype)).view(dtype)

    return step
