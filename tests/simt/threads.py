"""Meanings of ops about threads: their numbers, barriers of a block, exchanges within a warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .build import Op, Step, meaning
from .faults import Divergence, Unsupported
from .frames import WARP, Frame
from .vectors import combiner

_AXES = "xyz"


def thread_along(frame: Frame, axis: int) -> Any:
    """Coordinate of each thread in its block."""
    x, y, _ = frame.unit.block
    return (frame.thread, frame.thread // x, frame.thread // (x * y))[axis] % frame.unit.block[axis]


def block_along(frame: Frame, axis: int) -> Any:
    """Coordinate of each thread's block in the grid."""
    x, y, _ = frame.unit.grid
    return (frame.block, frame.block // x, frame.block // (x * y))[axis] % frame.unit.grid[axis]


def _size(name: str) -> Callable[[Frame, int], Any]:
    return lambda frame, axis: np.int64(getattr(frame.unit, name)[axis])


def _global(frame: Frame, axis: int) -> Any:
    return block_along(frame, axis) * frame.unit.block[axis] + thread_along(frame, axis)


_COORDINATES: dict[str, Callable[[Frame, int], Any]] = {
    "gpu.thread_id": thread_along,
    "gpu.block_id": block_along,
    "gpu.block_dim": _size("block"),
    "gpu.grid_dim": _size("grid"),
    "gpu.global_id": _global,
    "nvvm.read.ptx.sreg.tid.": thread_along,
    "nvvm.read.ptx.sreg.ctaid.": block_along,
    "nvvm.read.ptx.sreg.ntid.": _size("block"),
    "nvvm.read.ptx.sreg.nctaid.": _size("grid"),
    "nvvm.read.ptx.sreg.clusterid.": lambda frame, axis: (
        block_along(frame, axis) // (frame.unit.cluster if axis == 0 else 1)
    ),
    "nvvm.read.ptx.sreg.nclusterid.": lambda frame, axis: np.int64(
        frame.unit.grid[axis] // (frame.unit.cluster if axis == 0 else 1)
    ),
    "nvvm.read.ptx.sreg.cluster.ctaid.": lambda frame, axis: (
        block_along(frame, 0) % frame.unit.cluster if axis == 0 else np.int64(0)
    ),
    "nvvm.read.ptx.sreg.cluster.nctaid.": lambda frame, axis: np.int64(frame.unit.cluster if axis == 0 else 1),
}
_SCALARS: dict[str, Callable[[Frame], Any]] = {
    "gpu.lane_id": lambda frame: frame.lane,
    "gpu.subgroup_id": lambda frame: frame.thread // WARP,
    "gpu.subgroup_size": lambda frame: np.int64(WARP),
    "gpu.num_subgroups": lambda frame: np.int64(-(-frame.unit.block_threads // WARP)),
    "nvvm.read.ptx.sreg.laneid": lambda frame: frame.lane,
    "nvvm.read.ptx.sreg.warpid": lambda frame: frame.thread // WARP,
    "nvvm.read.ptx.sreg.warpsize": lambda frame: np.int64(WARP),
    "nvvm.read.ptx.sreg.cluster.ctarank": lambda frame: frame.block % frame.unit.cluster,
    "nvvm.read.ptx.sreg.cluster.nctarank": lambda frame: np.int64(frame.unit.cluster),
}


def _number(op: Op, compute: Callable[[Frame], Any]) -> Step:
    (result,), dtype = op.results, op.kind.dtype

    def step(frame: Frame) -> None:
        frame.env[result] = compute(frame).astype(dtype)

    return step


def _register_numbers() -> None:
    for name, compute in _COORDINATES.items():
        if name.startswith("gpu."):

            def by_attribute(op: Op, f: Any = compute) -> Step:
                axis = _AXES.index(op.text("dimension").rstrip(">")[-1])
                return _number(op, lambda frame: f(frame, axis))

            meaning(name)(by_attribute)
        else:
            for axis, letter in enumerate(_AXES):

                def by_name(op: Op, f: Any = compute, axis: int = axis) -> Step:
                    return _number(op, lambda frame: f(frame, axis))

                meaning(name + letter)(by_name)
    for name, scalar in _SCALARS.items():
        meaning(name)(lambda op, f=scalar: _number(op, f))


_register_numbers()


# ------------------------------------------------------------------------------------------------------------------ barriers


def block_barrier(frame: Frame) -> None:
    """All threads of the blocks meet; Divergence where some do not come."""
    if not frame.whole_blocks():
        raise Divergence("a barrier is reached by some threads of a block only")
    if frame.unit.races is not None:
        frame.unit.races.barrier(frame)


@meaning("gpu.barrier", "nvvm.barrier0")
def _(op: Op) -> Step:
    return block_barrier


@meaning("nvvm.bar.warp.sync")
def _(op: Op) -> Step:
    return lambda frame: None  # the lanes of a warp run in step here


# --------------------------------------------------------------------------------------------------------------------- warps


def shuffle(frame: Frame, value: Any, source: Any) -> Any:
    """The value of lane ``source`` of the same warp; Divergence where that lane is not here."""
    value = frame.per_thread(value)
    if frame.count % WARP == 0 and frame.count == frame.unit.count and frame.unit.block_threads % WARP == 0:
        return value[np.arange(frame.count) // WARP * WARP + source]
    wanted = frame.threads - frame.lane + source
    positions = np.minimum(np.searchsorted(frame.threads, wanted), frame.count - 1)
    missing = frame.threads[positions] != wanted
    if missing.any():
        raise Divergence("a shuffle reads a lane that does not take part", np.flatnonzero(missing))
    return value[positions]


def shuffle_source(mode: str, lane: Any, offset: Any, width: Any) -> tuple[Any, Any]:
    """The lane read in mode ``xor`` (``bfly``), ``up``, ``down`` or ``idx`` and whether it is in the same segment."""
    first = lane - lane % width
    target = {
        "xor": lambda: lane ^ offset,
        "bfly": lambda: lane ^ offset,
        "up": lambda: lane - offset,
        "down": lambda: lane + offset,
        "idx": lambda: first + (offset % width),
    }[mode]()
    inside = (target >= first) & (target < first + width)
    return np.where(inside, target, lane), inside


@meaning("gpu.shuffle")
def _(op: Op) -> Step:
    value, offset, width = op.operands
    mode = op.text("mode").rstrip(">").split()[-1]

    def step(frame: Frame) -> None:
        env = frame.env
        source, inside = shuffle_source(mode, frame.lane, env[offset].astype(np.int64), env[width].astype(np.int64))
        env[op.results[0]] = shuffle(frame, env[value], source)
        env[op.results[1]] = inside

    return step


@meaning("nvvm.shfl.sync")
def _(op: Op) -> Step:
    _, value, offset, clamp = op.operands
    mode = op.text("kind").rstrip(">").split()[-1].split("<")[-1]
    with_predicate = bool(op.kind.members)

    def step(frame: Frame) -> None:
        env = frame.env
        result, inside = shuffle_clamped(frame, env[value], mode, env[offset], env[clamp])
        env[op.results[0]] = (result, inside) if with_predicate else result

    return step


def shuffle_clamped(frame: Frame, value: Any, mode: str, offset: Any, clamp: Any) -> tuple[Any, Any]:
    """``shfl.sync`` with its packed clamp operand: segment mask in bits 8 to 12, limit in bits 0 to 4."""
    width = WARP - ((clamp.astype(np.int64) >> 8) & 31)
    source, inside = shuffle_source(mode, frame.lane, offset.astype(np.int64), width)
    return shuffle(frame, value, source), inside


@meaning("gpu.subgroup_reduce")
def _(op: Op) -> Step:
    (value,), (result,) = op.operands, op.results
    combine = combiner(op.text("op"))
    size, stride = op.attribute("cluster_size", WARP), op.attribute("cluster_stride", 1)

    def step(frame: Frame) -> None:
        total, lane, step_ = frame.per_thread(frame.env[value]), frame.lane, stride
        while step_ < size * stride:
            total = combine(total, shuffle(frame, total, lane ^ step_))
            step_ *= 2
        frame.env[result] = total

    return step


@meaning("gpu.all_reduce")
def _(op: Op) -> Step:
    (value,), (result,) = op.operands, op.results
    if not op.text("op"):
        raise Unsupported("gpu.all_reduce with a body")
    combine = combiner(op.text("op"))

    def step(frame: Frame) -> None:
        block_barrier(frame)
        values = frame.per_thread(frame.env[value]).reshape(-1, frame.unit.block_threads)
        totals = values[:, 0]
        for column in range(1, values.shape[1]):
            totals = combine(totals, values[:, column])
        frame.env[result] = np.repeat(totals, frame.unit.block_threads)

    return step


@meaning("nvvm.redux.sync")
def _(op: Op) -> Step:
    value, _ = op.operands
    name = op.text("kind").rstrip(">").split()[-1].split("<")[-1]
    combine = {"add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "fmax": np.fmax}
    combine |= {"max": np.maximum, "min": np.minimum, "fmin": np.fmin}
    if name not in combine:
        raise Unsupported(f"nvvm.redux.sync of kind {name}")

    def step(frame: Frame) -> None:
        total = frame.per_thread(frame.env[value])
        for distance in (1, 2, 4, 8, 16):
            total = combine[name](total, shuffle(frame, total, frame.lane ^ distance))
        frame.env[op.results[0]] = total

    return step


@meaning("gpu.dynamic_shared_memory")
def _(op: Op) -> Step:
    (result,) = op.results
    start = np.int64(op.builder.resources.dynamic_start)

    def step(frame: Frame) -> None:
        size = np.int64(frame.unit.dynamic_bytes)
        frame.env[result] = (start, np.int64(0), size, np.int64(1))

    return step


@meaning("nvvm.vote.sync")
def _(op: Op) -> Step:
    _, value = op.operands
    mode = op.text("kind").rstrip(">").split()[-1].split("<")[-1]

    def step(frame: Frame) -> None:
        frame.env[op.results[0]] = vote(frame, frame.per_thread(frame.env[value]), mode)

    return step


def vote(frame: Frame, values: Any, mode: str) -> Any:
    """``ballot``, ``any``, ``all`` or ``uni`` over the lanes of each warp that are here."""
    warps = frame.threads // WARP
    groups = warps[:, None] == warps[None, :] if frame.count <= 1024 else None
    if groups is None:
        raise Unsupported("votes in frames of more than 1024 threads")
    if mode == "ballot":
        bits = np.where(values, np.int64(1) << frame.lane.astype(np.int64), 0)
        return (groups * bits[None, :]).sum(axis=1).astype(np.uint32).view(np.int32)
    some, every = (groups & values[None, :]).any(axis=1), (~groups | values[None, :]).all(axis=1)
    return {"any": some, "all": every, "uni": every | ~some}[mode]


@meaning("nvvm.elect.sync")
def _(op: Op) -> Step:
    def step(frame: Frame) -> None:
        warps = frame.threads // WARP
        first = np.ones(frame.count, bool)
        first[1:] = warps[1:] != warps[:-1]
        frame.env[op.results[0]] = first

    return step
