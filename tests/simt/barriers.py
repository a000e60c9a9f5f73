"""Barriers: of the block and named ones (``bar.sync``), of a cluster, and mbarriers in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .build import Op, Step, meaning
from .code import Wait, waiting
from .faults import Divergence, Fault
from .frames import WARP, Frame, Unit
from .kinds import CLUSTER, SHARED, Kind
from .ptx import Bound, constraints, instruction, parse

_WORD = Kind(np.dtype(np.int64))


def groups(frame: Frame, values: Any) -> Iterator[tuple[int, Any]]:
    """Each different value and the positions of the threads that have it."""
    values = np.asarray(values)
    if values.ndim == 0:
        yield int(values), np.arange(frame.count)
        return
    for value in np.unique(values):
        yield int(value), np.flatnonzero(values == value)


def release(frame: Frame, positions: Any, key: Any) -> None:
    """Tell the race detector that some threads let others know, at ``key``, what they did."""
    if frame.unit.races is not None:
        frame.unit.races.release(_part(frame, positions), key)


def acquire(frame: Frame, positions: Any, key: Any) -> None:
    """Tell the race detector that some threads have waited at ``key``."""
    if frame.unit.races is not None:
        frame.unit.races.acquire(_part(frame, positions), key)


def _part(frame: Frame, positions: Any) -> Frame:
    return frame if len(positions) == frame.count else frame.child(positions)


# -------------------------------------------------------------------------------------------------------- barriers by number


@dataclass
class _Barrier:
    arrived: int = 0
    generation: int = 0


def _barriers(unit: Unit) -> dict[Any, _Barrier]:
    found: dict[Any, _Barrier] = unit.state.setdefault("barriers", {})
    return found


def arrive(frame: Frame, number: Any, expected: Any) -> Any:
    """Threads arrive at barrier ``number`` of their block; returns the generation that each waits to end."""
    if np.any(number < 0) or np.any(number > 15) or (expected is not None and np.any(expected % WARP)):
        raise Fault(f"barrier {number} for {expected} threads: there are 16 barriers, for whole warps")
    token = np.zeros(frame.count, np.int64)
    for key, positions in groups(frame, frame.local_block * 16 + number):
        barrier = _barriers(frame.unit).setdefault(key, _Barrier())
        wanted = frame.unit.block_threads if expected is None else int(frame.per_thread(expected)[positions[0]])
        token[positions] = barrier.generation
        release(frame, positions, ("barrier", key, barrier.generation))
        barrier.arrived += len(positions)
        if barrier.arrived > wanted:
            raise Divergence(f"{barrier.arrived} threads arrive at barrier {key % 16}, which is for {wanted}", positions)
        if barrier.arrived == wanted:
            barrier.arrived, barrier.generation = 0, barrier.generation + 1
    return token


def _ready(frame: Frame, number: Any, token: Any) -> Any:
    ready = np.zeros(frame.count, bool)
    for key, positions in groups(frame, frame.local_block * 16 + number):
        ready[positions] = _barriers(frame.unit)[key].generation > frame.per_thread(token)[positions]
    return ready


def _leave(frame: Frame, number: Any, token: Any) -> None:
    for key, positions in groups(frame, frame.local_block * 16 + number):
        acquire(frame, positions, ("barrier", key, int(frame.per_thread(token)[positions[0]])))


def _named(number: int | None, fixed: int, expected: int | None) -> Wait:
    """A wait at the barrier that the value ``number`` (or ``fixed``) names, for as many threads as ``expected`` says."""

    def at(frame: Frame) -> Any:
        return np.int64(fixed) if number is None else frame.env[number].astype(np.int64)

    return Wait(
        lambda frame: arrive(frame, at(frame), None if expected is None else frame.env[expected]),
        lambda frame, token: _ready(frame, at(frame), token),
        lambda frame, token: _leave(frame, at(frame), token),
        joins=True,
    )


@waiting("gpu.barrier", "nvvm.barrier0")
def _(op: Op) -> Wait:
    return _named(None, 0, None)


@waiting("nvvm.barrier")
def _(op: Op) -> Wait | None:
    number, threads = op.segments()[:2]
    if not number and not threads:
        return _named(None, 0, None)
    return _named(number[0] if number else None, 0, threads[0] if threads else None)


@meaning("nvvm.barrier.arrive")
def _(op: Op) -> Step:
    number, threads = op.operands if len(op.operands) == 2 else (None, op.operands[0])

    def step(frame: Frame) -> None:
        arrive(frame, np.int64(0) if number is None else frame.env[number].astype(np.int64), frame.env[threads])

    return step


@instruction("bar.arrive", "barrier.arrive")
def _(frame: Frame, bound: Bound) -> None:
    arrive(frame, bound.read(bound.operands[0], np.int64), bound.read(bound.operands[1], np.int32))


# ------------------------------------------------------------------------------------------------------------------ clusters


def _cluster_arrive(frame: Frame) -> None:
    for key, positions in groups(frame, frame.local_block // frame.unit.cluster):
        barrier = _barriers(frame.unit).setdefault(("cluster", key), _Barrier())
        release(frame, positions, ("cluster", key, barrier.generation))
        barrier.arrived += len(positions)
        if barrier.arrived == frame.unit.block_threads * frame.unit.cluster:
            barrier.arrived, barrier.generation = 0, barrier.generation + 1
    generations = frame.unit.state.setdefault("cluster arrivals", np.zeros(frame.unit.count, np.int64))
    generations[frame.threads] += 1


def _cluster_ready(frame: Frame) -> Any:
    waited = frame.unit.state["cluster arrivals"][frame.threads]
    ready = np.zeros(frame.count, bool)
    for key, positions in groups(frame, frame.local_block // frame.unit.cluster):
        ready[positions] = _barriers(frame.unit)["cluster", key].generation >= waited[positions]
    return ready


def _cluster_leave(frame: Frame) -> None:
    waited = frame.unit.state["cluster arrivals"][frame.threads]
    for key, positions in groups(frame, frame.local_block // frame.unit.cluster):
        acquire(frame, positions, ("cluster", key, int(waited[positions[0]]) - 1))


_CLUSTER_WAIT = Wait(
    lambda frame: 0, lambda frame, token: _cluster_ready(frame), lambda frame, token: _cluster_leave(frame), joins=True
)


@meaning("nvvm.cluster.arrive", "nvvm.cluster.arrive.relaxed")
def _(op: Op) -> Step:
    return _cluster_arrive


@waiting("nvvm.cluster.wait")
def _(op: Op) -> Wait:
    return _CLUSTER_WAIT


@instruction("barrier.cluster.arrive")
def _(frame: Frame, bound: Bound) -> None:
    _cluster_arrive(frame)


# ----------------------------------------------------------------------------------------------------------------- mbarriers


@dataclass
class Mbarrier:
    """``phase`` counts the phases that have ended; ``missing`` arrivals and ``bytes`` are what the present one waits for."""

    count: int
    missing: int
    phase: int = 0
    bytes: int = 0

    def check(self, address: int) -> None:
        """End the phase if nothing is missing."""
        if self.missing < 0:
            raise Fault(f"more arrivals at the mbarrier at shared address {address} than the {self.count} it is for")
        if self.missing == 0 and self.bytes == 0:
            self.phase, self.missing = self.phase + 1, self.count


def mbarrier(unit: Unit, address: int) -> Mbarrier:
    """The barrier at a memory address; a Fault if none was initialised there."""
    found: dict[int, Mbarrier] = unit.state.setdefault("mbarriers", {})
    if address not in found:
        raise Fault(f"no mbarrier was initialised {unit.memory.where(address)}")
    return found[address]


def initialise(frame: Frame, pointer: Any, space: int, count: Any) -> None:
    """mbarrier.init."""
    addresses = frame.resolve(pointer, space)
    frame.unit.memory.store(addresses, np.zeros(np.shape(addresses), np.int64), _WORD)
    for address, positions in groups(frame, addresses):
        number = int(frame.per_thread(count)[positions[0]])
        frame.unit.state.setdefault("mbarriers", {})[address] = Mbarrier(number, number)


def arrive_at(frame: Frame, pointer: Any, space: int, *, expect: Any = None, count: Any = 1) -> None:
    """Each thread arrives ``count`` times, after announcing ``expect`` bytes."""
    for address, positions in groups(frame, frame.resolve(pointer, space)):
        barrier = mbarrier(frame.unit, address)
        release(frame, positions, ("mbarrier", address, barrier.phase))
        if expect is not None:
            barrier.bytes += int(frame.per_thread(np.asarray(expect))[positions].astype(np.int64).sum())
        barrier.missing -= int(frame.per_thread(np.asarray(count))[positions].astype(np.int64).sum())
        barrier.check(address)


def expect_bytes(frame: Frame, pointer: Any, space: int, size: Any) -> None:
    """mbarrier.expect_tx: announce bytes without arriving."""
    arrive_at(frame, pointer, space, expect=size, count=0)


def complete_bytes(unit: Unit, address: int, size: int) -> None:
    """Bytes that a barrier waits for have come."""
    barrier = mbarrier(unit, address)
    barrier.bytes -= size
    barrier.check(address)


def _parity_wait(pointer: Any, parity: Any, space: int) -> Wait:
    """``pointer`` and ``parity``: functions of the frame."""

    def ready(frame: Frame, token: Any) -> Any:
        result = np.zeros(frame.count, bool)
        wanted = frame.per_thread(parity(frame)).astype(np.int64)
        for address, positions in groups(frame, frame.resolve(pointer(frame), space)):
            result[positions] = mbarrier(frame.unit, address).phase % 2 != wanted[positions] % 2
        return result

    def leave(frame: Frame, token: Any) -> None:
        for address, positions in groups(frame, frame.resolve(pointer(frame), space)):
            acquire(frame, positions, ("mbarrier", address, mbarrier(frame.unit, address).phase - 1))

    return Wait(lambda frame: 0, ready, leave)


@meaning("nvvm.mbarrier.init", "nvvm.mbarrier.init.shared")
def _(op: Op) -> Step:
    pointer, count = op.operands[:2]
    space = op.operand_kinds[0].space
    return lambda frame: initialise(frame, frame.env[pointer], space, frame.env[count])


@meaning("nvvm.mbarrier.arrive", "nvvm.mbarrier.arrive.shared")
def _(op: Op) -> Step:
    pointer, *count = op.operands
    space = op.operand_kinds[0].space

    def step(frame: Frame) -> None:
        arrive_at(frame, frame.env[pointer], space, count=frame.env[count[0]] if count else 1)
        for number in op.results:
            frame.env[number] = np.int64(0)  # the token of a phase: nothing here waits by tokens

    return step


@meaning("nvvm.mbarrier.arrive.expect_tx", "nvvm.mbarrier.arrive.expect_tx.shared")
def _(op: Op) -> Step:
    pointer, size = op.operands[:2]
    space = op.operand_kinds[0].space

    def step(frame: Frame) -> None:
        arrive_at(frame, frame.env[pointer], space, expect=frame.env[size])
        for number in op.results:
            frame.env[number] = np.int64(0)

    return step


@meaning("nvvm.mbarrier.expect_tx")
def _(op: Op) -> Step:
    pointer, size = op.operands
    space = op.operand_kinds[0].space
    return lambda frame: expect_bytes(frame, frame.env[pointer], space, frame.env[size])


@waiting("nvvm.mbarrier.try_wait.parity", "nvvm.mbarrier.try_wait.parity.shared")
def _(op: Op) -> Wait:
    pointer, parity = op.operands[:2]
    space = op.operand_kinds[0].space
    return _parity_wait(lambda frame: frame.env[pointer], lambda frame: frame.env[parity], space)


@meaning(
    "nvvm.mbarrier.inval",
    "nvvm.fence.mbarrier.init",
    "nvvm.prefetch",
    "nvvm.prefetch.tensormap",
    "nvvm.setmaxregister",
    "nvvm.memory.barrier",
    "nvvm.nanosleep",
    "nvvm.griddepcontrol",
    "llvm.fence",
)
def _(op: Op) -> None:
    """Nothing to do here: barriers are visible at once, and registers are not counted."""


@instruction("mbarrier.init")
def _(frame: Frame, bound: Bound) -> None:
    initialise(frame, bound.address(bound.operands[0]), _shared(bound), bound.read(bound.operands[1], np.int32))


@instruction("mbarrier.arrive")
def _(frame: Frame, bound: Bound) -> None:
    target, pointer, *rest = bound.operands if not bound.operands[0].startswith("[") else ("_", *bound.operands)
    number = bound.read(rest[0], np.int32) if rest else np.int32(1)
    if bound.has("expect_tx"):
        arrive_at(frame, bound.address(pointer), _shared(bound), expect=number)
    else:
        arrive_at(frame, bound.address(pointer), _shared(bound), count=number)
    bound.write(target, np.int64(0))


@instruction("mbarrier.expect_tx")
def _(frame: Frame, bound: Bound) -> None:
    expect_bytes(frame, bound.address(bound.operands[0]), _shared(bound), bound.read(bound.operands[1], np.int32))


def _shared(bound: Bound) -> int:
    return CLUSTER if bound.has("shared::cluster") else bound.space() or SHARED


# ------------------------------------------------------------------------------------------------------ waits in inline PTX

_NAMES = ("bar.sync", "barrier.sync", "barrier.cta.sync", "barrier.cluster.wait", "mbarrier.try_wait", "mbarrier.test_wait")


@waiting("llvm.inline_asm")
def _(op: Op) -> Wait | None:
    """One waiting instruction, alone or in a loop around it."""
    found = [i for i in parse(op.attribute("asm_string")) if i.name.startswith(_NAMES)]
    if not found:
        return None
    each = found[0]
    outputs, inputs, _ = constraints(op)
    registers = dict(zip(inputs, op.operands, strict=True))

    def bound(frame: Frame) -> Bound:
        return Bound(each, {name: frame.env[number] for name, number in registers.items()})

    def read(frame: Frame, position: int) -> Any:
        return bound(frame).read(each.operands[position], np.int32).astype(np.int64)

    if each.name.startswith("barrier.cluster"):
        return _CLUSTER_WAIT
    if each.name.startswith("mbarrier"):
        place = 1 if not each.operands[0].startswith("[") else 0
        wait = _parity_wait(
            lambda frame: bound(frame).address(each.operands[place]), lambda frame: read(frame, place + 1), SHARED
        )
        return _with_success(wait, op.results[0], op.kind.dtype) if outputs else wait
    counted = len(each.operands) > 1
    return Wait(
        lambda frame: arrive(frame, read(frame, 0), read(frame, 1) if counted else None),
        lambda frame, token: _ready(frame, read(frame, 0), token),
        lambda frame, token: _leave(frame, read(frame, 0), token),
        joins=True,
    )


def _with_success(wait: Wait, result: int, dtype: Any) -> Wait:
    """The instruction says whether the phase is over: here it waits until it is."""

    def leave(frame: Frame, token: Any) -> None:
        wait.leave(frame, token)
        frame.env[result] = dtype.type(1)

    return Wait(wait.enter, wait.ready, leave)
