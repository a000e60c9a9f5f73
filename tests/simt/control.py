"""Meanings of structured control flow: threads that part ways run one branch after the other, in frames of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from .build import Body, Op, Step, meaning
from .faults import Fault
from .frames import Frame, put, spread, take
from .kinds import unsigned, zero


def _set(frame: Frame, numbers: list[int], values: list[Any]) -> None:
    for number, value in zip(numbers, values, strict=True):
        frame.env[number] = value


def _merge(frame: Frame, op: Op, parts: list[tuple[Any, list[Any]]]) -> None:
    """Set the results of ``op`` from the branches: positions of threads, and their values."""
    for index, (number, kind) in enumerate(zip(op.results, op.result_kinds, strict=True)):
        whole = spread(zero(kind), kind.rank, frame.count)
        for positions, values in parts:
            put(whole, positions, values[index])
        frame.env[number] = whole


@meaning("scf.if")
def _(op: Op) -> Step:
    (condition,) = op.operands
    then = op.region(0)
    otherwise = op.region(1) if len(op.operation.regions[1].blocks) else Body([], [], [])

    def step(frame: Frame) -> None:
        taken = frame.env[condition]
        if taken.ndim == 0 or taken.all() or not taken.any():
            body = then if taken.any() else otherwise
            _set(frame, op.results, body.run(frame))
            return
        parts = []
        for body, positions in ((then, np.flatnonzero(taken)), (otherwise, np.flatnonzero(~taken))):
            if body.steps or op.results:
                parts.append((positions, body.run(frame.child(positions))))
        if op.results:
            _merge(frame, op, parts)

    return step


@meaning("scf.index_switch")
def _(op: Op) -> Step:
    (selector,) = op.operands
    cases = op.attribute("cases")
    bodies = [op.region(i) for i in range(len(cases) + 1)]  # the default comes first

    def step(frame: Frame) -> None:
        value = frame.env[selector]
        if value.ndim == 0:
            body = bodies[cases.index(int(value)) + 1] if int(value) in cases else bodies[0]
            _set(frame, op.results, body.run(frame))
            return
        choices = [(value == case, body) for case, body in zip(cases, bodies[1:], strict=True)]
        choices.append((~np.isin(value, cases), bodies[0]))
        parts = [(np.flatnonzero(m), body.run(frame.child(np.flatnonzero(m)))) for m, body in choices if m.any()]
        if op.results:
            _merge(frame, op, parts)

    return step


class _Finished:
    """Results of the threads that have left a loop, while others still run it."""

    def __init__(self, frame: Frame, ranks: list[Any]) -> None:
        self.frame, self.ranks = frame, ranks
        self.active = np.arange(frame.count)
        self.whole: list[Any] | None = None

    def leave(self, going: Any, carried: list[Any], running: list[Any], running_ranks: list[Any]) -> list[Any] | None:
        """Threads where ``going`` is false leave with ``carried``; returns ``running`` of the others, None if all leave."""
        if self.whole is None:
            self.whole = [spread(value, rank, len(going)) for value, rank in zip(carried, self.ranks, strict=True)]
        else:
            out = np.flatnonzero(~going)
            for target, value, rank in zip(self.whole, carried, self.ranks, strict=True):
                put(target, self.active[out], take(value, out, rank))
        if not going.any():
            return None
        stay = np.flatnonzero(going)
        self.active = self.active[stay]
        self.frame = self.frame.child(stay)
        return [take(value, stay, rank) for value, rank in zip(running, running_ranks, strict=True)]


@meaning("scf.for")
def _(op: Op) -> Step:
    low, high, stride, *initial = op.operands
    body = op.region(0)
    dtype = op.operand_kinds[0].dtype
    bits = unsigned(dtype) if "unsignedCmp" in op.operation.attributes else dtype
    ranks = [kind.rank for kind in op.result_kinds]

    def uniform(frame: Frame, bounds: list[Any], carried: list[Any]) -> list[Any]:
        for index in range(*[int(bound.view(bits)) for bound in bounds]):
            carried = body.run(frame, [dtype.type(index), *carried])
        return carried

    def diverging(frame: Frame, bounds: list[Any], carried: list[Any]) -> list[Any]:
        index, end, stride = (frame.per_thread(bound) for bound in bounds)
        finished = _Finished(frame, ranks)
        while True:
            going = index.view(bits) < end.view(bits)
            if not going.all():
                running = finished.leave(going, carried, [index, end, stride, *carried], [0, 0, 0, *ranks])
                if running is None:
                    return finished.whole or []
                index, end, stride, *carried = running
            carried = body.run(finished.frame, [index, *carried])
            index = index + stride

    def step(frame: Frame) -> None:
        env = frame.env
        bounds, carried = [env[low], env[high], env[stride]], [env[number] for number in initial]
        if not np.all(bounds[2] > 0):
            raise Fault("a loop whose step is not positive", np.flatnonzero(np.atleast_1d(bounds[2] <= 0)))
        run = uniform if all(bound.ndim == 0 for bound in bounds) else diverging
        _set(frame, op.results, run(frame, bounds, carried))

    return step


@meaning("scf.while")
def _(op: Op) -> Step:
    before, after = op.region(0), op.region(1)
    ranks = [kind.rank for kind in op.result_kinds]
    limit = op.builder.resources.options.iterations

    def step(frame: Frame) -> None:
        carried = [frame.env[number] for number in op.operands]
        finished = _Finished(frame, ranks)
        for _ in range(limit):
            condition, *forwarded = before.run(finished.frame, carried)
            if condition.ndim == 0:
                if not condition:
                    condition = np.zeros(finished.frame.count, bool)
                elif finished.whole is None:
                    carried = after.run(finished.frame, forwarded)
                    continue
                else:
                    condition = np.ones(finished.frame.count, bool)
            if finished.whole is None and not condition.any():
                _set(frame, op.results, forwarded)
                return
            if not condition.all():
                running = finished.leave(condition, forwarded, forwarded, ranks)
                if running is None:
                    _set(frame, op.results, finished.whole or [])
                    return
                forwarded = running
            carried = after.run(finished.frame, forwarded)
        raise Fault(f"a loop did not end after {limit} iterations")

    return step


@meaning("scf.execute_region")
def _(op: Op) -> Step:
    body = op.region(0)
    return lambda frame: _set(frame, op.results, body.run(frame))


@meaning("cf.assert")
def _(op: Op) -> Step:
    (condition,) = op.operands
    message = op.attribute("msg")

    def step(frame: Frame) -> None:
        holds = frame.env[condition]
        if not holds.all():
            raise Fault(f"assertion failed: {message}", np.flatnonzero(~np.atleast_1d(holds)))

    return step
