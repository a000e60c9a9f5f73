"""What a dump of target cuda says about the program as a whole: kernels, launches and device memory.

The launch plan of the dump goes in, rows for tables and boxes for the memory plot come out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from mlirstack.ir.locations import Origin
from mlirstack.passes.cuda.plan import Launch, LaunchPlan, PlannedFunction
from mlirstack.passes.cuda.resources import occupancy, roofline, tensor_speed
from mlirstack.passes.cuda.sass import kernel_listings
from mlirstack.report.dump_files import DumpFiles
from mlirstack.report.plots import ArenaBuffer, arena, size_text
from mlirstack.schedules.cuda.device import device_of


@dataclass(frozen=True)
class KernelRow:
    """One kernel: how often it is launched, what it takes of a multiprocessor, the least time of one launch."""

    name: str
    schedule: str
    launches: int
    threads: int
    registers: int | None
    shared: int
    spilled: int | None
    occupancy: str
    limit: str
    bytes: str
    flops: str
    roofline: str
    bound: str


@dataclass(frozen=True)
class MemoryView:
    """The arena of one planned function: bytes with and without reuse, and the plot of its buffers."""

    function: str
    arena: str
    unshared: str
    buffers: int
    plot: str = field(repr=False)


@dataclass(frozen=True)
class PlanView:
    """All there is to show of a plan."""

    arch: str
    kernels: tuple[KernelRow, ...]
    memory: tuple[MemoryView, ...]


def plan_view(dump: DumpFiles, kernels: Mapping[str, frozenset[Origin]]) -> PlanView | None:
    """The view of the plan in ``dump``; None where the target has none."""
    stage = next((s for s in dump.stages if s.level == "plan"), None)
    if stage is None:
        return None
    plan = LaunchPlan.from_json(stage.text)
    listing = next((s.complete_text for s in dump.stages if s.level == "sass"), "")
    return PlanView(plan.arch, _rows(plan, kernel_listings(listing)), tuple(_memory(f) for f in plan.functions if f.buffers))


def _rows(plan: LaunchPlan, listings: Mapping[str, str]) -> tuple[KernelRow, ...]:
    device = device_of(plan.arch)
    launches = Counter(step.kernel for f in plan.functions for step in f.steps if isinstance(step, Launch))
    rows = []
    for kernel in plan.kernels:
        fits = occupancy(kernel, device) if kernel.registers is not None else None
        least = roofline(kernel, device, tensor_speed(listings.get(kernel.name, "")))
        rows.append(
            KernelRow(
                kernel.name,
                kernel.schedule,
                launches[kernel.name],
                kernel.threads,
                kernel.registers,
                kernel.shared_bytes + (kernel.static_shared_bytes or 0),
                kernel.spill_bytes,
                f"{fits.share:.0%}" if fits else "",
                fits.limit if fits else "",
                size_text(kernel.bytes) if kernel.bytes is not None else "",
                _flops(kernel.flops),
                f"{least.seconds * 1e6:.3g} µs" if least else "",
                least.bound if least else "",
            )
        )
    return tuple(rows)


def _flops(count: int | None) -> str:
    if not count:
        return ""
    value, units = float(count), ["", "k", "M", "G", "T"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.3g} {units[0]}".rstrip()


def _memory(function: PlannedFunction) -> MemoryView:
    placed = [
        ArenaBuffer(number, buffer.bytes, buffer.offset, buffer.first, buffer.last)
        for number, buffer in enumerate(function.buffers)
        if buffer.kind == "temporary" and isinstance(buffer.bytes, int) and buffer.offset is not None
    ]
    total = function.arena_bytes or 0
    plot = arena(placed, len(function.steps), total) if placed else ""
    unshared = size_text(function.unshared_bytes) if function.unshared_bytes is not None else "known at run time"
    shown = size_text(total) if function.arena_bytes is not None else "known at run time"
    return MemoryView(function.name, shown, unshared, len(placed), plot)
