"""Meanings of ops that compute addresses or touch memory: memref, vector loads and stores, pointers of the LLVM dialect."""

from __future__ import annotations

from typing import Any

import numpy as np

from .build import Op, Step, apply, meaning
from .faults import Fault, OutOfBounds, Race, Unsupported
from .frames import SHARED_START, Frame
from .kinds import CLUSTER, DYNAMIC, SHARED, Kind, kind_of, unsigned


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


# ------------------------------------------------------------------------------------------------------------------- memrefs


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


@meaning("memref.alloca", "memref.alloc", "llvm.alloca")
def _(op: Op) -> Step:
    kind = op.kind
    element = (kind.element or kind_of(op.attribute("elem_type").value)).bytes
    name = f"{op.operation.name} of {op.builder.resources.name}"

    def step(frame: Frame) -> None:
        env = frame.env
        if op.operation.name == "llvm.alloca":
            env[op.results[0]] = _private(frame, op, int(env[op.operands[0]]) * element, name)
            return
        sizes = kind.layout[0]
        dynamic = iter(op.operands)
        sizes = [env[next(dynamic)] if size == DYNAMIC else np.int64(size) for size in sizes]
        steps = [np.int64(1)]
        for size in reversed(sizes[1:]):
            steps.append(steps[-1] * size)
        if kind.space == SHARED:
            raise Unsupported("memref.alloc of shared memory")
        base = _private(frame, op, int(np.prod([int(s) for s in sizes], dtype=int)) * element, name)
        env[op.results[0]] = memref(base, np.int64(0), sizes, reversed(steps[: len(sizes)]))

    return step


def _private(frame: Frame, op: Op, size: int, name: str) -> Any:
    """A buffer for each thread of the frame, the same one when the op is executed again; one buffer on the host."""
    unit = frame.unit
    if unit.is_host:
        return np.int64(unit.memory.allocate(size, name))
    pitch = -(-size // 16) * 16 + 16
    if op.operation not in unit.state:
        start = unit.memory.allocate(pitch * unit.count, name)
        unit.state[op.operation] = start
        states = unit.memory.state[start : start + pitch * unit.count].reshape(unit.count, pitch)
        states[:, size:] = 0
    return unit.state[op.operation] + frame.threads.astype(np.int64) * pitch


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


@meaning("memref.view")
def _(op: Op) -> Step:
    source, shift, *dynamic = op.operands
    kind = op.kind

    def step(frame: Frame) -> None:
        env, given = frame.env, iter(dynamic)
        sizes = [env[next(given)] if size == DYNAMIC else np.int64(size) for size in kind.layout[0]]
        strides = [np.int64(1)]
        for size in reversed(sizes[1:]):
            strides.append(strides[-1] * size)
        base = env[source][0] + env[source][1] + env[shift]
        env[op.results[0]] = memref(base, np.int64(0), sizes, reversed(strides[: len(sizes)]))

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


# ------------------------------------------------------------------------------------------------------------------ pointers


@meaning("llvm.mlir.addressof")
def _(op: Op) -> Step:
    (result,) = op.results
    value = np.int64(op.builder.resources.symbol(op.attribute("global_name")))

    def step(frame: Frame) -> None:
        frame.env[result] = value

    return step


@meaning("llvm.getelementptr")
def _(op: Op) -> Step:
    base, *dynamic = op.operands
    dynamic_index = -(1 << 31)
    constant_part, scaled = 0, []  # bytes, and (operand, bytes) pairs
    kind, given = kind_of(op.attribute("elem_type").value), iter(dynamic)
    for level, index in enumerate(op.attribute("rawConstantIndices")):
        size = kind.bytes
        if level > 0:
            if kind.members is None:
                kind, size = Kind(kind.dtype), kind.dtype.itemsize
            elif index != dynamic_index and len(set(kind.members)) > 1:
                raise Unsupported("getelementptr into a struct of different members")
            else:
                kind = kind.members[0]
                size = kind.bytes
        if index == dynamic_index:
            scaled.append((next(given), size))
        else:
            constant_part += index * size
    constant_part = np.int64(constant_part)
    (result,) = op.results

    def step(frame: Frame) -> None:
        address = frame.env[base] + constant_part
        for number, size in scaled:
            address = address + frame.env[number].astype(np.int64) * size
        frame.env[result] = address

    return step


@meaning("llvm.load")
def _(op: Op) -> Step:
    kind, source = op.kind, op.operand_kinds[0]
    alignment = op.attribute("alignment", natural_alignment(kind))
    (pointer,), (result,) = op.operands, op.results

    def step(frame: Frame) -> None:
        frame.env[result] = load(frame, frame.env[pointer], source.space, kind, alignment)

    return step


@meaning("llvm.store")
def _(op: Op) -> Step:
    kind, target = op.operand_kinds
    alignment = op.attribute("alignment", natural_alignment(kind))
    value, pointer = op.operands

    def step(frame: Frame) -> None:
        store(frame, frame.env[pointer], target.space, frame.env[value], kind, alignment)

    return step


@meaning("llvm.addrspacecast")
def _(op: Op) -> Step:
    (source,), target = op.operand_kinds, op.kind
    (pointer,), (result,) = op.operands, op.results

    def step(frame: Frame) -> None:
        value = frame.env[pointer]
        if source.space in (SHARED, CLUSTER) and target.space not in (SHARED, CLUSTER):
            value = frame.resolve(value, source.space)
        elif target.space in (SHARED, CLUSTER) and source.space not in (SHARED, CLUSTER):
            value = value - frame.shared_base
            outside = (value < SHARED_START) | (value >= SHARED_START + max(frame.unit.window, 1))
            if outside.any():
                raise Fault("a pointer that is not to this block's shared memory is cast to one", np.flatnonzero(outside))
        frame.env[result] = value

    return step


@meaning("llvm.ptrtoint")
def _(op: Op) -> Step:
    dtype = op.kind.dtype
    return apply(op, lambda pointer: pointer.astype(dtype))


@meaning("llvm.inttoptr")
def _(op: Op) -> Step:
    bits = unsigned(op.operand_kinds[0].dtype)
    return apply(op, lambda number: number.view(bits).astype(np.int64))


@meaning("llvm.intr.masked.load")
def _(op: Op) -> Step:
    raise Unsupported("llvm.intr.masked.load; use vector.maskedload")


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


# ------------------------------------------------------------------------------------------------------------------- atomics

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
_LLVM_RMW = [
    "xchg",
    "add",
    "sub",
    "_and",
    "_nand",
    "_or",
    "_xor",
    "max",
    "min",
    "umax",
    "umin",
    "fadd",
    "fsub",
    "fmax",
    "fmin",
    "uinc_wrap",
    "udec_wrap",
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


@meaning("llvm.atomicrmw")
def _(op: Op) -> Step:
    pointer, value = op.operands
    source, kind = op.operand_kinds
    name = _LLVM_RMW[op.attribute("bin_op")]

    def step(frame: Frame) -> None:
        env = frame.env
        env[op.results[0]] = atomic(frame, env[pointer], source.space, env[value], kind, name)

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
