"""Meanings of PTX instructions that touch memory or other lanes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accesses import atomic, load, store
from .faults import Unsupported
from .frames import Frame
from .kinds import Kind
from .ptx import TYPES, Bound, instruction
from .threads import block_barrier, shuffle_clamped, vote


def _element(bound: Bound) -> tuple[np.dtype[Any], int]:
    """Type and number of the elements of a load or store."""
    suffixes = bound.instruction.suffixes
    count = next((int(s[1:]) for s in suffixes if s in ("v2", "v4", "v8")), 1)
    if suffixes[-1] == "b128":
        raise Unsupported("128-bit registers")
    return TYPES[suffixes[-1]], count


@instruction("ld", "ldu")
def _(frame: Frame, bound: Bound) -> None:
    dtype, count = _element(bound)
    target, source = bound.operands[:2]
    kind = Kind(dtype, (count,) if count > 1 else ())
    value = load(frame, bound.address(source), bound.space(), kind, count * dtype.itemsize)
    if count == 1:
        sign_extend = bound.instruction.suffixes[-1] in ("s8", "s16")
        bound.write(target, value.astype(np.int32) if sign_extend else value)
        return
    for position, register in enumerate(target):
        bound.write(register, value[..., position])


@instruction("st")
def _(frame: Frame, bound: Bound) -> None:
    dtype, count = _element(bound)
    target, source = bound.operands[:2]
    values = bound.read_all(source, dtype)
    kind = Kind(dtype, (count,) if count > 1 else ())
    value = values[0] if count == 1 else np.stack(np.broadcast_arrays(*values), axis=-1)
    store(frame, bound.address(target), bound.space(), value, kind, count * dtype.itemsize)


_ATOMIC = {"exch": "xchg", "and": "_and", "or": "_or", "xor": "_xor", "inc": "uinc_wrap"}


@instruction("atom", "red")
def _(frame: Frame, bound: Bound) -> None:
    suffixes = bound.instruction.suffixes
    operation = next((s for s in suffixes if s in (*_ATOMIC, "add", "min", "max", "cas")), "")
    dtype = TYPES.get(suffixes[-1])
    if dtype is None or operation in ("", "cas"):
        raise Unsupported(bound.instruction.name)
    name = _ATOMIC.get(operation, operation)
    if operation in ("min", "max") and suffixes[-1].startswith("u"):
        name = f"u{operation}"
    returns = suffixes[0] == "atom"
    address, value = bound.operands[returns : returns + 2]
    found = atomic(frame, bound.address(address), bound.space(), bound.read(value, dtype), Kind(dtype), name)
    if returns:
        bound.write(bound.operands[0], found)


@instruction("shfl.sync")
def _(frame: Frame, bound: Bound) -> None:
    target, source, offset, clamp, _ = bound.operands
    mode = bound.instruction.suffixes[2]
    registers = target.split("|")
    values = bound.read(source, np.int32)
    result, inside = shuffle_clamped(frame, values, mode, bound.read(offset, np.int32), bound.read(clamp, np.int32))
    bound.write(registers[0], result)
    if len(registers) > 1:
        bound.write(registers[1], inside)


@instruction("vote.sync")
def _(frame: Frame, bound: Bound) -> None:
    target, source = bound.operands[:2]
    bound.write(target, vote(frame, frame.per_thread(bound.read(source, bool)), bound.instruction.suffixes[2]))


@instruction("bar.warp.sync", "prefetch", "prefetchu", "applypriority", "discard", "nanosleep", "griddepcontrol", "membar")
def _(frame: Frame, bound: Bound) -> None:
    """Nothing that changes a value here."""


@instruction("bar.sync", "barrier.sync")
def _(frame: Frame, bound: Bound) -> None:
    if len(bound.operands) != 1:
        raise Unsupported("named barriers of some threads outside of a warp-specialised kernel")
    block_barrier(frame)
