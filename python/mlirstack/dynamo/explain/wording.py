"""Numbers and sentences that the report for the terminal and the one for the browser have in common."""

from __future__ import annotations

from mlirstack.dynamo.explain.explanation import Explanation
from mlirstack.dynamo.explain.kernels import BufferLife
from mlirstack.dynamo.explain.optimizations import Fusion, Memory
from mlirstack.dynamo.explain.recompiles import Recompile

STAGES = (
    ("capture", "bytecode to FX graphs, with guards", "Dynamo"),
    ("AOT autograd", "decompositions, joint graph, partition", "AOTAutograd"),
    ("code generation", "fusion, kernels, compiler", "Inductor"),
)


def count(number: int, what: str) -> str:
    """``1 graph``, ``2 graphs``."""
    if number == 1:
        return f"1 {what}"
    return f"{number} {what[:-1]}ies" if what.endswith("y") else f"{number} {what}s"


def size(number: int | None) -> str:
    """Bytes in the unit in which they are short; a dash where they are not known."""
    if number is None:
        return "-"
    value, units = float(number), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{int(value)} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def duration(seconds: float | None) -> str:
    """Seconds in a unit in which they are short; a dash where they are not known."""
    if seconds is None:
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e6:.1f} µs"


def share(value: float | None) -> str:
    """A share as per cent."""
    return "not measured" if value is None else f"{value * 100:.1f} %"


def summary(found: Explanation) -> str:
    """The whole in one sentence."""
    parts = [
        count(found.graph_count, "graph"),
        count(len(found.breaks), "graph break"),
        count(len(found.recompiles), "recompilation"),
        count(len(found.kernels), "kernel call"),
    ]
    return ", ".join(parts) + (f"; compiling raised: {found.error}" if found.error else "")


def fusion_sentence(found: Fusion) -> str:
    """Kernels and bytes, without fusion and with it."""
    moved = f"{size(found.bytes_without)} → {size(found.bytes_with)} moved"
    return f"{found.kernels_without} → {count(found.kernels_with, 'kernel')}, {moved}"


def stage_seconds(found: Explanation) -> tuple[float | None, float | None, float | None]:
    """Seconds of the three stages over all compilations; None where torch gives one of them for no compilation."""

    def total(values: list[float | None]) -> float | None:
        given = [value for value in values if value is not None]
        return sum(given) if given else None

    return (
        total([s.capture for s in found.stages]),
        total([s.aot for s in found.stages]),
        total([s.codegen for s in found.stages] + [s.codegen_backward for s in found.stages]),
    )


def recompile_sentence(found: Recompile, torch: str) -> str:
    """What changed, in words."""
    missing = f"not given by torch {torch.partition('+')[0]}"
    what = {"argument": "argument", "attribute": "attribute", "global": "global", "mode": "mode", "limit": ""}
    name = f"{what.get(found.kind, found.kind)} {found.what}".strip()
    if found.kind == "dimension":
        name = found.what
    if missing in (found.before, found.after):
        known = f" (it was {found.before})" if found.before != missing else ""
        return f"{name} changed{known}; the new value is {missing}"
    return f"{name} changed from {found.before} to {found.after}"


def place(file: str, line: int, base: str = "") -> str:
    """``file:line``, relative to the working directory where the file is below it."""
    short = file.removeprefix(base.rstrip("/") + "/") if base else file
    return f"{short}:{line}" if line else short


def speed_lines(found: Explanation) -> list[tuple[str, str, str]]:
    """Way of running, time per call, and its ratio to eager."""
    times = found.times
    if times is None:
        return []
    name = "compiled, with its breaks" if found.breaks else "compiled, one graph"
    rows = [("eager", times.eager), (name, times.compiled), ("compiled whole", times.whole if found.breaks else None)]
    lines = []
    for way, timing in rows:
        if timing is not None:
            lines.append((way, duration(timing.median_s), f"{times.eager.median_s / timing.median_s:.2f}x"))
        elif way == "compiled whole" and found.breaks:
            lines.append((way, "not possible", times.why_not_whole))
    return lines


def chart_rows(memory: Memory, width: int) -> list[tuple[BufferLife, int, int]]:
    """For each buffer of a lifetime chart its first column and its number of columns."""
    calls = max(memory.calls, 1)
    rows = []
    for life in memory.lives:
        start = life.first * width // calls
        stop = max((life.last + 1) * width // calls, start + 1)
        rows.append((life, start, stop - start))
    return rows
