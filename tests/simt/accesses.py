"""What all ops that touch memory do: loads, stores, atomics, buffers of single threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from .build import Op
from .faults import Race, Unsupported
from .frames import Frame
from .kinds import Kind, unsigned


def load(frame: Frame, pointer: Any, space: int, kind: Kind, alignment: int | None = None) -> Any:
    """Values of ``kind`` at a pointer of an address space."""
    address = frame.resolve(pointer, space)
    value = frame.unit.memory.load(address, kind, alignment)
    if frame.unit.races is not None:
        frame.unit.races.read(frame, address, kind)
    return value


def store(frame: Frame, pointer: Any, space: int, value: Any, kind: Kind, alignment: int | None = None) -> None:
    """Write values of ``kind`` at a pointer of an address space."""
    address = frame.resolve(pointer, space)
    frame.unit.memory.store(address, value, kind, alignment)
    if frame.unit.races is not None:
        _check_agreement(frame, address, kind, value)
        frame.unit.races.write(frame, address, kind)


def _check_agreement(frame: Frame, address: Any, kind: Kind, value: Any) -> None:
    """Threads that write one place by the same op have to write the same."""
    if kind.members is not None or (np.ndim(address) == 0 and value.ndim == len(kind.shape)):
        return
    found = frame.unit.memory.load(frame.per_thread(address), kind)
    different = (found != value) & ~np.isnan(found.astype(np.float64))
    if different.any():
        threads = np.unique(np.argwhere(different)[:, 0])
        raise Race("threads write different values to the same place by one op", threads)


def natural_alignment(kind: Kind) -> int:
    """What the data layout aligns a vector to: its size, rounded up to a power of two."""
    if kind.members is not None or not kind.shape:
        return kind.dtype.itemsize if kind.members is None else 1
    return 1 << (kind.bytes - 1).bit_length()


def private_buffer(frame: Frame, op: Op, size: int) -> Any:
    """A buffer for each thread of the frame, the same one when the op is executed again; one buffer on the host."""
    unit, name = frame.unit, f"{op.operation.name} of {op.builder.resources.name}"
    if unit.is_host:
        return np.int64(unit.memory.allocate(size, name))
    pitch = -(-size // 16) * 16 + 16
    if op.operation not in unit.state:
        start = unit.memory.allocate(pitch * unit.count, name)
        unit.state[op.operation] = start
        states = unit.memory.state[start : start + pitch * unit.count].reshape(unit.count, pitch)
        states[:, size:] = 0
    return unit.state[op.operation] + frame.threads.astype(np.int64) * pitch


_ATOMIC = {
    **{"addf": lambda a, b: a + b, "addi": lambda a, b: a + b, "mulf": lambda a, b: a * b, "muli": lambda a, b: a * b},
    **{"maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax, "minnumf": np.fmin},
    **{"maxs": np.maximum, "mins": np.minimum, "assign": lambda a, b: b},
    **{"andi": lambda a, b: a & b, "ori": lambda a, b: a | b, "xori": lambda a, b: a ^ b},
    "maxu": lambda a, b: np.maximum(a.view(unsigned(a.dtype)), b.view(unsigned(b.dtype))).view(a.dtype),
    "minu": lambda a, b: np.minimum(a.view(unsigned(a.dtype)), b.view(unsigned(b.dtype))).view(a.dtype),
}
_ATOMIC |= {
    **{"xchg": _ATOMIC["assign"], "add": _ATOMIC["addi"], "fadd": _ATOMIC["addf"], "_and": _ATOMIC["andi"]},
    **{"_or": _ATOMIC["ori"], "_xor": _ATOMIC["xori"], "max": np.maximum, "min": np.minimum, "umax": _ATOMIC["maxu"]},
    **{"umin": _ATOMIC["minu"], "fmax": np.fmax, "fmin": np.fmin, "sub": lambda a, b: a - b},
    "uinc_wrap": lambda a, b: a.dtype.type(0) if a.view(unsigned(a.dtype)) >= b.view(unsigned(b.dtype)) else a + 1,
}


def atomic(frame: Frame, pointer: Any, space: int, values: Any, kind: Kind, name: str) -> Any:
    """Each thread in turn replaces memory by a function of it and its value; returns what each one found."""
    if name not in _ATOMIC:
        raise Unsupported(f"atomic operation {name}")
    combine = _ATOMIC[name]
    addresses = np.atleast_1d(frame.per_thread(frame.resolve(pointer, space)))
    values = np.atleast_1d(frame.per_thread(values))
    found = np.zeros(len(addresses), kind.dtype)
    memory = frame.unit.memory
    for position, (address, value) in enumerate(zip(addresses, values, strict=True)):
        found[position] = memory.load(address, kind)
        memory.store(address, kind.dtype.type(combine(found[position], value)), kind)
    return found
