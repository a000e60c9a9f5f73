"""Accumulators of a matrix product from memory into registers: what a loop reads and writes back at one place of a buffer is
carried in a loop variable instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes.regions import clone_with
from mlirstack.pipeline.step import PythonPass

_READ, _WRITE = "vector.transfer_read", "vector.transfer_write"


@dataclass(frozen=True)
class HoistAccumulators(PythonPass):
    """Before: a loop reads vectors of a buffer, adds to them and writes them back, at places that do not depend on the
    iteration.  After: it reads them before the loop, carries them, and writes them after it.

    A loop is left alone where the buffer is used in it in any other way.
    """

    name = "mlirstack-hoist-accumulators"

    def apply(self, module: Any) -> None:
        for loop in [op for op in walk(module) if op.name == "scf.for"]:
            for buffer in _written_buffers(loop):
                places = _places(loop, buffer)
                if places:
                    loop = _carry(loop, buffer, places)  # noqa: PLW2901  (the loop is replaced)


def _body(loop: Any) -> list[Any]:
    return [op.operation for op in loop.regions[0].blocks[0].operations]


def _written_buffers(loop: Any) -> list[Any]:
    """Buffers from outside of the loop that transfers at its top level write."""
    inside = {result for op in _body(loop) for result in op.results}
    return list(dict.fromkeys(op.operands[1] for op in _body(loop) if op.name == _WRITE and op.operands[1] not in inside))


def _indices(op: Any) -> tuple[Any, ...]:
    """The place of a transfer: its indices."""
    return tuple(op.operands[1:-1]) if op.name == _READ else tuple(op.operands[2:])


def _places(loop: Any, buffer: Any) -> list[tuple[Any, ...]]:
    """The places that the loop reads first and writes later; none where anything else happens to the buffer."""
    body = _body(loop)
    inside = {result for op in body for result in op.results} | set(loop.regions[0].blocks[0].arguments)
    read: dict[tuple[Any, ...], None] = {}
    written: set[tuple[Any, ...]] = set()
    for op in body:
        nested = [o for o in walk(op) if buffer in list(o.operands)] if len(op.regions) else []
        if nested or (buffer in list(op.operands) and op.name not in (_READ, _WRITE)):
            return []
        if buffer not in list(op.operands):
            continue
        place = _indices(op)
        if any(index in inside for index in place):
            return []
        if op.name == _READ and place not in read:
            read[place] = None
        elif op.name == _WRITE:
            written.add(place)
    return list(read) if set(read) == written else []


def _written_just_before(loop: Any, buffer: Any, place: tuple[Any, ...]) -> Any | None:
    """The vector that a transfer before the loop leaves at ``place``, where nothing reads it in between.

    That transfer is erased: the loop's result will be written there.
    """
    siblings = [op.operation for op in loop.block.operations]
    for op in reversed(siblings[: siblings.index(loop)]):
        if op.name == _WRITE and op.operands[1] == buffer and _indices(op) == place:
            value = op.operands[0]
            op.erase()
            return value
        if buffer in list(op.operands) and op.name != _WRITE:
            return None
    return None


def _carry(loop: Any, buffer: Any, places: Sequence[tuple[Any, ...]]) -> Any:
    """The loop with one more loop variable for each place; returns the new loop."""
    scf = dialect("scf")
    body, block = _body(loop), loop.regions[0].blocks[0]
    reads = {
        place: next(op for op in body if op.name == _READ and op.operands[0] == buffer and _indices(op) == place)
        for place in places
    }
    writes = {
        place: [op for op in body if op.name == _WRITE and op.operands[1] == buffer and _indices(op) == place]
        for place in places
    }
    with ir.InsertionPoint(loop), loop.location:
        before = [_written_just_before(loop, buffer, place) or clone_with(reads[place], {}).results[0] for place in places]
        new = scf.ForOp(*list(loop.operands)[:3], [*list(loop.operands)[3:], *before])
    mapping: dict[Any, Any] = dict(zip(block.arguments, new.regions[0].blocks[0].arguments, strict=False))
    now = dict(zip(places, list(new.regions[0].blocks[0].arguments)[len(block.arguments) :], strict=True))
    with ir.InsertionPoint(new.regions[0].blocks[0]), loop.location:
        for op in body[:-1]:
            if buffer in list(op.operands):
                if op.name == _READ:
                    mapping[op.results[0]] = now[_indices(op)]
                else:
                    now[_indices(op)] = mapping.get(op.operands[0], op.operands[0])
                continue
            copy = clone_with(op, mapping)
            mapping.update(zip(op.results, copy.results, strict=True))
        carried = [mapping.get(value, value) for value in body[-1].operands]
        scf.YieldOp([*carried, *(now[place] for place in places)])
    with ir.InsertionPoint(loop), loop.location:
        for place, value in zip(places, list(new.results)[len(loop.results) :], strict=True):
            clone_with(writes[place][-1], {writes[place][-1].operands[0]: value})
    for old, result in zip(loop.results, new.results, strict=False):
        old.replace_all_uses_with(result)
    loop.erase()
    return new.operation
