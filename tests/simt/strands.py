"""Strands of threads, executed in turns until all have ended.

A strand is a frame and its place in the :class:`Code` of a kernel.  It splits where whole warps part ways, and joins others
at barriers; lanes of one warp that part ways come together again behind the branch.  When no strand can go on, asynchronous
copies make progress, the latest first; when there is none, the kernel is deadlocked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .code import Code, Instruction
from .faults import Deadlock, Fault, Unsupported, describe
from .frames import WARP, Frame, Values, put, spread, take


@dataclass
class Join:
    """Lanes of warps that parted ways: ``frame`` holds all of them, ``open`` strands are still in the branches."""

    frame: Frame
    place: int
    results: list[int]
    outer: Join | None
    open: int = 0
    parts: list[tuple[Any, list[Any]]] = field(default_factory=list)


@dataclass(eq=False)
class Strand:
    """Threads at the same place of the code."""

    frame: Frame
    place: int
    join: Join | None = None
    entered: bool = False  # has it arrived at the wait it stands at?


class Scheduler:
    """Runs the strands of a unit to their end."""

    def __init__(self, code: Code, unit: Any, progress: Callable[[], bool]) -> None:
        self.code, self.unit, self.progress = code.instructions, unit, progress
        self.strands: list[Strand] = []
        self.ended: list[Frame] = []

    def run(self, frames: Sequence[Frame]) -> None:
        """Execute for all ``frames``; raises Deadlock where that cannot be."""
        self.strands = [Strand(frame, 0) for frame in frames]
        while self.strands:
            moved = False
            for strand in list(self.strands):
                if strand in self.strands:
                    moved |= self._advance(strand)
            if not moved and not self.progress() and not self._split_waiting():
                raise self._deadlock()

    # -------------------------------------------------------------------------------------------------------- one strand

    def _advance(self, strand: Strand) -> bool:
        """Run until it waits, ends or splits; did anything happen?"""
        moved = False
        while strand in self.strands:
            if strand.join is not None and strand.place == strand.join.place:
                self._arrive(strand, strand.join)
                return True
            if strand.place == len(self.code):
                self._end(strand)
                return True
            instruction = self.code[strand.place]
            try:
                going = getattr(self, f"_{instruction.kind}")(strand, instruction)
            except Fault as fault:
                fault.locate(instruction.operation, strand.frame.names(fault.threads))
                raise
            if not going:
                return moved
            moved = True
        return True

    def _end(self, strand: Strand) -> None:
        self.strands.remove(strand)
        self.ended.append(strand.frame)

    def _step(self, strand: Strand, instruction: Instruction) -> bool:
        assert instruction.step is not None
        instruction.step(strand.frame)
        strand.place += 1
        return True

    def _move(self, strand: Strand, instruction: Instruction) -> bool:
        _move(strand.frame, instruction)
        strand.place += 1
        return True

    def _jump(self, strand: Strand, instruction: Instruction) -> bool:
        strand.place = instruction.target
        return True

    def _next(self, strand: Strand, instruction: Instruction) -> bool:
        env = strand.frame.env
        index, _, stride = instruction.bounds
        following = env[index] + env[stride]
        _move(strand.frame, instruction)
        env[index] = following
        strand.place = instruction.target
        return True

    def _branch(self, strand: Strand, instruction: Instruction) -> bool:
        condition = strand.frame.env[instruction.condition]
        then, otherwise = strand.place + 1, instruction.target
        if condition.ndim == 0 or condition.all() or not condition.any():
            strand.place = then if condition.any() else otherwise
            return True
        mixed, true, false = _by_warps(strand.frame, condition)
        for threads, place in ((true, then), (false, otherwise)):
            if threads.size:
                self._fork(strand, threads, place)
        if mixed.size:
            whole = strand.frame if mixed.size == strand.frame.count else strand.frame.child(mixed)
            inside = take(condition, mixed, 0)
            join = Join(whole, instruction.join, instruction.moves[0], strand.join, 2)
            if strand.join is not None:
                strand.join.open += 1
            for part, place in ((inside, then), (~inside, otherwise)):
                self.strands.append(Strand(whole.child(np.flatnonzero(part)), place, join))
        self._drop(strand)
        return True

    def _test(self, strand: Strand, instruction: Instruction) -> bool:
        env = strand.frame.env
        index, end, _ = instruction.bounds
        going = env[index].view(instruction.dtype) < env[end].view(instruction.dtype)
        if going.ndim == 0 or going.all() or not going.any():
            strand.place = strand.place + 1 if going.any() else instruction.target
            return True
        mixed, true, false = _by_warps(strand.frame, going)
        if mixed.size:
            raise Unsupported("lanes of a warp leave a loop at different times, and something waits inside of it")
        self._fork(strand, true, strand.place + 1)
        self._fork(strand, false, instruction.target)
        self._drop(strand)
        return True

    def _fork(self, strand: Strand, threads: Any, place: int) -> Strand:
        """A strand of some of the threads of ``strand``."""
        part = Strand(strand.frame.child(threads), place, strand.join, strand.entered)
        if strand.join is not None:
            strand.join.open += 1
        self.strands.append(part)
        return part

    def _drop(self, strand: Strand) -> None:
        self.strands.remove(strand)
        if strand.join is not None:
            strand.join.open -= 1

    def _arrive(self, strand: Strand, join: Join) -> None:
        """A strand has reached the end of a branch that lanes of a warp took apart."""
        self.strands.remove(strand)
        join.open -= 1
        positions = np.searchsorted(join.frame.threads, strand.frame.threads)
        join.parts.append((positions, [strand.frame.env[number] for number in join.results]))
        if join.open == 0:
            ranks = join.frame.env.ranks
            for index, number in enumerate(join.results):
                first = join.parts[0][1][index]
                whole = _blank(first, ranks[number], join.frame.count)
                for where, values in join.parts:
                    put(whole, where, values[index])
                join.frame.env[number] = whole
            self.strands.append(Strand(join.frame, join.place, join.outer))

    # ------------------------------------------------------------------------------------------------------------- waiting

    def _wait(self, strand: Strand, instruction: Instruction) -> bool:
        wait = instruction.wait
        assert wait is not None
        if not strand.entered:
            strand.frame.env[instruction.token] = np.asarray(wait.enter(strand.frame), np.int64)[()]
            strand.entered = True
        others = [s for s in self.strands if s.place == strand.place and s.join is strand.join and s.entered]
        if not _is_ready(strand, instruction):
            return wait.gathers and self._join(others)
        if wait.joins and self._join([s for s in others if _is_ready(s, instruction)]):
            return True
        wait.leave(strand.frame, strand.frame.env[instruction.token])
        strand.entered = False
        strand.place += 1
        return True

    def _join(self, same: list[Strand]) -> bool:
        """Make one strand of strands at one place; False if there is only one."""
        if len(same) < 2:
            return False
        for other in same:
            self.strands.remove(other)
        join = same[0].join
        if join is not None:
            join.open -= len(same) - 1
        self.strands.append(Strand(_together([s.frame for s in same]), same[0].place, join, True))
        return True

    def _split_waiting(self) -> bool:
        """Let the warps of a strand go on that may, where others of it may not."""
        for strand in list(self.strands):
            instruction = self.code[strand.place]
            if instruction.wait is None:
                continue
            ready = instruction.wait.ready(strand.frame, strand.frame.env[instruction.token])
            ready = strand.frame.per_thread(np.asarray(ready))
            if not ready.any():
                continue
            mixed, true, false = _by_warps(strand.frame, ready)
            self._fork(strand, true if true.size else np.flatnonzero(ready), strand.place)
            rest = np.concatenate([mixed, false]) if true.size else np.flatnonzero(~ready)
            if rest.size:
                self._fork(strand, np.sort(rest), strand.place)
            self._drop(strand)
            return True
        return False

    def _deadlock(self) -> Deadlock:
        lines = []
        for strand in self.strands:
            names = strand.frame.names(None)
            lines.append(f"{', '.join(names)} at {describe(self.code[strand.place].operation)}")
        return Deadlock("no thread can go on:\n    " + "\n    ".join(lines))


def _is_ready(strand: Strand, instruction: Instruction) -> bool:
    assert instruction.wait is not None
    return bool(np.all(instruction.wait.ready(strand.frame, strand.frame.env[instruction.token])))


def _move(frame: Frame, instruction: Instruction) -> None:
    targets, sources = instruction.moves
    values = [frame.env[number] for number in sources]
    for number, value in zip(targets, values, strict=True):
        frame.env[number] = value


def _by_warps(frame: Frame, condition: Any) -> tuple[Any, Any, Any]:
    """Positions of threads of warps where the condition differs, holds, does not hold."""
    warps = frame.threads // WARP if frame.unit.block_threads % WARP == 0 else frame.threads
    _, inverse = np.unique(warps, return_inverse=True)
    count = np.bincount(inverse)
    holds = np.bincount(inverse, weights=condition)
    every, none = (holds == count)[inverse], (holds == 0)[inverse]
    return np.flatnonzero(~every & ~none), np.flatnonzero(every), np.flatnonzero(none)


def _blank(example: Any, rank: Any, count: int) -> Any:
    """Room for a value of each of ``count`` threads, of the type of ``example``."""
    if isinstance(rank, tuple):
        return tuple(_blank(member, r, count) for member, r in zip(example, rank, strict=True))
    shape = example.shape[example.ndim - rank :]
    return np.zeros((count, *shape), example.dtype)


def _together(frames: list[Frame]) -> Frame:
    """One frame of the threads of all; values that are the same for all stay so."""
    threads = np.concatenate([frame.threads for frame in frames])
    order = np.argsort(threads, kind="stable")
    merged = Frame(frames[0].unit, Values(frames[0].env.ranks), threads[order])
    numbers: set[int] = set()
    for frame in frames:
        env: Values | None = frame.env
        while env is not None:
            numbers |= set(env)
            env = env.parent
    for number in numbers:
        try:
            values = [frame.env[number] for frame in frames]
        except KeyError:
            continue  # defined in a branch that not all of them took: nothing uses it from here on
        merged.env[number] = _concatenate(values, frames[0].env.ranks[number], [f.count for f in frames], order)
    return merged


def _concatenate(values: list[Any], rank: Any, counts: list[int], order: Any) -> Any:
    if isinstance(rank, tuple):
        return tuple(_concatenate([value[i] for value in values], member, counts, order) for i, member in enumerate(rank))
    if all(value.ndim == rank for value in values) and all(np.array_equal(values[0], v) for v in values[1:]):
        return values[0]
    return np.concatenate([spread(v, rank, c) for v, c in zip(values, counts, strict=True)])[order]
