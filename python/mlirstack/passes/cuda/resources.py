"""The kernel table: what each kernel takes of a multiprocessor, and the time that memory and arithmetic set for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mlirstack.passes.cuda.plan import KernelInfo, Launch, LaunchPlan
from mlirstack.schedules.cuda.device import Device, device_of

WARP = 32
# CUDA occupancy calculator: registers are given to warps in units of 256, warps to the four parts of a multiprocessor;
# shared memory comes in units of 128 bytes, and the system keeps 1 KB a block.
REGISTER_UNIT = 256
WARP_UNIT = 4
SHARED_UNIT = 128
SHARED_RESERVED = 1024


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel fit on a multiprocessor at once, the warps this is of those it can hold, and what limits
    it ("threads", "registers", "shared memory" or "blocks")."""

    blocks: int
    share: float
    limit: str


@dataclass(frozen=True)
class Roofline:
    """The least time of one launch in seconds, and what sets it: "memory" or the name of an arithmetic unit."""

    seconds: float
    bound: str


def occupancy(kernel: KernelInfo, device: Device) -> Occupancy:
    """Blocks of ``kernel`` per multiprocessor of ``device``; registers must be known."""
    assert kernel.registers is not None, "occupancy needs what ptxas says"
    warps = -(-kernel.threads // WARP)
    per_warp = _round_up(kernel.registers * WARP, REGISTER_UNIT)
    warps_by_registers = device.registers_per_multiprocessor // per_warp // WARP_UNIT * WARP_UNIT
    shared = _round_up(kernel.shared_bytes + (kernel.static_shared_bytes or 0) + SHARED_RESERVED, SHARED_UNIT)
    limits = {
        "threads": device.threads_per_multiprocessor // (warps * WARP),
        "registers": warps_by_registers // warps,
        "shared memory": device.shared_per_multiprocessor // shared,
        "blocks": device.blocks_per_multiprocessor,
    }
    limit = min(limits, key=lambda name: limits[name])
    return Occupancy(limits[limit], limits[limit] * warps * WARP / device.threads_per_multiprocessor, limit)


_TENSOR_OP = re.compile(r"\b(?:(?P<byte>[QI])|H)G?MMA\.\S*?(?P<tf32>TF32)?[\s.]")


def tensor_speed(listing: str) -> float | None:
    """Speed of the tensor instructions in a kernel's machine code, in units of the f16 peak; None where it has none.

    8-bit operands run twice as fast, TF32 half as fast.
    """
    best: float | None = None
    for line in listing.splitlines():
        if "MMA" in line and "HFMA2.MMA" not in line and (found := _TENSOR_OP.search(line)):
            speed = 2.0 if found["byte"] else 0.5 if ".TF32" in line else 1.0
            best = max(best or 0.0, speed)
    return best


def roofline(kernel: KernelInfo, device: Device, tensor: float | None) -> Roofline | None:
    """Time by bytes and FLOPs of one launch, on the tensor cores at ``tensor`` times their f16 peak or on plain FMA units;
    None where neither bytes nor FLOPs are known."""
    if kernel.bytes is None and kernel.flops is None:
        return None
    memory = (kernel.bytes or 0) / device.bandwidth
    peak, unit = (device.tensor_flops * tensor, "tensor cores") if tensor else (device.flops, "FMA units")
    arithmetic = (kernel.flops or 0) / peak
    return Roofline(memory, "memory") if memory >= arithmetic else Roofline(arithmetic, unit)


_HEADINGS: tuple[str, ...] = (
    "kernel", "schedule", "launches", "threads", "registers", "shared", "spilled", "stack", "blocks/SM", "occupancy",
    "limited by", "bytes", "FLOPs", "roofline", "bound",
)  # fmt: skip


def kernel_table(plan: LaunchPlan, listings: Mapping[str, str], others: str = "") -> str:
    """One line a kernel, for people; ``listings`` is the machine code by kernel, ``others`` are ops that another compiler
    has to compile."""
    device = device_of(plan.arch)
    launches = Counter(step.kernel for f in plan.functions for step in f.steps if isinstance(step, Launch))
    rows = [_HEADINGS]
    rows += [_row(kernel, device, launches[kernel.name], listings.get(kernel.name, "")) for kernel in plan.kernels]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    heading = (
        f"{len(plan.kernels)} kernels for {device.arch}; occupancy of its multiprocessor; roofline time of one launch on "
        f"{device.board} ({device.bandwidth / 1e12:g} TB/s, {device.tensor_flops / 1e12:g} TFLOP/s f16 on tensor cores, "
        f"{device.flops / 1e12:g} TFLOP/s f32)"
    )
    spilled = [kernel.name for kernel in plan.kernels if kernel.spill_bytes]
    notes = [f"registers spill to memory in: {', '.join(spilled)}"] if spilled else []
    notes += [f"ptxas on {kernel.name}: {kernel.warning}" for kernel in plan.kernels if kernel.warning]
    notes += [f"left to IREE: {others}"] if others else []
    return "\n".join([heading, *notes, "", *lines]) + "\n"


def _row(kernel: KernelInfo, device: Device, launches: int, listing: str) -> tuple[str, ...]:
    fits = occupancy(kernel, device) if kernel.registers is not None else None
    least = roofline(kernel, device, tensor_speed(listing))
    return (
        kernel.name,
        kernel.schedule,
        str(launches),
        str(kernel.threads),
        _number(kernel.registers),
        str(kernel.shared_bytes + (kernel.static_shared_bytes or 0)),
        _number(kernel.spill_bytes),
        _number(kernel.stack_bytes),
        str(fits.blocks) if fits else "-",
        f"{fits.share:.0%}" if fits else "-",
        fits.limit if fits else "-",
        _number(kernel.bytes),
        _number(kernel.flops),
        f"{least.seconds * 1e6:.3g} us" if least else "-",
        least.bound if least else "-",
    )


def _aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    """Text to the left, numbers to the right."""
    text = {0, 1, 10, 14}
    return [
        cell.ljust(w) if column in text else cell.rjust(w) for column, (cell, w) in enumerate(zip(row, widths, strict=True))
    ]


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
