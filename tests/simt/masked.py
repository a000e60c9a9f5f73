"""Meanings of vector accesses of which some elements are left out: masks, and transfers over the end."""

from __future__ import annotations

import numpy as np

from .accesses import load, store
from .build import Op, Step, meaning
from .faults import Unsupported
from .frames import Frame
from .kinds import Kind
from .memrefs import View


@meaning("vector.maskedload")
def _(op: Op) -> Step:
    source, *indices, mask, passed = op.operands
    kind, vector = op.operand_kinds[0], op.kind

    def step(frame: Frame) -> None:
        env = frame.env
        element = Kind(vector.dtype)
        enabled = frame.per_thread(env[mask], 1)
        address = frame.per_thread(View(env[source]).address([env[i] for i in indices], element.bytes))
        result = np.array(np.broadcast_to(env[passed], enabled.shape))
        for position in range(vector.count):
            threads = np.flatnonzero(enabled[:, position])
            if threads.size:
                part = frame.child(threads)
                result[threads, position] = load(part, address[threads] + position * element.bytes, kind.space, element)
        env[op.results[0]] = result

    return step


@meaning("vector.maskedstore")
def _(op: Op) -> Step:
    target, *indices, mask, value = op.operands
    kind, vector = op.operand_kinds[0], op.operand_kinds[-1]

    def step(frame: Frame) -> None:
        env = frame.env
        element = Kind(vector.dtype)
        enabled = frame.per_thread(env[mask], 1)
        values = frame.per_thread(env[value], 1)
        address = frame.per_thread(View(env[target]).address([env[i] for i in indices], element.bytes))
        for position in range(vector.count):
            threads = np.flatnonzero(enabled[:, position])
            if threads.size:
                place = address[threads] + position * element.bytes
                store(frame.child(threads), place, kind.space, values[threads, position], element)

    return step


@meaning("vector.transfer_read")
def _(op: Op) -> Step:
    (source,), indices, (padding,), mask = op.segments()
    kind, vector = op.operand_kinds[0], op.kind
    permutation = str(op.attribute("permutation_map"))
    rank = len(indices)
    if mask or len(vector.shape) != 1 or permutation != _minor_identity(rank):
        raise Unsupported("a vector.transfer_read with a mask, a permutation or more than one dimension")

    def step(frame: Frame) -> None:
        env = frame.env
        view, element = View(env[source]), Kind(vector.dtype)
        where = [frame.per_thread(env[i]) for i in indices]
        result = np.array(np.broadcast_to(np.asarray(env[padding])[..., None], (frame.count, vector.count)))
        for position in range(vector.count):
            last = where[-1] + position
            threads = np.flatnonzero(last < view.sizes[-1])
            if threads.size:
                part = frame.child(threads)
                narrowed = View(tuple(v[threads] if v.ndim else v for v in env[source]))
                address = narrowed.address([w[threads] for w in (*where[:-1], last)], element.bytes)
                result[threads, position] = load(part, address, kind.space, element)
        env[op.results[0]] = result

    return step


@meaning("vector.transfer_write")
def _(op: Op) -> Step:
    (value,), (target,), indices, mask = op.segments()
    vector, kind = op.operand_kinds[:2]
    if mask or len(vector.shape) != 1 or str(op.attribute("permutation_map")) != _minor_identity(len(indices)):
        raise Unsupported("a vector.transfer_write with a mask, a permutation or more than one dimension")

    def step(frame: Frame) -> None:
        env = frame.env
        view, element = View(env[target]), Kind(vector.dtype)
        where = [frame.per_thread(env[i]) for i in indices]
        values = frame.per_thread(env[value], 1)
        for position in range(vector.count):
            last = where[-1] + position
            threads = np.flatnonzero(last < view.sizes[-1])
            if threads.size:
                narrowed = View(tuple(v[threads] if v.ndim else v for v in env[target]))
                address = narrowed.address([w[threads] for w in (*where[:-1], last)], element.bytes)
                store(frame.child(threads), address, kind.space, values[threads, position], element)

    return step


def _minor_identity(rank: int) -> str:
    dimensions = ", ".join(f"d{i}" for i in range(rank))
    return f"({dimensions}) -> (d{rank - 1})"
