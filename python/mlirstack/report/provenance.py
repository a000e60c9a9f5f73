"""Which lines of each level come from which lines of the Torch model.

A dump goes in; for each stage and each line of its text the places that it comes from come out.  MLIR says it by the
locations in the bytecode, LLVM IR and PTX by their debug lines, machine code by its DWARF line table; nothing is guessed
from the text of operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlirstack.bindings import ir
from mlirstack.errors import MissingDependencyError, SourceLine
from mlirstack.ir.level import LEVELS
from mlirstack.ir.locations import Origin
from mlirstack.pipeline.runner import Observer, StageOutput, StageRun
from mlirstack.pipeline.stage import Pipeline
from mlirstack.report import debug_lines
from mlirstack.report.dump_files import DumpFiles, StageFiles
from mlirstack.report.module_lines import ModuleLines, Places, foreign_lines, module_lines, module_share


@dataclass(frozen=True)
class StageLines:
    """A stage's lines (of the readable file, counted from 1) with the places they come from.

    ``known`` of ``total`` are the operations of a module that know a line of the model; past MLIR the lines of code.
    """

    lines: dict[int, Places] = field(repr=False)
    known: int = 0
    total: int = 0

    @property
    def share(self) -> float | None:
        """The part that knows its line; None where there is nothing to know."""
        return self.known / self.total if self.total else None


@dataclass(frozen=True)
class Provenance:
    """Stages by name, for each fused kernel the places of the operations it holds, and which stages are missing and why."""

    stages: dict[str, StageLines] = field(repr=False)
    kernels: dict[str, Places] = field(repr=False)
    note: str | None = None


def provenance_of(dump: DumpFiles) -> Provenance:
    """Read the lines of all stages of ``dump``."""
    stages: dict[str, StageLines] = {}
    kernels: dict[str, Places] = {}
    modules, note = _modules(dump)
    headings = {stage.name: int(stage.has_heading) for stage in dump.stages}
    for name, found in modules.items():
        lines = {number + headings[name]: places for number, places in found.lines.items()}
        stages[name] = StageLines(lines, found.known, found.total)
        kernels = {**found.kernels, **kernels}  # the first stage with a kernel knows best what it holds
    own = [found.by_function for found in modules.values() if found.by_function]
    table = _Origins(own[-1] if own else {})
    for stage in dump.stages:
        if stage.level in _READERS:
            located = _READERS[stage.level](dump, stage)
            places = {n + headings[stage.name]: table.find(function, line) for n, (function, line) in located.lines.items()}
            stages[stage.name] = StageLines(places, sum(1 for o in places.values() if o), located.total)
    _add_graph(dump, stages)
    return Provenance(stages, kernels, note)


# ----------------------------------------------------------------------------------------------------------------- MLIR


class _Origins:
    """What a debug line stands for: an operation of several places has the line of the first only.

    Within one function, that line stands for all the places of the operations that had it.
    """

    def __init__(self, found: Mapping[tuple[str, SourceLine], Places]) -> None:
        self._in_function = found
        self._anywhere: dict[SourceLine, set[Origin]] = defaultdict(set)
        for (_, line), places in found.items():
            self._anywhere[line] |= {place for place in places if place.line == line}

    def find(self, function: str, line: SourceLine | None) -> Places:
        if line is None or not line.line:
            return frozenset()
        found = self._in_function.get((function, line)) or self._anywhere.get(line)
        return frozenset(found or {Origin((line,))})


def _modules(dump: DumpFiles) -> tuple[dict[str, ModuleLines], str | None]:
    """The stages that are modules, in order, and why those of IREE are not among them."""
    found: dict[str, ModuleLines] = {}
    foreign: dict[str, Path] = {}
    for stage in dump.stages:
        if stage.replay is None:
            continue
        if LEVELS[stage.level].is_module:
            found[stage.name] = module_lines(stage.replay)
        elif LEVELS[stage.level].foreign:
            foreign[stage.name] = stage.replay
    if not foreign:
        return found, None
    try:
        return found | dict(zip(foreign, foreign_lines([*foreign.values()]), strict=True)), None
    except MissingDependencyError as error:
        return found, f"IREE's phases are not linked: {error.message}"


# ------------------------------------------------------------------------------------------------------- graph, machine


def _add_graph(dump: DumpFiles, stages: dict[str, StageLines]) -> None:
    """The exported graph: a place's column is the line of its node."""
    graph = next((stage for stage in dump.stages if stage.level == "fx"), None)
    if graph is None:
        return
    found: dict[int, set[Origin]] = defaultdict(set)
    for lines in stages.values():
        for places in lines.lines.values():
            for place in places:
                if 0 < place.line.column <= len(graph.lines):
                    found[place.line.column].add(place)
    total = sum(1 for line in graph.lines if " = torch.ops." in line or " = operator." in line)
    stages[graph.name] = StageLines(
        {n: frozenset(places) for n, places in found.items()}, len(found), max(total, len(found))
    )


def _llvm_ir(dump: DumpFiles, stage: StageFiles) -> debug_lines.Located:
    return debug_lines.of_llvm_ir(stage.complete_text.splitlines())


def _ptx(dump: DumpFiles, stage: StageFiles) -> debug_lines.Located:
    return debug_lines.of_ptx(stage.complete_text.splitlines())


def _asm(dump: DumpFiles, stage: StageFiles) -> debug_lines.Located:
    code = next((s for s in dump.stages if s.level == "object"), None)
    data = (dump.path / code.file).read_bytes() if code else b""
    return debug_lines.of_assembly(stage.body, data)


def _sass(dump: DumpFiles, stage: StageFiles) -> debug_lines.Located:
    cubin = next((s for s in dump.stages if s.level == "cubin"), None)
    ptx = next((s for s in dump.stages if s.level == "ptx"), None)
    if cubin is None or ptx is None:
        return debug_lines.Located({}, 0)
    lines = debug_lines.of_ptx(ptx.complete_text.splitlines())
    return debug_lines.of_sass(stage.body, (dump.path / cubin.file).read_bytes(), lines)


_READERS = {"llvmir": _llvm_ir, "ptx": _ptx, "asm": _asm, "sass": _sass}


class Shares(Observer):
    """Measures, while a lowering runs, what part of each stage's operations knows its line: ``{stage: (known, total)}``."""

    def __init__(self) -> None:
        self.stages: dict[str, tuple[int, int]] = {}

    def start(self, pipeline: Pipeline, first_index: int) -> None:
        """Another route begins anew."""
        self.stages = {}

    def after(self, run: StageRun, output: StageOutput) -> None:
        """Count the operations of a module."""
        if isinstance(output.payload, ir.Module):
            self.stages[run.stage.name] = module_share(output.payload)

    def least(self) -> tuple[str, float]:
        """The stage with the smallest share, and that share."""
        shares = {name: known / total for name, (known, total) in self.stages.items() if total}
        return min(shares.items(), key=lambda entry: entry[1], default=("", 1.0))
