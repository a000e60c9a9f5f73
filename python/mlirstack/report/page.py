"""A dump as one HTML file: texts, colours and links as compressed data, a small script that shows them.

A dump goes in, the text of a page that needs no network comes out.  Each stage is a blob of its own, unpacked when it is
first shown, so that the page opens at once whatever the size of the model.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import mlirstack
from mlirstack.errors import MissingDependencyError
from mlirstack.ir.diff import compare_lines
from mlirstack.ir.level import LEVELS
from mlirstack.ir.locations import Origin
from mlirstack.report.dump_files import DumpFiles, StageFiles, is_heading
from mlirstack.report.plots import dialect_histogram
from mlirstack.report.program import PlanView, plan_view
from mlirstack.report.provenance import Provenance, StageLines

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("levels.js", "diff.js", "views.js")
Blob = dict[str, Any]


class _Places:
    """Numbers for places of the model and for sets of them; the page knows both by number."""

    def __init__(self) -> None:
        self.origins: dict[Origin, int] = {}
        self.sets: dict[frozenset[int], int] = {frozenset(): 0}

    def of(self, places: Iterable[Origin]) -> int:
        """The number of a set of places."""
        members = frozenset(self.origins.setdefault(place, len(self.origins)) for place in places)
        return self.sets.setdefault(members, len(self.sets))

    def by_line(self, lines: StageLines | None, count: int) -> list[int]:
        """For each of ``count`` lines the number of its set."""
        found = lines.lines if lines else {}
        return [self.of(found.get(number, ())) for number in range(1, count + 1)]


def render(dump: DumpFiles, provenance: Provenance) -> str:
    """The page of ``dump``, whose lines come from where ``provenance`` says."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ModuleNotFoundError:
        raise MissingDependencyError("Jinja2, which writes the page, is not installed", hint="pip install jinja2") from None
    places = _Places()
    blobs: dict[str, Blob] = {}
    stages = [_stage(stage, provenance, places, blobs) for stage in dump.stages]
    sources = _sources(dump, provenance, places, blobs)
    view = plan_view(dump, provenance.kernels)
    histogram, legend = dialect_histogram(dump.stages)
    data: dict[str, Any] = {
        "stages": stages,
        "sources": sources,
        "kernels": {name: places.of(held) for name, held in provenance.kernels.items()},
        "diffs": _diffs(dump.stages, blobs),
        "nodes": [(node["line"], node["name"]) for node in node_names(places.origins, _graph(dump))],
        "classes": _classes(),
    }
    # All that is shown has its number now.
    data["sets"] = [sorted(members) for members in places.sets]
    data["origins"] = [_origin(origin) for origin in places.origins]
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html").render(
        trace=dump.trace,
        version=mlirstack.__version__,
        style=(_TEMPLATES / "report.css").read_text(),
        script="\n".join((_TEMPLATES / name).read_text() for name in _SCRIPTS),
        data=_packed(data),
        blobs={name: _packed(blob) for name, blob in blobs.items()},
        histogram=histogram,
        legend=legend,
        shares=[(s.name, provenance.stages[s.name]) for s in dump.stages if s.name in provenance.stages],
        note=provenance.note,
        kernels=_kernels(provenance, view, dump),
        plan=view,
        comparison=dump.comparison(),
    )


def _packed(data: Any) -> str:
    text = json.dumps(data, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


@cache
def _classes() -> list[str]:
    from mlirstack.report.colours import CLASSES

    return list(CLASSES)


def _text_blob(lines: list[str], extension: str, sets: list[int]) -> Blob:
    from mlirstack.report.colours import coloured

    lines = [line.expandtabs(8) for line in lines]
    return {"text": "\n".join(lines), "runs": coloured(lines, extension), "sets": sets}


def _stage(stage: StageFiles, provenance: Provenance, places: _Places, blobs: dict[str, Blob]) -> dict[str, Any]:
    level = LEVELS[stage.level]
    lines = provenance.stages.get(stage.name)
    blobs[stage.name] = _text_blob(stage.lines, level.extension, places.by_line(lines, len(stage.lines)))
    steps = []
    for number, step in enumerate(stage.steps()):
        entry: dict[str, Any] = {"name": step.name, "seconds": step.seconds, "ops": step.ops, "blob": None}
        if step.file is not None:
            text = step.file.read_text().splitlines()
            entry["blob"] = f"{stage.name}/{number}"
            blobs[entry["blob"]] = _text_blob(text, level.extension, [])
        steps.append(entry)
    return {
        "index": stage.index,
        "name": stage.name,
        "level": stage.level,
        "doc": level.doc,
        "file": stage.file,
        "seconds": stage.seconds,
        "passes": stage.passes,
        "steps": steps,
        "ops": stage.ops,
        "lines": len(stage.lines),
        "readable": stage.is_text,
        "extension": level.extension,
        "share": lines.share if lines else None,
    }


def _sources(dump: DumpFiles, provenance: Provenance, places: _Places, blobs: dict[str, Blob]) -> list[dict[str, Any]]:
    """The Python files, each line with the places whose calls pass it; the file with most of them first."""
    by_file: dict[str, dict[int, set[Origin]]] = {}
    everything = {o for lines in provenance.stages.values() for found in lines.lines.values() for o in found}
    for origin in everything:
        for frame in origin.user_frames:
            by_file.setdefault(frame.file, {}).setdefault(frame.line, set()).add(origin)
    texts = dump.sources()
    sources = []
    for file in sorted(by_file.keys() & texts.keys(), key=lambda name: -len(by_file[name])):
        lines = texts[file].splitlines()
        name = f"source:{Path(file).name}"
        if name in blobs:
            name = f"source:{file}"
        found = StageLines({number: frozenset(held) for number, held in by_file[file].items()})
        blobs[name] = _text_blob(lines, "py", places.by_line(found, len(lines)))
        sources.append({"name": name, "title": Path(file).name, "file": file, "lines": len(lines)})
    return sources


def _origin(origin: Origin) -> dict[str, Any]:
    line = origin.line
    return {"file": Path(line.file).name, "line": line.line, "node": line.column}


def _diffs(stages: tuple[StageFiles, ...], blobs: dict[str, Blob]) -> list[dict[str, Any]]:
    """What changed from each stage to the next of the same language, and from each dumped pass to the next."""
    found = []
    for before, after in itertools.pairwise(stages):
        if LEVELS[before.level].extension != LEVELS[after.level].extension or not before.is_text:
            continue
        dumped = [f"{after.name}/{i}" for i, step in enumerate(after.steps()) if step.file is not None]
        for a, b in [(before.name, after.name), *itertools.pairwise([before.name, *dumped])]:
            found.append({"a": a, "b": b, "runs": _runs(blobs[a]["text"], blobs[b]["text"])})
    return found


def _runs(a: str, b: str) -> list[list[int]]:
    """``[changed, lines of a from, to, lines of b from, to]``; headings of the dump are not compared."""
    texts = [text.split("\n") for text in (a, b)]
    skip_a, skip_b = (int(is_heading(lines[0])) for lines in texts)
    runs = compare_lines(texts[0][skip_a:], texts[1][skip_b:])
    return [
        [int(r.kind == "changed"), r.a_begin + skip_a, r.a_end + skip_a, r.b_begin + skip_b, r.b_end + skip_b] for r in runs
    ]


def _kernels(provenance: Provenance, view: PlanView | None, dump: DumpFiles) -> list[dict[str, Any]]:
    """Each fused kernel with the nodes of the graph that it computes, and what the plan says about it."""
    graph = _graph(dump)
    known = {row.name: row for row in view.kernels} if view else {}
    names = dict.fromkeys([*known, *provenance.kernels])
    return [
        {"name": name, "nodes": node_names(provenance.kernels.get(name, frozenset()), graph), "row": known.get(name)}
        for name in names
    ]


def _graph(dump: DumpFiles) -> StageFiles | None:
    return next((stage for stage in dump.stages if stage.level == "fx"), None)


def node_names(places: Iterable[Origin], graph: StageFiles | None) -> list[dict[str, Any]]:
    """The nodes of the exported graph that ``places`` are, in the graph's order: name, call, line in the graph's dump."""
    nodes = []
    for number in sorted({place.line.column for place in places if place.line.column}):
        text = graph.lines[number - 1].strip() if graph and number <= len(graph.lines) else ""
        name, _, call = text.partition(" = ")
        call = call.partition("(")[0].removeprefix("torch.ops.")
        nodes.append({"name": name.partition(":")[0], "call": call, "line": number})
    return nodes
