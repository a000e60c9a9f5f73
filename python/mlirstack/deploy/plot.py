"""Latencies as an SVG image: one row a contender, a dot a call, the quartiles as a box, the median as a line."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from mlirstack.compare.table import duration
from mlirstack.deploy.bench import BenchReport, Latency

Place = Callable[[float], float]
"""Where on the axis a number of seconds lies."""

_WIDTH, _LABEL, _ROW, _TOP, _BOTTOM = 860, 190, 44, 34, 40
_DOTS = 300  # of a contender; more hide each other
_STYLE = """<style>
text { font: 13px sans-serif; fill: #222 } .title { font-weight: bold } .axis { fill: #666 }
.grid { stroke: #ddd } .dot { fill: #4477aa; fill-opacity: .35 } .box { fill: none; stroke: #222 }
.median { stroke: #cc3311; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .axis { fill: #aaa } .grid { stroke: #444 } .box { stroke: #ddd }
}
</style>"""


def latency_plot(report: BenchReport) -> str:
    """An SVG document; latencies on a logarithmic axis, since contenders may differ by orders of magnitude."""
    rows = [(result.contender, result.latency) for result in report.results if result.latency]
    values = [value for _, latency in rows for value in (latency.quantile(0.0), latency.quantile(0.99))]
    low, high = math.log10(min(values, default=1e-6)) - 0.05, math.log10(max(values, default=1.0)) + 0.05

    def place(seconds: float) -> float:
        part = (math.log10(seconds) - low) / (high - low)
        return _LABEL + min(max(part, 0.0), 1.0) * (_WIDTH - _LABEL - 20)

    height = _TOP + _ROW * len(rows) + _BOTTOM
    title = f"{report.model} on {report.device}: latency of a call, {report.threads} thread(s) of the processor"
    parts = [_STYLE, f'<text class="title" x="8" y="20">{escape(title)}</text>']
    for tick in _ticks(low, high):
        x = place(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{height - _BOTTOM}"/>')
        parts.append(f'<text class="axis" x="{x:.1f}" y="{height - 20}" text-anchor="middle">{duration(tick)}</text>')
    for number, (name, latency) in enumerate(rows):
        middle = _TOP + _ROW * number + _ROW / 2
        parts.append(f'<text x="{_LABEL - 10}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>')
        parts += _row(latency, middle, place)
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">\n{body}\n</svg>\n'


def _row(latency: Latency, middle: float, place: Place) -> list[str]:
    step = max(1, len(latency.samples) // _DOTS)
    parts = [
        # Spread over the row by a fixed pattern, so that equal latencies can be told apart.
        f'<circle class="dot" cx="{place(value):.1f}" cy="{middle - 12 + 24 * (i * 0.618 % 1):.1f}" r="2"/>'
        for i, value in enumerate(latency.samples[::step])
    ]
    first, median, third = (place(latency.quantile(part)) for part in (0.25, 0.5, 0.75))
    parts.append(f'<rect class="box" x="{first:.1f}" y="{middle - 9}" width="{third - first:.1f}" height="18"/>')
    parts.append(f'<line class="median" x1="{median:.1f}" x2="{median:.1f}" y1="{middle - 13}" y2="{middle + 13}"/>')
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 between them where the axis is short."""
    factors = (1, 2, 5) if high - low < 2.5 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    return [f * 10.0**p for p in powers for f in factors if low <= math.log10(f) + p <= high]
