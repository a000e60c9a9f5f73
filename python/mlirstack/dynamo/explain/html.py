"""The report of ``explain`` as one self-contained page: no scripts, no fonts or styles from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer, PythonLexer
from pygments.lexers.special import TextLexer

from mlirstack.dynamo.explain import wording
from mlirstack.dynamo.explain.breaks import is_library
from mlirstack.dynamo.explain.doctor import decision_table
from mlirstack.dynamo.explain.explanation import Explanation
from mlirstack.dynamo.explain.optimizations import Memory

_CHART = 640  # pixels of a lifetime chart
_ROW = 18
_CONTEXT = 3  # lines of the user's program around a break
_LEXERS = {"c++": CppLexer(), "triton": PythonLexer(), "graph": PythonLexer(), "text": TextLexer()}


@dataclass(frozen=True)
class Bar:
    """One buffer of a lifetime chart, in pixels."""

    name: str
    label: str
    x: int
    y: int
    width: int
    reuses: bool


@dataclass(frozen=True)
class Chart:
    """A lifetime chart: buffers from top to bottom, calls of kernels from left to right."""

    title: str
    height: int
    bars: tuple[Bar, ...]


def as_html(found: Explanation) -> str:
    """The page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        size=wording.size,
        duration=wording.duration,
        fusion=wording.fusion_sentence,
        share=wording.share,
        base=lambda file: Path(file).name,
        code=_code,
        prose=_prose,
    )
    return environment.get_template("explain.html.jinja").render(
        found=found,
        summary=wording.summary(found),
        stages=list(zip(wording.STAGES, wording.stage_seconds(found), strict=True)),
        titles={category.name: category.title for category in decision_table()},
        breaks=[
            (one, _snippet(one.found.file, one.found.line), [f for f in one.found.frames if not is_library(f.file)])
            for one in found.breaks
        ],
        recompiles=[(one, wording.recompile_sentence(one, found.torch)) for one in found.recompiles],
        speeds=wording.speed_lines(found),
        charts=_charts(found),
        here=str(Path.cwd()),
        place=wording.place,
        styles=_styles(),
    )


def _styles() -> str:
    """Colours of code for light and dark pages."""
    light = HtmlFormatter(style="friendly").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".code")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n.code {{ background: var(--surface); }}"


def _code(text: str, language: str) -> Markup:
    return Markup(highlight(text, _LEXERS[language], HtmlFormatter(cssclass="code")))


def _prose(text: str) -> Markup:
    """Text in which code stands between backticks."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(p) if index % 2 else p for index, p in enumerate(parts))


def _snippet(file: str, line: int) -> list[tuple[int, str, bool]]:
    """Lines around a line: number, text, and whether it is the one."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return []
    first = max(line - _CONTEXT, 1)
    return [(n, lines[n - 1], n == line) for n in range(first, min(line + _CONTEXT, len(lines)) + 1)]


def _charts(found: Explanation) -> list[Chart]:
    charts = list(found.optimizations.memory) if found.optimizations else []
    if found.own and found.own.memory:
        charts.append(("mlirstack, target cuda", found.own.memory))
    return [_chart(name, memory) for name, memory in charts if memory.lives]


def _chart(name: str, memory: Memory) -> Chart:
    bars = tuple(
        Bar(life.name, f"{life.name}, {wording.size(life.bytes)}", start, row * _ROW, width, life.reuses is not None)
        for row, (life, start, width) in enumerate(wording.chart_rows(memory, _CHART))
    )
    peak = f"all buffers {wording.size(memory.without)}, peak with reuse {wording.size(memory.with_reuse)}"
    return Chart(f"{name}: {peak}, over {wording.count(memory.calls, 'step')}", len(bars) * _ROW, bars)
