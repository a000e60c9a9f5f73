"""The report of ``explain`` for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from mlirstack.dynamo.explain import wording
from mlirstack.dynamo.explain.breaks import is_library
from mlirstack.dynamo.explain.doctor import Diagnosis, decision_table
from mlirstack.dynamo.explain.explanation import Explanation, Optimizations
from mlirstack.dynamo.explain.optimizations import Memory
from mlirstack.dynamo.explain.own_pipeline import OwnPipeline
from mlirstack.dynamo.explain.wording import duration, share, size

_CHART = 40  # columns of a lifetime chart
_KERNELS = 40  # rows of the table of kernels
_COLOURS = {"remove now": "green", "rewrite": "yellow", "register": "yellow", "isolate": "magenta", "accept": "cyan"}


def as_text(found: Explanation) -> str:
    """The report as plain text of 120 columns."""
    output = io.StringIO()
    print_explanation(found, Console(file=output, width=120, no_color=True))
    return output.getvalue()


def print_explanation(found: Explanation, console: Console, *, sources: bool = False) -> None:
    """Print the report; ``sources`` adds the text of the generated kernels."""
    for part in _parts(found, sources):
        console.print(part, highlight=False)


def _parts(found: Explanation, sources: bool) -> Iterator[RenderableType]:
    yield Rule(f"[bold]torch.compile of {escape(found.name)}[/] (torch {found.torch})")
    yield Text(wording.summary(found))
    if found.stages:
        yield _diagram(found)
    if found.breaks:
        yield Rule("graph breaks", align="left")
        yield from (_break_panel(number, one) for number, one in enumerate(found.breaks, 1))
    if found.recompiles:
        yield Rule("recompilations", align="left")
        yield _recompile_table(found)
    if found.times:
        yield Rule("run time per call, warm, median", align="left")
        yield _times_table(found)
    if found.kernels:
        yield Rule("kernels", align="left")
        yield _kernel_table(found)
    if found.optimizations:
        yield Rule("graph optimisations", align="left")
        yield _optimization_table(found.optimizations, found.own)
        yield from _memory_charts(found)
    if found.graphs:
        yield Rule("graphs at each step", align="left")
        yield _graph_table(found)
    if found.lab:
        yield Rule("recompile lab", align="left")
        yield _lab_table(found)
    if found.triton:
        yield Rule("Triton kernels", align="left")
        yield _triton(found)
    if found.after:
        yield Rule("rewritten", align="left")
        yield _after_table(found, found.after)
    if sources:
        yield from _sources(found)
    yield from (Text(f"note: {note}") for note in found.notes)


def _diagram(found: Explanation) -> Table:
    """Three boxes with arrows between them."""
    grid = Table.grid(padding=(0, 1))
    cells: list[RenderableType] = []
    for (name, what, who), seconds in zip(wording.STAGES, wording.stage_seconds(found), strict=True):
        if cells:
            cells.append(Text("\n\n▶"))
        cells.append(Panel(f"{who}\n{what}\n[bold]{duration(seconds)}[/]", title=name, width=36))
    grid.add_row(*cells)
    return grid


def _break_panel(number: int, diagnosis: Diagnosis) -> Panel:
    found = diagnosis.found
    title = next(category.title for category in decision_table() if category.name == diagnosis.category)
    lines = [f"[bold]{escape(_short(found.file, found.line))}[/]   {escape(found.source)}"]
    lines.append(f"{escape(found.reason)}" + (f"  [dim]{found.id}[/]" if found.id else ""))
    if found.explanation:
        lines.append(f"[dim]{escape(found.explanation)}[/]")
    lines += [f"[dim]hint: {escape(hint)}[/]" for hint in found.hints[:2]]
    met = f"met {found.hits} times, " if found.hits > 1 else ""
    cost = "compiling fails here" if found.fatal else f"{met}{share(diagnosis.cost_share)} of the run time"
    if found.skipped:
        cost += ", the whole function runs in eager"
    lines.append(f"[bold {_COLOURS[diagnosis.action]}]{diagnosis.action}[/] ({cost}): {escape(diagnosis.how)}")
    own = [frame for frame in found.frames if not is_library(frame.file)]
    if len(own) > 1:
        way = " > ".join(f"{Path(frame.file).name}:{frame.line} {frame.function}" for frame in own[-6:])
        lines.append(f"[dim]{escape(way)}[/]")
    return Panel("\n".join(lines), title=f"{number}  {title}", title_align="left")


def _recompile_table(found: Explanation) -> Table:
    table = Table("function", "what changed", "guard that failed", "at")
    for one in found.recompiles:
        sentence = wording.recompile_sentence(one, found.torch)
        table.add_row(escape(one.function), escape(sentence), escape(one.reason), escape(_short(one.file, one.line)))
    return table


def _times_table(found: Explanation) -> Table:
    table = Table("", "time", "speed against eager")
    for row in wording.speed_lines(found):
        table.add_row(*map(escape, row))
    if found.times and found.times.eager_share is not None and found.breaks:
        table.caption = f"{share(found.times.eager_share)} of a compiled call passes outside of compiled graphs"
    return table


def _kernel_table(found: Explanation) -> Table:
    table = Table("kernel", "kind", "phase", "ops in it", "bytes moved", "lines")
    for kernel in found.kernels[:_KERNELS]:
        lines = ", ".join(f"{Path(file).name}:{line}" for file, line in kernel.lines)
        table.add_row(
            _name(kernel.name), kernel.kind, kernel.phase, ", ".join(kernel.fused_ops), size(kernel.bytes), escape(lines)
        )
    if len(found.kernels) > _KERNELS:
        table.caption = f"and {len(found.kernels) - _KERNELS} more (--json has all)"
    return table


def _name(kernel: str) -> str:
    """A kernel's name, which may list dozens of ops, cut to what a table has room for."""
    return kernel if len(kernel) < 44 else kernel[:40] + "…"


def _optimization_table(found: Optimizations, own: OwnPipeline | None) -> Table:
    table = Table("", "Inductor", *(["mlirstack"] if own else []))
    f, o = found.fusion, own.fusion if own else None
    rows = [
        (
            "fusion: kernels",
            f"{f.kernels_without} → {f.kernels_with}",
            f"{o.kernels_without} → {o.kernels_with}" if o else "",
        ),
        (
            "fusion: bytes moved",
            f"{size(f.bytes_without)} → {size(f.bytes_with)}",
            f"{size(o.bytes_without)} → {size(o.bytes_with)}" if o else "",
        ),
        ("constant folding", _folded(found), f"{own.folded} ops run once, at load" if own else ""),
        ("dead code", _dead(found), f"{size_or_dash(own.dead)} ops less after clean-up" if own else ""),
        (
            "memory: all buffers → peak",
            "\n".join(f"{name}: {_peak(memory)}" for name, memory in found.memory),
            (_peak(own.memory) if own.memory else own.why_not) if own else "",
        ),
    ]
    for row in rows:
        table.add_row(*map(escape, row[: len(table.columns)]))
    return table


def size_or_dash(number: int | None) -> str:
    """A count; a dash where there is none."""
    return "-" if number is None else str(number)


def _folded(found: Optimizations) -> str:
    one = found.constant_folding
    names = ", ".join(f"{node.name} ({Path(node.file).name}:{node.line})" for node in one.folded[:4])
    text = f"{wording.count(len(one.folded), 'node')} folded" + (f": {names}" if names else "")
    return text + (f"; {one.parameters_only} more if parameters are frozen" if one.parameters_only else "")


def _dead(found: Optimizations) -> str:
    one = found.dead_code
    reasons: dict[str, int] = {}
    for node in one.gone:
        reasons[node.why] = reasons.get(node.why, 0) + 1
    text = f"{one.nodes_before} → {one.nodes_after} nodes"
    if reasons:
        text += " (" + ", ".join(f"{number} {why}" for why, number in reasons.items()) + ")"
    if one.unused:
        text += "; unused: " + ", ".join(f"{node.name} ({Path(node.file).name}:{node.line})" for node in one.unused[:4])
    return text


def _peak(memory: Memory) -> str:
    return f"{size(memory.without)} → {size(memory.with_reuse)}"


def _memory_charts(found: Explanation) -> Iterator[RenderableType]:
    charts = list(found.optimizations.memory) if found.optimizations else []
    if found.own and found.own.memory:
        charts.append(("mlirstack, target cuda", found.own.memory))
    for name, memory in charts:
        if not memory.lives:
            continue
        table = Table.grid(padding=(0, 1))
        for life, start, length in wording.chart_rows(memory, _CHART)[:24]:
            bar = " " * start + "█" * length + " " * (_CHART - start - length)
            table.add_row(life.name, size(life.bytes), f"[cyan]{bar}[/]", f"in {life.reuses}" if life.reuses else "")
        yield Group(Text(f"lifetimes, {name} ({wording.count(memory.calls, 'step')})"), table)


def _graph_table(found: Explanation) -> Table:
    table = Table("compilation", "step", "nodes", "that compute")
    for graph in found.graphs:
        table.add_row(graph.compile_id, graph.step, str(len(graph.nodes)), str(len(graph.computing)))
    return table


def _lab_table(found: Explanation) -> Table:
    assert found.lab is not None
    table = Table("", "compilations", *found.lab.shapes, "guards that failed")
    for run in found.lab.runs:
        calls = ["compiled" if number in run.compiled else "·" for number in range(len(found.lab.shapes))]
        guards = "\n".join(dict.fromkeys(one.reason for one in run.recompiles)) or run.error
        table.add_row(run.way, str(run.compilations), *calls, escape(guards))
    return table


def _triton(found: Explanation) -> RenderableType:
    assert found.triton is not None
    if found.triton.why_not:
        return Text(found.triton.why_not)
    table = Table("kernel", "ops in it", "bytes moved", f"Triton, lines ({found.triton.arch})", "PTX, lines")
    for kernel in found.triton.kernels:
        ptx = str(kernel.ptx.count("\n")) if kernel.ptx else kernel.why_no_ptx
        lines = str(kernel.source.count("\n"))
        table.add_row(_name(kernel.name), ", ".join(kernel.fused_ops), size(kernel.bytes), lines, escape(ptx))
    if found.triton.fusion:
        table.caption = f"fusion, calls of libraries included: {wording.fusion_sentence(found.triton.fusion)}"
    return table


def _after_table(before: Explanation, after: Explanation) -> Table:
    table = Table("", "before", "after")
    table.add_row("graphs", str(before.graph_count), str(after.graph_count))
    table.add_row("graph breaks", str(len(before.breaks)), str(len(after.breaks)))
    table.add_row("recompilations", str(len(before.recompiles)), str(len(after.recompiles)))
    table.add_row("kernel calls", str(len(before.kernels)), str(len(after.kernels)))
    for way in ("eager", "compiled"):
        old, new = (getattr(one.times, way) if one.times else None for one in (before, after))
        table.add_row(f"{way}, per call", duration(old and old.median_s), duration(new and new.median_s))
    return table


def _sources(found: Explanation) -> Iterator[RenderableType]:
    seen = set()
    for kernel in found.kernels:
        if kernel.source and kernel.name not in seen:
            seen.add(kernel.name)
            yield Rule(kernel.name, align="left")
            yield Syntax(kernel.source, "cpp" if kernel.kind == "c++" else "python", background_color="default")
    for triton in found.triton.kernels if found.triton else ():
        yield Rule(f"{triton.name}, Triton and PTX", align="left")
        yield Syntax(triton.source.strip("\n"), "python", background_color="default")
        yield Text(triton.ptx.strip("\n") or triton.why_no_ptx)


def _short(file: str, line: int) -> str:
    return wording.place(file, line, str(Path.cwd()))
