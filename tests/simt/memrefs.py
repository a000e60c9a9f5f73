"""Meanings of memref ops: views, loads and stores, atomics.  Indices are checked against sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accesses import atomic, load, natural_alignment, private_buffer, store
from .build import Op, Step, apply, meaning
from .faults import OutOfBounds, Unsupported
from .frames import Frame
from .kinds import DYNAMIC, SHARED, Kind


class View:
    """A memref value taken apart."""

    def __init__(self, value: tuple[Any, ...]) -> None:
        rank = (len(value) - 2) // 2
        self.base, self.offset = value[0], value[1]
        self.sizes, self.strides = value[2 : 2 + rank], value[2 + rank :]

    def address(self, indices: list[Any], element: int) -> Any:
        """Address of an element of ``element`` bytes; OutOfBounds where an index is not below its size."""
        place = self.offset
        for axis, (index, size, stride) in enumerate(zip(indices, self.sizes, self.strides, strict=True)):
            outside = (index < 0) | (index >= size)
            if outside.any():
                threads = np.flatnonzero(np.atleast_1d(outside))
                bad, limit = (np.broadcast_to(v, outside.shape or (1,))[threads[0]] for v in (index, size))
                raise OutOfBounds(f"index {bad} of axis {axis}, whose size is {limit}", threads)
            place = place + index * stride
        return self.base + place * element


def memref(base: Any, offset: Any, sizes: Any, strides: Any) -> tuple[Any, ...]:
    """A memref value from its parts."""
    return (base, offset, *sizes, *strides)


def identity(base: Any, kind: Kind) -> tuple[Any, ...]:
    """A memref over memory at ``base`` with the static layout of its type."""
    sizes, strides, offset = kind.layout or ((), (), 0)
    numbers = [np.int64(n) for n in (*sizes, *strides)]
    return (np.int64(base), np.int64(max(offset, 0)), *numbers)


@meaning("memref.load")
def _(op: Op) -> Step:
    source, *indices = op.operands
    kind = op.operand_kinds[0]
    size = kind.element.bytes

    def step(frame: Frame) -> None:
        env = frame.env
        address = View(env[source]).address([env[i] for i in indices], size)
        env[op.results[0]] = load(frame, address, kind.space, kind.element)

    return step


@meaning("memref.store")
def _(op: Op) -> Step:
    value, target, *indices = op.operands
    kind = op.operand_kinds[1]
    size = kind.element.bytes

    def step(frame: Frame) -> None:
        env = frame.env
        address = View(env[target]).address([env[i] for i in indices], size)
        store(frame, address, kind.space, env[value], kind.element)

    return step


@meaning("vector.load")
def _(op: Op) -> Step:
    source, *indices = op.operands
    kind, vector = op.operand_kinds[0], op.kind

    def step(frame: Frame) -> None:
        env = frame.env
        address = View(env[source]).address([env[i] for i in indices], kind.element.bytes)
        env[op.results[0]] = load(frame, address, kind.space, vector, natural_alignment(vector))

    return step


@meaning("vector.store")
def _(op: Op) -> Step:
    value, target, *indices = op.operands
    vector, kind = op.operand_kinds[:2]

    def step(frame: Frame) -> None:
        env = frame.env
        address = View(env[target]).address([env[i] for i in indices], kind.element.bytes)
        store(frame, address, kind.space, env[value], vector, natural_alignment(vector))

    return step


@meaning("memref.alloca", "memref.alloc")
def _(op: Op) -> Step:
    kind = op.kind
    if kind.space == SHARED:
        raise Unsupported("memref.alloc of shared memory")

    def step(frame: Frame) -> None:
        dynamic = iter(op.operands)
        sizes = [frame.env[next(dynamic)] if size == DYNAMIC else np.int64(size) for size in kind.layout[0]]
        size = int(np.prod([int(s) for s in sizes], dtype=int)) * kind.element.bytes
        base = private_buffer(frame, op, size)
        frame.env[op.results[0]] = memref(base, np.int64(0), sizes, row_major(sizes))

    return step


def row_major(sizes: list[Any]) -> list[Any]:
    """Strides of a dense array, in elements."""
    strides = [np.int64(1)]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    return strides[: len(sizes)]


@meaning(
    "memref.dealloc", "memref.assume_alignment", "llvm.intr.assume", "llvm.intr.lifetime.start", "llvm.intr.lifetime.end"
)
def _(op: Op) -> Step | None:
    return apply(op, lambda value: value) if op.results else None


@meaning("memref.cast", "memref.memory_space_cast", "memref.reinterpret_map")
def _(op: Op) -> Step:
    source, target = op.operand_kinds[0], op.kind
    if source.space != target.space and SHARED in (source.space, target.space):
        raise Unsupported("a cast of a memref out of or into shared memory")
    return apply(op, lambda value: value)


@meaning("memref.dim")
def _(op: Op) -> Step:
    return apply(op, lambda value, axis: View(value).sizes[int(axis)])


def _mixed(op: Op, frame: Frame, static: list[int], dynamic: Any) -> list[Any]:
    return [frame.env[next(dynamic)] if value == DYNAMIC else np.int64(value) for value in static]


@meaning("memref.subview")
def _(op: Op) -> Step:
    (source,), *_ = op.segments()
    statics = [op.attribute(f"static_{part}") for part in ("offsets", "sizes", "strides")]
    wanted = op.kind.layout[0]

    def step(frame: Frame) -> None:
        dynamic = iter(op.operands[1:])
        offsets, sizes, strides = (_mixed(op, frame, static, dynamic) for static in statics)
        view = View(frame.env[source])
        offset = view.offset
        for index, stride in zip(offsets, view.strides, strict=True):
            offset = offset + index * stride
        steps = [a * b for a, b in zip(view.strides, strides, strict=True)]
        kept = _kept_axes(statics[1], wanted)
        frame.env[op.results[0]] = memref(view.base, offset, [sizes[i] for i in kept], [steps[i] for i in kept])

    return step


def _kept_axes(sizes: list[int], wanted: tuple[int, ...]) -> list[int]:
    """Axes of a subview that its type keeps: unit axes may be dropped."""
    kept, position = [], 0
    for axis, size in enumerate(sizes):
        remaining = len(sizes) - axis
        fits = position < len(wanted) and size == wanted[position]
        if fits and (size != 1 or remaining >= len(wanted) - position):
            kept.append(axis)
            position += 1
    if len(kept) != len(wanted):
        raise Unsupported(f"a subview of sizes {sizes} as {wanted}")
    return kept


@meaning("memref.reinterpret_cast")
def _(op: Op) -> Step:
    (source,), *_ = op.segments()
    statics = [op.attribute(f"static_{part}") for part in ("offsets", "sizes", "strides")]

    def step(frame: Frame) -> None:
        dynamic = iter(op.operands[1:])
        (offset,), sizes, strides = (_mixed(op, frame, static, dynamic) for static in statics)
        frame.env[op.results[0]] = memref(frame.env[source][0], offset, sizes, strides)

    return step


@meaning("memref.collapse_shape", "memref.expand_shape")
def _(op: Op) -> Step:
    groups = op.attribute("reassociation")
    collapse = op.operation.name == "memref.collapse_shape"
    static = op.attribute("static_output_shape", [])
    layout = op.kind.layout

    def step(frame: Frame) -> None:
        view = View(frame.env[op.operands[0]])
        if collapse:
            sizes = [np.prod([view.sizes[i] for i in group], dtype=np.int64) for group in groups]
            strides = [_inner_stride(view, group) for group in groups]
        else:
            sizes = _mixed(op, frame, static, iter(op.operands[1:]))
            strides = [np.int64(1)] * len(sizes)
            for axis, group in enumerate(groups):
                stride = view.strides[axis]
                for i in reversed(group):
                    strides[i], stride = stride, stride * sizes[i]
        if not groups:  # to or from a memref of one element
            sizes = strides = [np.int64(1)] * len(layout[0])
        frame.env[op.results[0]] = memref(view.base, view.offset, sizes, strides)

    return step


def _inner_stride(view: View, group: list[int]) -> Any:
    for axis in reversed(group):
        if view.sizes[axis] != 1:
            return view.strides[axis]
    return view.strides[group[-1]]


@meaning("memref.reshape")
def _(op: Op) -> Step:
    source, shape = op.operands
    shape_kind, wanted = op.operand_kinds[1], op.kind.layout[0]

    def step(frame: Frame) -> None:
        view, sizes = View(frame.env[source]), []
        for axis, size in enumerate(wanted):
            place = View(frame.env[shape]).address([np.int64(axis)], shape_kind.element.bytes)
            given = load(frame, place, shape_kind.space, shape_kind.element).astype(np.int64)
            sizes.append(given if size == DYNAMIC else np.int64(size))
        if any((a != b).any() for a, b in zip(view.strides, row_major(list(view.sizes)), strict=True)):
            raise Unsupported("memref.reshape of a view that is not dense")
        frame.env[op.results[0]] = memref(view.base, view.offset, sizes, row_major(sizes))

    return step


@meaning("memref.view")
def _(op: Op) -> Step:
    source, shift, *dynamic = op.operands
    kind = op.kind

    def step(frame: Frame) -> None:
        env, given = frame.env, iter(dynamic)
        sizes = [env[next(given)] if size == DYNAMIC else np.int64(size) for size in kind.layout[0]]
        base = env[source][0] + env[source][1] + env[shift]
        env[op.results[0]] = memref(base, np.int64(0), sizes, row_major(sizes))

    return step


@meaning("memref.extract_strided_metadata")
def _(op: Op) -> Step:
    def step(frame: Frame) -> None:
        view = View(frame.env[op.operands[0]])
        parts = [memref(view.base, np.int64(0), [], []), view.offset, *view.sizes, *view.strides]
        for number, part in zip(op.results, parts, strict=True):
            frame.env[number] = part

    return step


@meaning("memref.extract_aligned_pointer_as_index")
def _(op: Op) -> Step:
    return apply(op, lambda value: value[0])


@meaning("memref.get_global")
def _(op: Op) -> Step:
    kind, (result,) = op.kind, op.results
    value = identity(op.builder.resources.symbol(op.attribute("name")), kind)

    def step(frame: Frame) -> None:
        frame.env[result] = value

    return step


_RMW_KINDS = [
    "addf",
    "addi",
    "assign",
    "maximumf",
    "maxs",
    "maxu",
    "minimumf",
    "mins",
    "minu",
    "mulf",
    "muli",
    "ori",
    "andi",
    "maxnumf",
    "minnumf",
    "xori",
]


@meaning("memref.atomic_rmw")
def _(op: Op) -> Step:
    value, target, *indices = op.operands
    kind = op.operand_kinds[1]
    name = _RMW_KINDS[op.attribute("kind")]

    def step(frame: Frame) -> None:
        env = frame.env
        address = View(env[target]).address([env[i] for i in indices], kind.element.bytes)
        env[op.results[0]] = atomic(frame, address, kind.space, env[value], kind.element, name)

    return step


@meaning("memref.generic_atomic_rmw")
def _(op: Op) -> Step:
    target, *indices = op.operands
    kind, body = op.operand_kinds[0], op.region(0)

    def step(frame: Frame) -> None:
        env = frame.env
        element = kind.element
        address = View(env[target]).address([env[i] for i in indices], element.bytes)
        places = frame.per_thread(frame.resolve(address, kind.space))
        result = np.zeros(frame.count, element.dtype)
        for thread in range(frame.count):
            one = frame.child(np.array([thread]))
            found = frame.unit.memory.load(places[thread], element)
            (new,) = body.run(one, [found])
            result[thread] = np.atleast_1d(new)[0]
            frame.unit.memory.store(places[thread], result[thread], element)
        env[op.results[0]] = result

    return step
