"""The copy engine: boxes of tensors between global and shared memory, and plain bulk copies.

A load arrives when no thread can go on without it, the latest first; until then its target counts as not written.  A store
reads shared memory when its thread waits for that, not before.  So what does not wait, or waits for the wrong barrier, is
found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .barriers import complete_bytes, groups, mbarrier
from .boxes import pixel_elements, shared_places, tile_elements
from .build import Op, Step, meaning
from .faults import Fault, Misaligned
from .frames import Frame, Unit
from .kinds import CLUSTER, GLOBAL, SHARED, Kind
from .memory import ALLOCATED, POISON, WRITTEN
from .ptx import Bound, instruction
from .ptx_numbers import round_tf32
from .tensor_maps import TensorMap

_BYTE = np.dtype(np.uint8)


@dataclass
class _Stores:
    """Bulk stores of one thread: open ones, and committed groups whose source has not been read."""

    open: list[Callable[[], None]] = field(default_factory=list)
    groups: list[list[Callable[[], None]]] = field(default_factory=list)


def _pending(unit: Unit) -> list[Callable[[], None]]:
    found: list[Callable[[], None]] = unit.state.setdefault("bulk loads", [])
    return found


def deliver(unit: Unit) -> bool:
    """Let the latest load arrive; False if none is under way."""
    pending = _pending(unit)
    if not pending:
        return False
    pending.pop()()
    return True


def finish(unit: Unit) -> None:
    """The kernel ends: nothing may be under way that touches its shared memory."""
    if _pending(unit):
        raise Fault("the kernel ends while loads into its shared memory are under way")
    for thread, stores in unit.state.get("bulk stores", {}).items():
        if stores.open or stores.groups:
            name = f"block {unit.blocks[thread // unit.block_threads]} thread {thread % unit.block_threads}"
            raise Fault(f"the kernel ends before bulk stores of {name} have read its shared memory")


# --------------------------------------------------------------------------------------------------------------------- boxes


def _tensor_map(frame: Frame, pointer: Any) -> TensorMap:
    address = int(np.atleast_1d(pointer)[0])
    found = frame.unit.memory.tensor_maps.get(address)
    if found is None:
        raise Fault(f"no tensor map {frame.unit.memory.where(address)}")
    return found


def _check_alignment(frame: Frame, address: int, layout: TensorMap) -> None:
    wanted = {128: 1024, 64: 512, 32: 256}.get(layout.swizzle, 128)
    if (address - frame.unit.shared_base) % (128 if layout.swizzle == 0 else wanted):
        raise Misaligned(f"a box in shared memory {frame.unit.memory.where(address)} is not at a multiple of {wanted} bytes")


def load_box(
    frame: Frame,
    target: Any,
    pointer: Any,
    coordinates: Sequence[Any],
    barrier: tuple[Any, int],
    mask: Any = None,
    offsets: Sequence[Any] = (),
) -> None:
    """cp.async.bulk.tensor: global to shared memory, for each thread of the frame; zeros outside the tensor.

    ``target`` is a shared::cluster pointer; ``mask``: blocks of the cluster that all get the box; ``offsets``: the tap, in
    im2col mode.
    """
    unit = frame.unit
    layout = _tensor_map(frame, pointer)
    if len(offsets) != len(layout.lower):
        raise Fault(f"a load with the offsets {offsets} from {layout}")
    targets = frame.per_thread(frame.resolve(target, CLUSTER))
    barriers = frame.per_thread(frame.resolve(*barrier))
    for thread in range(frame.count):
        one = frame.child(np.array([thread]))
        where = [int(frame.per_thread(c)[thread]) for c in coordinates]
        tap = [int(frame.per_thread(o)[thread]) & 0xFFFF for o in offsets]
        for shift in _blocks_of(one, mask, thread):
            address, wait_at = int(targets[thread]) + shift, int(barriers[thread]) + shift
            _check_alignment(one, address, layout)
            places, size = shared_places(layout, address, unit.shared_base)
            sources = pixel_elements(layout, where, tap) if layout.lower else tile_elements(layout, where)
            _start_load(one, layout, sources, places, size, wait_at)


def _blocks_of(one: Frame, mask: Any, thread: int) -> list[int]:
    """Distances in memory to the windows of the blocks in ``mask``; only the own one without a mask."""
    if mask is None:
        return [0]
    bits = int(np.atleast_1d(one.per_thread(mask) if np.ndim(mask) == 0 else mask[thread : thread + 1])[0]) & 0xFFFF
    own = int(np.atleast_1d(one.local_block)[0]) % one.unit.cluster
    return [(rank - own) * one.unit.window for rank in range(one.unit.cluster) if bits >> rank & 1]


def _start_load(one: Frame, layout: TensorMap, elements: tuple[Any, Any], places: Any, size: int, barrier: int) -> None:
    """``elements``: their addresses, and which are inside of the tensor.  f32 becomes TF32 where the map says so."""
    unit, memory = one.unit, one.unit.memory
    sources, inside = elements
    raw = np.zeros((*sources.shape, layout.element_bytes), np.uint8)
    if inside.any():
        kind = Kind(_BYTE, (layout.element_bytes,))
        inner = np.broadcast_to(sources, inside.shape)[inside]
        raw[inside] = memory.load(inner, kind)
        if unit.races is not None:
            unit.races.read_global(one, inner, kind)
    if layout.element == "tf32":
        raw = round_tf32(raw.view(np.float32), to_even=True).view(np.uint8)
    bytes_at = places[..., None] + np.arange(layout.element_bytes)
    _start(one, bytes_at.reshape(-1), raw.reshape(-1), size, barrier)


def _start(one: Frame, places: Any, data: Any, size: int, barrier: int) -> None:
    """Bytes on their way to ``places`` of shared memory; ``size`` of them count at ``barrier``."""
    unit, memory = one.unit, one.unit.memory
    mbarrier(unit, barrier)
    if (memory.state.take(places, mode="clip") == 0).any():
        raise Fault(f"a copy into shared memory goes over its end: {memory.where(int(places.max()))}")
    stamp = unit.races.begin_write(one, places) if unit.races is not None else None
    memory.data[places], memory.state[places] = POISON, ALLOCATED

    def arrive() -> None:
        memory.data[places], memory.state[places] = data, WRITTEN
        if unit.races is not None:
            unit.races.complete(stamp, ("mbarrier", barrier, mbarrier(unit, barrier).phase))
        complete_bytes(unit, barrier, size)

    _pending(unit).append(arrive)


def store_box(frame: Frame, pointer: Any, source: Any, coordinates: Sequence[Any]) -> None:
    """cp.async.bulk.tensor: shared to global memory, what lies outside the tensor is left out."""
    layout = _tensor_map(frame, pointer)
    sources = frame.per_thread(frame.resolve(source, SHARED))
    for thread in range(frame.count):
        one = frame.child(np.array([thread]))
        where = [int(frame.per_thread(c)[thread]) for c in coordinates]
        _check_alignment(one, int(sources[thread]), layout)
        places, _ = shared_places(layout, int(sources[thread]), frame.unit.shared_base)
        targets, inside = tile_elements(layout, where)
        targets = np.broadcast_to(targets, inside.shape)[inside]
        _queue_store(one, places[inside], targets, layout.element_bytes)


def _queue_store(one: Frame, sources: Any, targets: Any, size: int) -> None:
    unit, memory = one.unit, one.unit.memory
    kind = Kind(_BYTE, (size,))
    memory.load(sources, kind)  # what is not written yet is found where the store is issued
    stamp = unit.races.begin_read(one, (sources[:, None] + np.arange(size)).reshape(-1)) if unit.races is not None else None

    def perform() -> None:
        memory.store(targets, memory.load(sources, kind), kind)
        if unit.races is not None:
            unit.races.write_global(one, targets, kind)
            unit.races.acquire_stamp(one, stamp)

    _stores(one).open.append(perform)


def _stores(one: Frame) -> _Stores:
    by_thread: dict[int, _Stores] = one.unit.state.setdefault("bulk stores", {})
    return by_thread.setdefault(int(one.threads[0]), _Stores())


def commit_stores(frame: Frame) -> None:
    """End a group of bulk stores of each thread."""
    for thread in range(frame.count):
        stores = _stores(frame.child(np.array([thread])))
        stores.groups.append(stores.open)
        stores.open = []


def wait_stores(frame: Frame, allowed: int) -> None:
    """Let all but the last ``allowed`` groups of each thread be done."""
    for thread in range(frame.count):
        stores = _stores(frame.child(np.array([thread])))
        while len(stores.groups) > allowed:
            for perform in stores.groups.pop(0):
                perform()


# ----------------------------------------------------------------------------------------------------------------------- ops


@meaning("nvvm.cp.async.bulk.tensor.shared.cluster.global")
def _(op: Op) -> Step:
    (target,), (tensor_map,), coordinates, (barrier,), offsets, mask, *_ = _load_segments(op)
    if bool(offsets) != ("im2col" in op.text("mode")) or not re.search(r"\b(tile|im2col)\b", op.text("mode")):
        raise Fault(f"no known way of tensor copies: {op.text('mode')}")
    kinds = dict(zip(op.operands, op.operand_kinds, strict=True))

    def step(frame: Frame) -> None:
        env = frame.env
        where = [env[number] for number in coordinates]
        at = (env[barrier], kinds[barrier].space)
        tap = [env[number] for number in offsets]
        load_box(frame, env[target], env[tensor_map], where, at, env[mask[0]] if mask else None, tap)

    return step


def _load_segments(op: Op) -> list[list[int]]:
    """Operand groups: target, tensor map, coordinates, barrier, im2col offsets, multicast mask, …"""
    return op.segments()


@meaning("nvvm.cp.async.bulk.tensor.global.shared.cta")
def _(op: Op) -> Step:
    (tensor_map,), (source,), coordinates, *_ = op.segments()

    def step(frame: Frame) -> None:
        env = frame.env
        store_box(frame, env[tensor_map], env[source], [env[number] for number in coordinates])

    return step


@meaning("nvvm.cp.async.bulk.commit.group")
def _(op: Op) -> Step:
    return commit_stores


@meaning("nvvm.cp.async.bulk.wait_group")
def _(op: Op) -> Step:
    allowed = op.attribute("group")
    return lambda frame: wait_stores(frame, allowed)


@instruction("cp.async.bulk.commit_group")
def _(frame: Frame, bound: Bound) -> None:
    commit_stores(frame)


@instruction("cp.async.bulk.wait_group")
def _(frame: Frame, bound: Bound) -> None:
    wait_stores(frame, int(bound.operands[0], 0))


def load_bytes(frame: Frame, target: Any, source: Any, size: Any, barrier: Any) -> None:
    """cp.async.bulk: global to shared memory without a tensor map; multiples of 16 bytes."""
    targets = frame.per_thread(frame.resolve(target, CLUSTER))
    sources = frame.per_thread(frame.resolve(source, GLOBAL))
    barriers, sizes = frame.per_thread(frame.resolve(barrier, SHARED)), frame.per_thread(size)
    for thread in range(frame.count):
        one, length = frame.child(np.array([thread])), int(sizes[thread])
        if (int(targets[thread]) | int(sources[thread]) | length) % 16:
            raise Misaligned("a bulk copy whose addresses and size are not multiples of 16 bytes", np.array([thread]))
        data = frame.unit.memory.load(sources[thread], Kind(_BYTE, (length,)))
        if frame.unit.races is not None:
            frame.unit.races.read_global(one, sources[thread] + np.arange(length), Kind(_BYTE))
        _start(one, int(targets[thread]) + np.arange(length), data, length, int(barriers[thread]))


@meaning("nvvm.cp.async.bulk.shared.cluster.global")
def _(op: Op) -> Step:
    target, source, barrier, size = op.operands[:4]

    def step(frame: Frame) -> None:
        env = frame.env
        load_bytes(frame, env[target], env[source], env[size], env[barrier])

    return step


@instruction("cp.async.bulk.shared")
def _(frame: Frame, bound: Bound) -> None:
    target, source, size, barrier = bound.operands
    load_bytes(frame, bound.address(target), bound.address(source), bound.read(size, np.int32), bound.address(barrier))


@instruction("st.async")
def _(frame: Frame, bound: Bound) -> None:
    """Registers to the shared memory of a block of the cluster; the bytes count at a barrier there."""
    target, source, barrier = bound.operands
    values = [frame.per_thread(value) for value in bound.read_all(source, np.int32)]
    targets = frame.per_thread(frame.resolve(bound.address(target), CLUSTER))
    data = np.ascontiguousarray(np.stack(values, axis=-1)).view(np.uint8)
    at = frame.resolve(bound.address(barrier), CLUSTER)
    for address, positions in groups(frame, at):
        part = frame.child(positions)
        places = (targets[positions][:, None] + np.arange(data.shape[1])).reshape(-1)
        _start(part, places, data[positions].reshape(-1), places.size, address)


# ------------------------------------------------------------------------------------------------------------------ clusters


def map_to_block(frame: Frame, pointer: Any, rank: Any) -> Any:
    """mapa: the same place in the shared memory of block ``rank`` of the cluster."""
    from .frames import RANK_SHIFT

    outside = np.asarray((rank < 0) | (rank >= frame.unit.cluster))
    if outside.any():
        raise Fault(f"mapa to a block that is not in the cluster of {frame.unit.cluster}")
    offset = pointer & ((1 << RANK_SHIFT) - 1)
    return offset | ((rank.astype(np.int64) + 1) << RANK_SHIFT)


@meaning("nvvm.mapa")
def _(op: Op) -> Step:
    pointer, rank = op.operands

    def step(frame: Frame) -> None:
        frame.env[op.results[0]] = map_to_block(frame, frame.env[pointer], frame.env[rank])

    return step


@instruction("mapa")
def _(frame: Frame, bound: Bound) -> None:
    target, pointer, rank = bound.operands
    value = map_to_block(frame, bound.read(pointer, np.int32).astype(np.int64), bound.read(rank, np.int32))
    bound.write(target, value.astype(np.int32))


def fence_proxy(frame: Frame) -> None:
    """What these threads wrote, and know of, can be seen by the copy engine and the tensor cores."""
    if frame.unit.races is not None:
        frame.unit.races.fence(frame)


@meaning("nvvm.fence.proxy")
def _(op: Op) -> Step:
    return fence_proxy


@instruction("fence.proxy.async")
def _(frame: Frame, bound: Bound) -> None:
    fence_proxy(frame)


@instruction("fence", "setmaxnreg")
def _(frame: Frame, bound: Bound) -> None:
    """Other fences: what they order is ordered here by barriers already."""
