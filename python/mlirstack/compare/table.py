"""A report for people (a table) and for programs (JSON data)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mlirstack.compare.results import Report, TargetResult

_STYLES = {"ok": "green", "mismatch": "bold red", "error": "red", "unavailable": "yellow"}


def as_json(report: Report) -> dict[str, Any]:
    """The report as ``compare --json`` writes it: plain data, NaN and infinities as text."""
    data = {
        "model": report.model,
        "reference": "eager",
        "precision": report.precision,
        "note": report.note,
        "threads": report.threads,
        "results": [asdict(result) for result in report.results],
    }
    plain: dict[str, Any] = plain_data(data)
    return plain


def print_report(report: Report, console: Console) -> None:
    """One model: a line per target, then what is wrong, then how to read the table."""
    console.print(_table(f"{report.model} against eager in {report.precision}", [report], with_model=False))
    _print_reasons([report], console)
    if report.note:
        console.print(report.note, style="dim", markup=False, highlight=False)
    _print_legend([report], console)


def print_reports(reports: Sequence[Report], console: Console) -> None:
    """Several models in one table."""
    console.print(_table("against eager", reports, with_model=True))
    _print_reasons(reports, console)
    _print_legend(reports, console)


def _table(title: str, reports: Sequence[Report], *, with_model: bool) -> Table:
    results = [result for report in reports for result in report.results]
    benched = any(result.median_s is not None for result in results)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    if with_model:
        table.add_column("model")
    table.add_column("target")
    table.add_column("answer")
    table.add_column("route")
    for name in ("rel. L2", "allowed", "max abs", "compile", *(("run", "vs eager") if benched else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for report in reports:
        for result in report.results:
            row = [Text(report.model)] if with_model else []
            table.add_row(*row, *_cells(result, benched=benched))
    return table


def _cells(result: TargetResult, *, benched: bool) -> list[Text]:
    cells = [
        Text(result.target),
        Text(result.status, style=_STYLES[result.status]),
        Text(result.route or "-"),
        Text(_number(result.rel_l2)),
        Text(_number(result.tolerance)),
        Text(_number(result.max_abs)),
        Text(duration(result.compile_s)),
    ]
    if benched:
        ratio = result.ratio_vs_eager
        cells += [Text(duration(result.median_s)), Text("-" if ratio is None else f"{ratio:.2f}x")]
    return cells


def _print_reasons(reports: Sequence[Report], console: Console) -> None:
    for report in reports:
        for result in report.results:
            if result.error:
                line = Text(f"{report.model} on {result.target}: ", style=_STYLES[result.status])
                console.print(line.append(result.error, style="default"))


def _print_legend(reports: Sequence[Report], console: Console) -> None:
    text = "rel. L2, max abs: error of the worst output; allowed: tolerance of rel. L2 for its dtype."
    console.print(text, style="dim", highlight=False)
    if any(result.median_s is not None for report in reports for result in report.results):
        threads = max(report.threads for report in reports)
        text = f"run: median of interleaved runs, {threads} thread{'s' if threads > 1 else ''}; vs eager: above 1 is faster."
        console.print(text, style="dim", highlight=False)


def duration(seconds: float | None) -> str:
    """Seconds with three digits and a fitting unit."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _number(value: float | None) -> str:
    return "-" if value is None else "0" if value == 0 else f"{value:.1e}"


def plain_data(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(item) for item in value]
    return value
