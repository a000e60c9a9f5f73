"""A bisection for people (tables, a plot) and for programs (JSON data)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mlirstack.compare.bisect.results import BY_REST, RAN, Bisection, Verdict
from mlirstack.compare.table import plain_data
from mlirstack.errors import UsageError

_STYLES = {"ok": "green", "wrong": "bold red", "crash": "bold red", "timeout": "bold red", "error": "yellow"}
_UNKNOWN = {
    "error": "could not be executed",
    "needs a device": "need a device",
    "built": "are built, to be executed where there is a device",
}
_FLOOR = 1e-17  # where no error at all is drawn


def as_json(found: Bisection) -> dict[str, Any]:
    """The bisection as ``bisect --json`` writes it: plain data, NaN and infinities as text."""
    data: dict[str, Any] = plain_data(asdict(found))
    data["reproducer"] = str(found.reproducer) if found.reproducer else None
    return data


def print_bisection(found: Bisection, console: Console) -> None:
    """One line per stage with the growth of the error, then what was found."""
    console.print(_table(f"{found.model} → {found.target} (route {found.route}), against {found.reference}", found.stages))
    if found.passes:
        wrong = found.first_wrong_stage or ""
        in_turn = found[wrong].how == BY_REST
        title = f"the passes from stage '{wrong}' on, each left out in turn" if in_turn else f"the passes of stage '{wrong}'"
        console.print(_table(title if in_turn else f"{title}, one by one", found.passes, "pass"))
    for line in conclusions(found):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_summary(found: Sequence[Bisection], console: Console) -> None:
    """One line per model: how many stages were executed, the largest error, the first wrong stage."""
    table = Table(title="stages against eager", title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("model", "target", "route", "stages executed", "largest error", "largest share of tolerance", "verdict"):
        table.add_column(column, justify="right" if "largest" in column or "stages" in column else "left")
    for one in found:
        ran = [stage for stage in one.stages if stage.rel_l2 is not None]
        shares = [(s.rel_l2 or 0.0) / s.tolerance for s in ran if s.tolerance]
        verdict = "ok" if one.ok else one.first_wrong_stage or "the lowering fails"
        table.add_row(
            one.model,
            one.target,
            one.route,
            f"{sum(stage.status in RAN for stage in one.stages)} of {len(one.stages)}",
            f"{max((s.rel_l2 or 0.0 for s in ran), default=0.0):.1e}",
            f"{max(shares, default=0.0):.2f}",
            Text(verdict, style="green" if one.ok else "bold red"),
        )
    console.print(table)
    right = sum(one.ok for one in found)
    executed = sum(stage.status in RAN for one in found for stage in one.stages)
    console.print(f"{right} of {len(found)} are right at every stage that was executed ({executed} stages)")


def conclusions(found: Bisection) -> list[str]:
    """What was found, in sentences."""
    lines: list[str] = []
    wrong = found.first_wrong_stage
    if found.failure:
        lines.append(f"the lowering fails: {found.failure}")
    if wrong is None:
        last = found.right_down_to
        lines.append(f"no stage is wrong, down to '{last}'" if last else "no stage could be executed")
        for status, why in _UNKNOWN.items():
            names = [stage.name for stage in found.stages if stage.status == status]
            if names and last:
                lines.append(f"not known of {len(names)}, which {why}: {', '.join(names)}")
        return lines
    verdict = found[wrong]
    lines.append(f"first wrong stage: {wrong}: {verdict.symptom or verdict.reason}")
    others = [stage for stage in found.suspects if stage != wrong]
    if others:
        lines.append(f"  or one that cannot be executed without it: {', '.join(others)}")
    if found.guilty or found.pass_note:
        lines.append("pass: " + ", ".join(filter(None, (found.guilty, found.pass_note))))
    if found.op:
        place = f" from {found.op.location}" if found.op.location else ""
        proof = f"with {found.op.instead} in its place the answer is right" if found.op.confirmed else "not confirmed"
        lines.append(f"op: {found.op.op}{place}: off by {found.op.rel_l2:.1e}; {proof}")
        lines.append(found.op.text)
    if found.op_note:
        lines.append(f"op: {found.op_note}")
    if found.reproducer:
        lines += [f"reproducer: {found.reproducer}", f"  mlirstack reproduce {found.reproducer}"]
    return lines


def _table(title: str, verdicts: Sequence[Verdict], what: str = "stage") -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in (what, "level", "status", "executed by"):
        table.add_column(column)
    table.add_column("relative L2", justify="right")
    table.add_column("error", no_wrap=True)
    table.add_column("why", overflow="fold")
    earlier: str | None = None
    for verdict in verdicts:
        why = verdict.symptom or verdict.reason
        error = "" if verdict.rel_l2 is None else f"{verdict.rel_l2:.2e}"
        style = _STYLES.get(verdict.status, "dim")
        table.add_row(
            verdict.name,
            verdict.level,
            Text(verdict.status, style=style),
            verdict.how or "",
            error,
            Text(_bar(verdict), style=style),
            Text("as before" if why and why == earlier else why or ""),
        )
        earlier = why
    return table


def _bar(verdict: Verdict) -> str:
    """One block per decade above the smallest error that float64 can show."""
    if verdict.rel_l2 is None or verdict.rel_l2 == 0:
        return ""
    if not math.isfinite(verdict.rel_l2):
        return "█" * 20
    return "█" * max(1, min(20, round(math.log10(verdict.rel_l2) + 17)))


# ------------------------------------------------------------------------------------------------------------------- plot


def write_plot(found: Bisection, path: Path) -> None:
    """Write the growth of the error through the stages as an SVG picture; :class:`UsageError` where it cannot be."""
    if path.suffix != ".svg":
        raise UsageError(f"{path}: plots are written as SVG", hint="name a file that ends in .svg")
    try:
        path.write_text(plot(found))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def plot(found: Bisection) -> str:
    """SVG text: stages from left to right, the relative L2 error on a logarithmic axis, the tolerance dashed."""
    step, left, top, height = 72, 64, 40, 260
    low, high = math.log10(_FLOOR), 2.0
    width = left + step * max(len(found.stages), 1) + 24

    def y(error: float) -> float:
        clipped = min(max(math.log10(max(error, _FLOOR)), low), high) if math.isfinite(error) else high
        return top + height * (high - clipped) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top + height + 90}" font-family="sans-serif" '
        'font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="20" font-size="14">{escape(found.model)} → {escape(found.target)}: relative L2 error</text>',
    ]
    for decade in range(int(low), int(high) + 1, 3):
        at = y(10.0**decade)
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">1e{decade}</text>')
    points: list[str] = []
    tolerances: list[str] = []
    for number, verdict in enumerate(found.stages):
        x = left + step * (number + 0.5)
        place = f'x="{x:.0f}" y="{top + height + 16}"'
        turned = f"rotate(-40 {x:.0f} {top + height + 16})"
        parts.append(f'<text {place} text-anchor="end" transform="{turned}">{escape(verdict.name)}</text>')
        if verdict.rel_l2 is None:
            continue
        at = y(verdict.rel_l2)
        color = "#c62828" if verdict.is_wrong else "#2e7d32"
        points.append(f"{x:.1f},{at:.1f}")
        title = f"<title>{escape(verdict.name)}: {verdict.rel_l2:.2e}</title>"
        parts.append(f'<circle cx="{x:.1f}" cy="{at:.1f}" r="5" fill="{color}">{title}</circle>')
        if verdict.tolerance:
            tolerances.append(f"{x:.1f},{y(verdict.tolerance):.1f}")
    parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="#555"/>')
    parts.append(f'<polyline points="{" ".join(tolerances)}" fill="none" stroke="#f9a825" stroke-dasharray="5 4"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"
