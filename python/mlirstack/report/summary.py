"""Dumps in the terminal: the stage list, the text of a stage, and what differs between stages or dumps.

Dump files go in; rich renderables and JSON come out.  The commands ``show`` and ``diff`` print them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from mlirstack.ir.diff import DiffStat, compare_lines, stat, unified
from mlirstack.ir.level import LEVELS
from mlirstack.report.dump_files import DumpFiles, StageFiles
from mlirstack.report.provenance import Provenance

_STYLES = {
    "comment": "bright_black", "keyword": "magenta", "type": "cyan", "op": "bold blue", "number": "yellow",
    "string": "green", "symbol": "bright_magenta", "attr": "yellow",
}  # fmt: skip


def as_json(dump: DumpFiles, provenance: Provenance, file: Path) -> dict[str, Any]:
    """What a report says in numbers: shares by stage, and the nodes of each kernel by their lines in the graph's dump."""
    shares = [
        {"stage": stage.name, "level": stage.level, "known": lines.known, "total": lines.total, "share": lines.share}
        for stage in dump.stages
        if (lines := provenance.stages.get(stage.name)) is not None
    ]
    kernels = {
        name: sorted({place.line.column for place in places if place.line.column})
        for name, places in provenance.kernels.items()
    }
    return {
        "model": dump.trace["model"], "target": dump.trace["target"], "report": str(file), "provenance": shares,
        "kernels": kernels,
    }  # fmt: skip


def stage_table(dump: DumpFiles) -> Table:
    """All stages: time, operations, the change in their number, size of the file."""
    table = Table(
        title=f"{dump.trace['model']} → {dump.trace['target']} (route {dump.trace['route'] or '-'})", title_justify="left"
    )
    for column in ("#", "stage", "level"):
        table.add_column(column)
    for column in ("ms", "ops", "change", "lines"):
        table.add_column(column, justify="right")
    table.add_column("most frequent ops", overflow="fold")
    before = 0
    for stage in dump.stages:
        count = stage.op_count
        change = f"{count - before:+d}" if count and before else ""
        frequent = ", ".join(f"{n} {op}" for op, n in list(stage.ops.items())[:4])
        lines = str(len(stage.lines)) if stage.is_text else ""
        table.add_row(
            f"{stage.index:02d}",
            stage.name,
            stage.level,
            f"{stage.seconds * 1e3:.1f}",
            str(count or ""),
            change,
            lines,
            frequent,
        )
        before = count or before
    return table


def coloured_text(stage: StageFiles) -> Text:
    """The text of a stage in the colours of a terminal."""
    from mlirstack.report.colours import CLASSES, coloured

    lines = [line.expandtabs(8) for line in stage.lines]
    shown = Text("\n".join(lines))
    runs = iter(coloured(lines, LEVELS[stage.level].extension))
    at = 0
    for length, kind in zip(runs, runs, strict=True):
        style = _STYLES.get(CLASSES[kind])
        if style and length:
            shown.stylize(style, at, at + length)
        at += length or 1  # a run of no length ends a line
    return shown


# ----------------------------------------------------------------------------------------------------------- two stages


def stage_diff(a: StageFiles, b: StageFiles, name_a: str, name_b: str) -> list[str]:
    """Unified diff of two stages without their headings; empty where they are equal but for the names of values."""
    return list(unified(a.body, b.body, name_a, name_b))


def stage_stat(a: StageFiles, b: StageFiles) -> DiffStat:
    """Lines that only one of two stages has."""
    return stat(compare_lines(a.body, b.body))


def op_changes(a: dict[str, int], b: dict[str, int]) -> dict[str, tuple[int, int]]:
    """``{op: (before, after)}`` of the operations whose number differs, the largest difference first."""
    changed = {op: (a.get(op, 0), b.get(op, 0)) for op in {*a, *b} if a.get(op, 0) != b.get(op, 0)}
    return dict(sorted(changed.items(), key=lambda entry: (-abs(entry[1][1] - entry[1][0]), entry[0])))


def coloured_diff(lines: Iterable[str]) -> Iterator[Text]:
    """The lines of a diff: removed, added, positions and names in colours."""
    styles = {"---": "bold", "+++": "bold", "@@": "cyan", "-": "red", "+": "green"}
    for line in lines:
        yield Text(line, next((style for start, style in styles.items() if line.startswith(start)), ""))


def op_table(changes: dict[str, tuple[int, int]], name_a: str, name_b: str) -> Table:
    """Operations whose number differs."""
    table = Table()
    table.add_column("operation")
    for column in (name_a, name_b, "change"):
        table.add_column(column, justify="right")
    for op, (before, after) in changes.items():
        table.add_row(op, str(before), str(after), f"{after - before:+d}")
    return table


# ------------------------------------------------------------------------------------------------------------ two dumps


@dataclass(frozen=True)
class StagePair:
    """One stage in two dumps.  ``same``: the same bytes, or the same text but for the names of values.

    ``removed`` and ``added`` are lines, ``ops`` counts of operations, ``seconds`` times; None where a dump lacks the stage.
    """

    name: str
    same: bool | None
    removed: int = 0
    added: int = 0
    ops: tuple[int | None, int | None] = (None, None)
    seconds: tuple[float | None, float | None] = (None, None)
    sha256: tuple[str | None, str | None] = (None, None)


@dataclass(frozen=True)
class DumpDifference:
    """Two dumps, stage by stage, and the names and hashes of their artifacts' files."""

    stages: tuple[StagePair, ...]
    options: dict[str, tuple[Any, Any]]

    @property
    def first(self) -> str | None:
        """The first stage that differs, or is in one dump only."""
        return next((pair.name for pair in self.stages if not pair.same), None)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "first_different_stage": self.first,
            "stages": [asdict(pair) for pair in self.stages],
            "options": self.options,
        }


def compare_dumps(a: DumpFiles, b: DumpFiles) -> DumpDifference:
    """Compare two dumps by the names of their stages, in the order of the first, then what only the second has."""
    in_a, in_b = {s.name: s for s in a.stages}, {s.name: s for s in b.stages}
    pairs = tuple(_pair(name, in_a.get(name), in_b.get(name)) for name in dict.fromkeys([*in_a, *in_b]))
    options = {
        key: (a.trace.get(key), b.trace.get(key))
        for key in ("model", "target", "pipeline", "route", "versions", "artifact")
        if a.trace.get(key) != b.trace.get(key)
    }
    return DumpDifference(pairs, options)


def _pair(name: str, a: StageFiles | None, b: StageFiles | None) -> StagePair:
    if a is None or b is None:
        return StagePair(name, None)
    same, found = a.sha256 == b.sha256, DiffStat(0, 0)
    if not same and a.is_text and b.is_text:
        found = stage_stat(a, b)
        same = found == DiffStat(0, 0)
    return StagePair(
        name, same, found.removed, found.added, (a.op_count, b.op_count), (a.seconds, b.seconds), (a.sha256, b.sha256)
    )


def dump_table(difference: DumpDifference, name_a: str, name_b: str) -> Table:
    """All stages of two dumps."""
    table = Table(title=f"{name_a} → {name_b}", title_justify="left")
    table.add_column("stage")
    table.add_column("")
    for column in ("lines", "ops", "ms"):
        table.add_column(column, justify="right")
    table.add_column("sha256")
    for pair in difference.stages:
        if pair.same is None:
            table.add_row(pair.name, "[red]in one dump only[/]", "", "", "", "")
            continue
        lines = "" if pair.same or not (pair.removed or pair.added) else f"-{pair.removed} +{pair.added}"
        ops = _both(*(str(count or "") for count in pair.ops))
        times = " → ".join(f"{(s or 0) * 1e3:.1f}" for s in pair.seconds)
        hashes = _both(*((h or "")[:12] for h in pair.sha256))
        table.add_row(pair.name, "same" if pair.same else "[bold red]differs[/]", lines, ops, times, hashes)
    return table


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} → {b}"
