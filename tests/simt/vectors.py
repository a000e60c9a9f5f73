"""Meanings of vector ops and of the aggregates of the LLVM dialect."""

from __future__ import annotations

from typing import Any

import numpy as np

from .build import Op, Step, apply, meaning
from .faults import Fault, Unsupported
from .floats import fused
from .frames import InFlight
from .kinds import DYNAMIC, Kind


def _elements(value: Any, kind: Kind) -> Any:
    """``value`` with the axes of its elements last, uniform or not; for indexing with ``[..., i]``."""
    return np.asarray(value).reshape(*np.shape(value)[: np.ndim(value) - len(kind.shape)], *kind.shape)


def broadcast(value: Any, source: Kind, target: Kind) -> Any:
    """A number or vector repeated to the shape of ``target``."""
    missing = len(target.shape) - len(source.shape)
    leading = value.shape[: value.ndim - len(source.shape)]
    shaped = value.reshape(*leading, *(1,) * missing, *source.shape)
    return np.broadcast_to(shaped, (*leading, *target.shape))


@meaning("vector.broadcast", "vector.splat")
def _(op: Op) -> Step:
    (source,), target = op.operand_kinds, op.kind
    return apply(op, lambda value: broadcast(value, source, target))


@meaning("vector.from_elements")
def _(op: Op) -> Step:
    shape = op.kind.shape

    def compute(*values: Any) -> Any:
        stacked = np.stack(np.broadcast_arrays(*values), axis=-1)
        return stacked.reshape(*stacked.shape[:-1], *shape)

    return apply(op, compute)


@meaning("vector.to_elements")
def _(op: Op) -> Step:
    (source,), (kind,) = op.operands, op.operand_kinds

    def step(frame: Any) -> None:
        value = frame.env[source]
        flat = value.reshape(*value.shape[: value.ndim - len(kind.shape)], kind.count)
        for position, number in enumerate(op.results):
            frame.env[number] = flat[..., position]

    return step


def _position(op: Op, count: int) -> list[int | None]:
    """Static positions; None where an operand gives it.  ``count``: operands before the positions."""
    static = op.attribute("static_position", [])
    return [None if p == DYNAMIC else p for p in static]


@meaning("vector.extract")
def _(op: Op) -> Step:
    positions = _position(op, 1)
    vector, *dynamic = op.operands
    kind = op.operand_kinds[0]

    def step(frame: Any) -> None:
        value, given = frame.env[vector], iter(dynamic)
        indices = [frame.env[next(given)] if p is None else np.int64(p) for p in positions]
        frame.env[op.results[0]] = _pick(value, kind, indices)

    return step


def _pick(value: Any, kind: Kind, indices: list[Any]) -> Any:
    if all(index.ndim == 0 for index in indices):
        lead = (slice(None),) * (value.ndim - len(kind.shape))
        return value[(*lead, *[int(i) for i in indices])]
    count = max(index.size for index in indices if index.ndim)
    if value.ndim == len(kind.shape):
        value = np.broadcast_to(value, (count, *value.shape))
    return value[(np.arange(count), *indices)]


@meaning("vector.insert")
def _(op: Op) -> Step:
    positions = _position(op, 2)
    source, vector, *dynamic = op.operands
    source_kind, kind = op.operand_kinds[:2]

    def step(frame: Any) -> None:
        value, given = frame.env[source], iter(dynamic)
        indices = [frame.env[next(given)] if p is None else np.int64(p) for p in positions]
        frame.env[op.results[0]] = _insert(frame, frame.env[vector], kind, value, source_kind, indices)

    return step


def _insert(frame: Any, vector: Any, kind: Kind, value: Any, value_kind: Kind, indices: list[Any]) -> Any:
    by_thread = any(index.ndim for index in indices)
    if value.ndim > len(value_kind.shape) or by_thread:
        vector = frame.per_thread(vector, len(kind.shape))
    result = np.array(vector)
    if by_thread:
        result[(np.arange(len(result)), *indices)] = value
        return result
    lead = (slice(None),) * (result.ndim - len(kind.shape))
    result[(*lead, *[int(i) for i in indices])] = value
    return result


@meaning("llvm.extractelement", "vector.extractelement")
def _(op: Op) -> Step:
    kind = op.operand_kinds[0]
    return apply(op, lambda vector, index: _pick(vector, kind, [index]))


@meaning("llvm.insertelement")
def _(op: Op) -> Step:
    vector, value, index = op.operands
    kind, value_kind = op.operand_kinds[:2]

    def step(frame: Any) -> None:
        env = frame.env
        env[op.results[0]] = _insert(frame, env[vector], kind, env[value], value_kind, [env[index]])

    return step


@meaning("vector.extract_strided_slice")
def _(op: Op) -> Step:
    kind = op.operand_kinds[0]
    slices = [slice(o, o + s) for o, s in zip(op.attribute("offsets"), op.attribute("sizes"), strict=True)]
    rest = (slice(None),) * (len(kind.shape) - len(slices))
    return apply(op, lambda value: value[(..., *slices, *rest)])


@meaning("vector.insert_strided_slice")
def _(op: Op) -> Step:
    source, target = op.operand_kinds
    offsets = op.attribute("offsets")
    skipped = len(target.shape) - len(source.shape)
    where = [o if i < skipped else slice(o, o + source.shape[i - skipped]) for i, o in enumerate(offsets)]

    def compute(value: Any, vector: Any) -> Any:
        count = next((len(v) for v, k in ((value, source), (vector, target)) if v.ndim > len(k.shape)), None)
        result = np.array(vector if count is None or vector.ndim > len(target.shape) else np.stack([vector] * count))
        result[(..., *where)] = value
        return result

    return apply(op, compute)


@meaning("vector.shape_cast")
def _(op: Op) -> Step:
    (source,), target = op.operand_kinds, op.kind
    return apply(op, lambda value: value.reshape(*value.shape[: value.ndim - len(source.shape)], *target.shape))


@meaning("vector.shuffle", "llvm.shufflevector")
def _(op: Op) -> Step:
    mask = op.attribute("mask")

    def compute(a: Any, b: Any) -> Any:
        rank = max(a.ndim, b.ndim)
        count = max(len(v) for v in (a, b)) if rank > 1 else None
        both = [v if v.ndim == rank else np.broadcast_to(v, (count, *v.shape)) for v in (a, b)]
        return np.concatenate(both, axis=-1)[..., np.maximum(mask, 0)]

    return apply(op, compute)


@meaning("vector.transpose")
def _(op: Op) -> Step:
    permutation = op.attribute("permutation")
    rank = len(permutation)
    return apply(op, lambda value: np.moveaxis(value, [p - rank for p in permutation], range(-rank, 0)))


@meaning("vector.interleave")
def _(op: Op) -> Step:
    def compute(a: Any, b: Any) -> Any:
        pairs = np.stack(np.broadcast_arrays(a, b), axis=-1)
        return pairs.reshape(*pairs.shape[:-2], -1)

    return apply(op, compute)


@meaning("vector.step")
def _(op: Op) -> Step:
    value, (result,) = np.arange(op.kind.count), op.results

    def step(frame: Any) -> None:
        frame.env[result] = value

    return step


_COMBINE = {
    "add": np.add,
    "mul": np.multiply,
    "minui": np.minimum,
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def combiner(text: str) -> Any:
    """The numpy function of a combining kind such as ``#vector.kind<add>`` or ``#gpu<all_reduce_op maxnumf>``."""
    name = text.rstrip(">").replace("<", " ").split()[-1]
    if name not in _COMBINE:
        raise Unsupported(f"combining kind {text}")
    return _COMBINE[name]


@meaning("vector.reduction")
def _(op: Op) -> Step:
    combine = combiner(op.text("kind"))

    def compute(value: Any, *initial: Any) -> Any:
        total = value[..., 0]
        for position in range(1, value.shape[-1]):  # in order, as the op says without reassociation
            total = combine(total, value[..., position])
        return combine(initial[0], total) if initial else total

    return apply(op, compute)


@meaning("vector.outerproduct")
def _(op: Op) -> Step:
    def compute(a: Any, b: Any, *accumulator: Any) -> Any:
        left, right = a[..., :, None], b[..., None, :]
        return fused(left, right, accumulator[0]) if accumulator else left * right

    return apply(op, compute)


@meaning("vector.create_mask")
def _(op: Op) -> Step:
    (size,) = op.kind.shape
    return apply(op, lambda count: np.arange(size) < count[..., None])


@meaning("llvm.extractvalue")
def _(op: Op) -> Step:
    positions = op.attribute("position")
    checked = not _only_names_registers(op)

    def compute(value: Any) -> Any:
        if checked and isinstance(value, InFlight) and value.flight.pending:
            raise Fault("registers of a wgmma are read before its group has been waited for")
        for position in positions:
            value = value[position]
        return value

    return apply(op, compute)


def _only_names_registers(op: Op) -> bool:
    """Does the value go to inline PTX only that reads nothing: an empty text, or another wgmma instruction?"""
    users = [use.owner for use in op.operation.results[0].uses]
    texts = [u.attributes["asm_string"].value if u.name == "llvm.inline_asm" else "read" for u in users]
    return all(not text.strip() or "wgmma" in text for text in texts)


@meaning("llvm.insertvalue")
def _(op: Op) -> Step:
    positions = op.attribute("position")

    def insert(container: Any, value: Any, path: list[int]) -> Any:
        if not path:
            return value
        members = list(container)
        members[path[0]] = insert(members[path[0]], value, path[1:])
        return tuple(members)

    return apply(op, lambda container, value: insert(container, value, positions))
