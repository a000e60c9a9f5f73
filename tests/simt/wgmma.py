"""wgmma: matrix products of a warpgroup out of shared memory.

Descriptors and layouts as PTX ISA has them, "Asynchronous warpgroup-level matrix instructions"; tiles in shared memory are
swizzled by 128, 64 or 32 bytes, or not at all.  Products are computed when they are issued; that a tile is overwritten
before the wait is for the race detector to find.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .boxes import swizzled
from .build import Op, Step, meaning
from .code import Wait, waiting
from .faults import Divergence, Fault, Unsupported
from .frames import Flight, Frame, InFlight
from .kinds import Kind
from .matrices import elements, factor_a
from .memory import Memory
from .ptx import Bound, instruction

GROUP = 128  # threads of a warpgroup
_SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}
_SIZES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
_ROWS = 64


def _is_whole(frame: Frame) -> bool:
    threads = frame.threads
    if frame.count % GROUP:
        return False
    rows = threads.reshape(-1, GROUP)
    return bool((rows[:, 0] % GROUP == 0).all() and (rows[:, -1] - rows[:, 0] == GROUP - 1).all())


@dataclass
class _Issued:
    """A product of one warpgroup that is under way; ``stamps`` of its reads are for the race detector."""

    flight: Flight
    stamps: list[Any] = field(default_factory=list)


def _warpgroups(frame: Frame) -> list[Frame]:
    if not _is_whole(frame):
        raise Divergence("wgmma needs whole warpgroups")
    if frame.count == GROUP:
        return [frame]
    return [frame.child(np.arange(first, first + GROUP)) for first in range(0, frame.count, GROUP)]


def _groups(part: Frame) -> list[list[_Issued]]:
    """Groups of products of a warpgroup that have not been waited for; the last one is open."""
    by_warpgroup: dict[int, list[list[_Issued]]] = part.unit.state.setdefault("wgmma", {})
    return by_warpgroup.setdefault(int(part.threads[0]), [[]])


def tile(
    memory: Memory, base: int, window: int, descriptor: int, rows: int, k_bytes: int, size: int, *, k_major: bool
) -> Any:
    """The bytes that a descriptor names: [rows, k elements, bytes of an element], and their addresses.

    ``window``: memory address that shared address 0 stands for; ``base`` is where the block's memory begins.
    """
    start = (descriptor & 0x3FFF) << 4
    leading, stride = (descriptor >> 16 & 0x3FFF) << 4, (descriptor >> 32 & 0x3FFF) << 4
    swizzle = _SWIZZLES[descriptor >> 62 & 3]
    k = np.arange(k_bytes // size)
    row = np.arange(rows)
    if k_major:
        row_bytes = swizzle or 16
        chunk = (k * size) // 16
        inside = chunk * 16 if swizzle else chunk * leading
        offsets = (row // 8 * stride + row % 8 * row_bytes)[:, None] + (inside + k * size % 16)[None, :]
    else:
        offsets = _row_major_offsets(row, k, size, swizzle, leading, stride)
    addresses = swizzled(start + offsets, swizzle) + window
    places = addresses[..., None] + np.arange(size)
    return memory.load(addresses, Kind(np.dtype(np.uint8), (size,))), places


def _row_major_offsets(row: Any, k: Any, size: int, swizzle: int, leading: int, stride: int) -> Any:
    """Rows (of M or N) are contiguous: blocks of ``swizzle`` bytes of rows by 8 k, ``leading`` apart along the rows and
    ``stride`` apart along k."""
    if not swizzle:
        raise Unsupported("row-major tiles without a swizzle")
    per_block = swizzle // size
    along_rows = row // per_block * leading + row % per_block * size
    along_k = k // 8 * stride + k % 8 * swizzle
    return along_rows[:, None] + along_k[None, :]


def multiply(
    frame: Frame,
    sums: Sequence[Any],
    a: Any,
    b: Any,
    columns: int,
    names: tuple[str, str],
    k_major: tuple[bool, bool],
    scales: tuple[bool, int, int],
) -> InFlight:
    """``sums`` (columns / 2 registers) plus A times B, for each warpgroup of the frame.

    ``a``: a descriptor (one value) or the four registers of A; ``b``: a descriptor.  ``scales``: whether the old sums count,
    and the signs of A and B.
    """
    k_bytes = 32
    integer = names[0] in ("s8", "u8")
    dtype = np.dtype(np.int32) if integer else np.dtype(np.float32)
    old = np.stack([frame.per_thread(value) for value in sums], axis=-1)
    new = np.empty_like(old, dtype=dtype)
    flight = Flight(frame.count // GROUP)
    for group, part in enumerate(_warpgroups(frame)):
        threads = slice(group * GROUP, (group + 1) * GROUP)
        issued = _Issued(flight)
        right = _from_shared(part, issued, _one(b, threads), columns, k_bytes, names[1], k_major=k_major[1])
        if isinstance(a, (list, tuple)):
            raw = factor_a(part, [frame.per_thread(register)[threads] for register in a])
            left = elements(raw.reshape(_ROWS, -1), names[0])
        else:
            left = _from_shared(part, issued, _one(a, threads), _ROWS, k_bytes, names[0], k_major=k_major[0])
        product = left @ right.T * (scales[1] * scales[2])
        fragments = _to_fragments(product, columns)
        new[threads] = (fragments + (old[threads] if scales[0] else 0)).astype(dtype)
        _groups(part)[-1].append(issued)
    return InFlight.of([np.ascontiguousarray(new[:, i]) for i in range(new.shape[1])], flight)


def _one(value: Any, threads: slice) -> int:
    """A descriptor: all threads of the warpgroup must have the same."""
    value = np.atleast_1d(value)
    mine = value[threads] if value.size > 1 else value
    if (mine != mine[0]).any():
        raise Fault("threads of a warpgroup have different matrix descriptors")
    return int(mine[0]) & ((1 << 64) - 1)


def _from_shared(part: Frame, issued: _Issued, descriptor: int, rows: int, k_bytes: int, name: str, *, k_major: bool) -> Any:
    size = _SIZES[name]
    window = int(np.atleast_1d(part.shared_base)[0])
    memory = part.unit.memory
    raw, places = tile(memory, part.unit.shared_base, window, descriptor, rows, k_bytes, size, k_major=k_major)
    if part.unit.races is not None:
        issued.stamps.append(part.unit.races.begin_read(part, places.reshape(-1)))
    return elements(np.ascontiguousarray(raw).reshape(rows, -1), name)


def _to_fragments(product: Any, columns: int) -> Any:
    """[64, columns] as [128 threads, registers]: rows 16 warp + lane / 4 (+ 8), columns 8 j + 2 (lane % 4) (+ 1)."""
    parts = product.reshape(4, 2, 8, columns // 8, 4, 2)  # warp, upper half, lane / 4, j, lane % 4, pair
    return parts.transpose(0, 2, 4, 3, 1, 5).reshape(GROUP, columns // 2)


# ----------------------------------------------------------------------------------------------------------------------- ops


@meaning("nvvm.wgmma.mma_async")
def _(op: Op) -> Step:
    sums, a, b = op.operands[:3]
    shape = [int(n) for n in re.findall(r"= (\d+)", op.text("shape"))]
    names = (op.text("typeA").rstrip(">").split("<")[-1], op.text("typeB").rstrip(">").split("<")[-1])
    k_major = ("row" in op.text("layoutA"), "col" in op.text("layoutB"))
    scales = ("zero" not in op.text("scaleD"), _sign(op.text("scaleA")), _sign(op.text("scaleB")))
    if shape[2] * _SIZES[names[0]] != 32 or op.text("typeD").rstrip(">").split("<")[-1] not in ("f32", "s32"):
        raise Unsupported(f"wgmma of shape {shape}")

    def step(frame: Frame) -> None:
        env = frame.env
        env[op.results[0]] = multiply(frame, env[sums], env[a], env[b], shape[1], names, k_major, scales)

    return step


def _sign(text: str) -> int:
    return -1 if "neg" in text else 1


@instruction("wgmma.mma_async")
def _(frame: Frame, bound: Bound) -> None:
    suffixes = bound.instruction.suffixes
    shape = next(s for s in suffixes if re.fullmatch(r"m64n\d+k\d+", s))
    columns = int(shape[4 : shape.index("k")])
    result, *names = suffixes[suffixes.index(shape) + 1 :][:3]
    target, a, b, *flags = bound.operands
    registers = isinstance(a, tuple)
    dtype = np.float32 if result == "f32" else np.int32
    scale = bool(np.all(bound.read(flags[0], np.int32) != 0))
    numbers = [int(flag, 0) for flag in flags[1:]]
    signs, transposed = (numbers[:2] or [1, 1]), numbers[2:]
    if registers:
        major = (True, not (transposed and transposed[-1]))
    else:
        major = (not (transposed and transposed[0]), not (transposed and transposed[1]))
    factor: Any = [bound.read(register, np.int32) for register in a] if registers else bound.read(a, np.int64)
    new = multiply(
        frame,
        bound.read_all(target, dtype),
        factor,
        bound.read(b, np.int64),
        columns,
        (names[0], names[1]),
        major,
        (scale, signs[0], signs[1]),
    )
    bound.flight = new.flight
    for register, value in zip(target, new, strict=True):
        bound.write(register, value)


_GATHER = Wait(
    lambda frame: 0, lambda frame, token: np.full(frame.count, _is_whole(frame)), lambda frame, token: None, gathers=True
)


@waiting("nvvm.wgmma.fence.aligned")
def _(op: Op) -> Wait:
    return _GATHER


@meaning("nvvm.wgmma.fence.aligned")
def _(op: Op) -> None:
    """The whole warpgroup comes together; registers are up to date here anyway."""


def commit(frame: Frame) -> None:
    """End a group of products of each warpgroup."""
    for part in _warpgroups(frame):
        _groups(part).append([])


def wait(frame: Frame, allowed: int) -> None:
    """All but the last ``allowed`` groups of products are done."""
    for part in _warpgroups(frame):
        groups = _groups(part)
        while len(groups) - 1 > allowed:
            for issued in groups.pop(0):
                issued.flight.pending -= 1
                for stamp in issued.stamps:
                    part.unit.races.acquire_stamp(part, stamp)


@meaning("nvvm.wgmma.commit.group.sync.aligned")
def _(op: Op) -> Step:
    return commit


@meaning("nvvm.wgmma.wait.group.sync.aligned")
def _(op: Op) -> Step:
    allowed = op.attribute("group")
    return lambda frame: wait(frame, allowed)


@instruction("wgmma.fence")
def _(frame: Frame, bound: Bound) -> None:
    if not _is_whole(frame):
        raise Divergence("wgmma needs whole warpgroups")


@instruction("wgmma.commit_group")
def _(frame: Frame, bound: Bound) -> None:
    commit(frame)


@instruction("wgmma.wait_group")
def _(frame: Frame, bound: Bound) -> None:
    wait(frame, int(bound.operands[0], 0))
