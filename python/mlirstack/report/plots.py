"""Plots of a dump as inline SVG: dialects through the stages, and the arena of device memory over the steps of a plan.

Colours are CSS variables of the page, so that plots follow its theme.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mlirstack.report.dump_files import StageFiles

SERIES = 10  # --series-0 … --series-9 of the style sheet
_WIDTH, _ROW, _LABEL = 900, 26, 112


@dataclass(frozen=True)
class ArenaBuffer:
    """A temporary buffer: its bytes, its place in the arena, and the steps during which it lives, both inclusive."""

    number: int
    bytes: int
    offset: int
    first: int
    last: int


def dialect_histogram(stages: Sequence[StageFiles]) -> tuple[str, list[tuple[str, int]]]:
    """One stacked bar a stage, as wide as its operations on a common scale; and the legend: dialect, number of series."""
    counted = [stage for stage in stages if stage.ops]
    # A dialect matters that is large somewhere: torch has twenty operations, llvm ten thousand.
    largest: dict[str, float] = {}
    for stage in counted:
        for dialect, count in _by_dialect(stage).items():
            largest[dialect] = max(largest.get(dialect, 0), count / stage.op_count)
    named = sorted(largest, key=lambda dialect: -largest[dialect])[: SERIES - 1]
    widest = max((stage.op_count for stage in counted), default=1)
    scale = (_WIDTH - _LABEL - 64) / widest**0.5  # square roots: 20 ops and 20 000 can both be seen
    rows = []
    for number, stage in enumerate(counted):
        y = number * _ROW
        rows.append(f'<text x="{_LABEL - 8}" y="{y + 17}" text-anchor="end">{escape(stage.name)}</text>')
        counts = _by_dialect(stage)
        order = [*((d, counts[d]) for d in named), ("other", sum(c for d, c in counts.items() if d not in named))]
        x, length = float(_LABEL), stage.op_count**0.5 * scale
        for series, (dialect, count) in enumerate(order):
            if count:
                width = length * count / stage.op_count
                rows.append(
                    f'<rect class="s{series}" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{_ROW - 9}">'
                    f"<title>{escape(stage.name)}: {count} {escape(dialect)}</title></rect>"
                )
                x += width
        rows.append(f'<text class="count" x="{x + 6:.1f}" y="{y + 17}">{stage.op_count}</text>')
    legend = [(dialect, series) for series, dialect in enumerate(named)]
    if len(largest) > len(named):
        legend.append(("other", len(named)))
    return _svg(_WIDTH, len(counted) * _ROW + 4, rows, "Operations by dialect through the stages"), legend


def arena(buffers: Sequence[ArenaBuffer], steps: int, arena_bytes: int) -> str:
    """Steps from left to right, addresses from bottom to top: one box a buffer."""
    height = 240
    column = (_WIDTH - _LABEL) / max(steps, 1)
    boxes = []
    for buffer in buffers:
        x, width = _LABEL + buffer.first * column, (buffer.last - buffer.first + 1) * column
        tall = max(buffer.bytes / max(arena_bytes, 1) * height, 1)
        y = height - buffer.offset / max(arena_bytes, 1) * height - tall
        boxes.append(
            f'<rect class="s{buffer.number % SERIES} buffer" x="{x:.1f}" y="{y:.1f}" width="{max(width - 1, 1):.1f}" '
            f'height="{tall:.1f}"><title>buffer {buffer.number}: {size_text(buffer.bytes)} at {buffer.offset}, '
            f"steps {buffer.first} to {buffer.last}</title></rect>"
        )
    axis = [
        f'<text x="{_LABEL - 8}" y="12" text-anchor="end">{size_text(arena_bytes)}</text>',
        f'<text x="{_LABEL - 8}" y="{height}" text-anchor="end">0</text>',
        f'<line class="axis" x1="{_LABEL}" y1="{height + 0.5}" x2="{_WIDTH}" y2="{height + 0.5}"/>',
        f'<text x="{_LABEL}" y="{height + 16}">step 0</text>',
        f'<text x="{_WIDTH}" y="{height + 16}" text-anchor="end">step {max(steps - 1, 0)}</text>',
    ]
    return _svg(_WIDTH, height + 22, [*boxes, *axis], "Temporary buffers in the arena over the steps of the plan")


def size_text(size: int) -> str:
    """``1536`` as ``1.5 KiB``."""
    value, units = float(size), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.3g} {units[0]}"


def _by_dialect(stage: StageFiles) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, count in stage.ops.items():
        counts[name.split(".", 1)[0]] += count
    return counts


def _svg(width: int, height: int, parts: list[str], title: str) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">{body}</svg>'
