"""Meanings of asynchronous copies of a thread (``cp.async``): the bytes arrive when the thread waits for them, not before.

Until then the target counts as not written, so that a read before the wait is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .build import Op, Step, meaning
from .faults import Misaligned
from .frames import Frame, Unit
from .kinds import CLUSTER, GLOBAL, SHARED, Kind
from .memory import ALLOCATED, POISON
from .ptx import Bound, instruction

_KEY = "cp.async"


@dataclass
class _Copy:
    """One instruction: ``threads`` (of the unit), where each one's bytes go, the bytes, and the thread's group."""

    threads: Any
    targets: Any
    data: Any
    groups: Any


class _Pending:
    """Copies under way, and how many groups each thread of the unit has committed."""

    def __init__(self, unit: Unit) -> None:
        self.committed = np.zeros(unit.count, np.int64)
        self.copies: list[_Copy] = []

    @classmethod
    def of(cls, unit: Unit) -> _Pending:
        """The pending copies of a unit."""
        if _KEY not in unit.state:
            unit.state[_KEY] = cls(unit)
        found: _Pending = unit.state[_KEY]
        return found


def start(frame: Frame, target: Any, target_space: int, source: Any, source_space: int, size: int, valid: Any) -> None:
    """Read up to ``valid`` bytes (all of ``size`` if None) now, keep them until the thread waits; zeros behind them."""
    memory, count = frame.unit.memory, frame.count
    addresses = frame.per_thread(frame.resolve(source, source_space))
    targets = np.array(frame.per_thread(frame.resolve(target, target_space)))
    for name, places in (("target", targets), ("source", addresses)):
        wrong = np.flatnonzero(places % size)
        if wrong.size:
            raise Misaligned(f"{name} of a copy of {size} bytes: {memory.where(int(places[wrong[0]]))}", wrong)
    wanted = np.full(count, size) if valid is None else np.clip(frame.per_thread(valid), 0, size)
    data = np.zeros((count, size), np.uint8)
    whole, none = wanted == size, wanted == 0
    if whole.any():
        data[whole] = _read(frame, np.flatnonzero(whole), addresses, size)
    for length in np.unique(wanted[~whole & ~none]):
        threads = np.flatnonzero(wanted == length)
        data[threads, :length] = _read(frame, threads, addresses, int(length))
    pending = _Pending.of(frame.unit)
    _poison(frame, targets, size)
    pending.copies.append(_Copy(frame.threads, targets, data, pending.committed[frame.threads]))


def _read(frame: Frame, threads: Any, addresses: Any, length: int) -> Any:
    part = frame if len(threads) == frame.count else frame.child(threads)
    kind = Kind(np.dtype(np.uint8), (length,))
    value = frame.unit.memory.load(addresses[threads], kind)
    if frame.unit.races is not None:
        frame.unit.races.read(part, addresses[threads], kind)
    return value


def _poison(frame: Frame, targets: Any, size: int) -> None:
    kind = Kind(np.dtype(np.uint8), (size,))
    frame.unit.memory.store(targets, np.full((len(targets), size), POISON, np.uint8), kind)
    frame.unit.memory.state[targets[:, None] + np.arange(size)] = ALLOCATED
    if frame.unit.races is not None:
        frame.unit.races.write(frame, targets, kind)


def commit(frame: Frame) -> None:
    """End a group of each thread."""
    _Pending.of(frame.unit).committed[frame.threads] += 1


def wait(frame: Frame, allowed: int, *, uncommitted: bool = False) -> None:
    """Let all but the last ``allowed`` groups of these threads arrive."""
    pending, memory = _Pending.of(frame.unit), frame.unit.memory
    here = np.zeros(frame.unit.count, bool)
    here[frame.threads] = True
    limit = pending.committed - allowed + uncommitted
    left = []
    for copy in pending.copies:
        arrived = here[copy.threads] & (copy.groups < limit[copy.threads])
        if arrived.any():
            kind = Kind(np.dtype(np.uint8), (copy.data.shape[1],))
            memory.store(copy.targets[arrived], copy.data[arrived], kind)
            if frame.unit.races is not None:
                positions = np.searchsorted(frame.threads, copy.threads[arrived])
                frame.unit.races.write(frame.child(positions), copy.targets[arrived], kind)
        if not arrived.all():
            stay = ~arrived
            left.append(_Copy(copy.threads[stay], copy.targets[stay], copy.data[stay], copy.groups[stay]))
    pending.copies = left


@meaning("nvvm.cp.async.shared.global")
def _(op: Op) -> Step:
    target, source, *valid = op.operands
    size = op.attribute("size")
    target_space, source_space = (kind.space for kind in op.operand_kinds[:2])

    def step(frame: Frame) -> None:
        env = frame.env
        start(frame, env[target], target_space, env[source], source_space, size, env[valid[0]] if valid else None)

    return step


@meaning("nvvm.cp.async.commit.group")
def _(op: Op) -> Step:
    return commit


@meaning("nvvm.cp.async.wait.group")
def _(op: Op) -> Step:
    allowed = op.attribute("n")
    return lambda frame: wait(frame, allowed)


@instruction("cp.async.ca", "cp.async.cg")
def _(frame: Frame, bound: Bound) -> None:
    target, source, size, *valid = bound.operands
    length = bound.read(valid[0], np.int32) if valid else None
    spaces = (CLUSTER if bound.has("shared::cluster") else SHARED, GLOBAL)
    start(frame, bound.address(target), spaces[0], bound.address(source), spaces[1], int(size, 0), length)


@instruction("cp.async.commit_group")
def _(frame: Frame, bound: Bound) -> None:
    commit(frame)


@instruction("cp.async.wait_group")
def _(frame: Frame, bound: Bound) -> None:
    wait(frame, int(bound.operands[0], 0))


@instruction("cp.async.wait_all")
def _(frame: Frame, bound: Bound) -> None:
    wait(frame, 0, uncommitted=True)
