"""Which lines of each level come from which lines of the Torch model.

A dump goes in; for each stage and each line of its text the places that it comes from come out.  MLIR says it by the
locations in the bytecode, LLVM IR and PTX by their debug lines, machine code by its DWARF line table; nothing is guessed
from the text of operations.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlirstack.bindings import PassManager, ir, new_context
from mlirstack.errors import SourceLine
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.level import LEVELS
from mlirstack.ir.locations import Origin, OriginCache
from mlirstack.ir.ops import walk
from mlirstack.ir.text import read_module
from mlirstack.pipeline.runner import Observer, StageOutput, StageRun
from mlirstack.pipeline.stage import Pipeline
from mlirstack.report import debug_lines
from mlirstack.report.dump_files import DumpFiles, StageFiles

_TAG = "mlirstack-printed-line"
_FUNCTIONS = ("func.func", "gpu.func", "llvm.func")


@dataclass(frozen=True)
class StageLines:
    """A stage's lines (of the readable file, counted from 1) with the places they come from.

    ``known`` of ``total`` are the operations of a module that know a line of the model; past MLIR the lines of code.
    """

    lines: dict[int, frozenset[Origin]] = field(repr=False)
    known: int = 0
    total: int = 0

    @property
    def share(self) -> float | None:
        """The part that knows its line; None where there is nothing to know."""
        return self.known / self.total if self.total else None


@dataclass(frozen=True)
class Provenance:
    """Stages by name, and for each fused kernel the places of the operations it holds."""

    stages: dict[str, StageLines] = field(repr=False)
    kernels: dict[str, frozenset[Origin]] = field(repr=False)


def provenance_of(dump: DumpFiles) -> Provenance:
    """Read the lines of all stages of ``dump``."""
    stages: dict[str, StageLines] = {}
    kernels: dict[str, frozenset[Origin]] = {}
    last: _ModuleLines | None = None
    for stage in dump.stages:
        if LEVELS[stage.level].is_module and stage.replay is not None:
            last = _module_lines(stage)
            stages[stage.name] = last.stage
            kernels = {**last.kernels, **kernels}  # the first stage with a kernel knows best what it holds
    table = last.by_function if last else _Origins({})
    for stage in dump.stages:
        if stage.level in _READERS:
            located = _READERS[stage.level](dump, stage)
            heading = 1 if stage.has_heading else 0
            found = {n + heading: table.find(function, line) for n, (function, line) in located.lines.items()}
            stages[stage.name] = StageLines(found, sum(1 for o in found.values() if o), located.total)
    _add_graph(dump, stages)
    return Provenance(stages, kernels)


# ----------------------------------------------------------------------------------------------------------------- MLIR


@dataclass(frozen=True)
class _ModuleLines:
    stage: StageLines
    kernels: dict[str, frozenset[Origin]]
    by_function: _Origins


class _Origins:
    """What a debug line stands for: an operation of several places has the line of the first only.

    Within one function, that line stands for all the places of the operations that had it.
    """

    def __init__(self, found: dict[tuple[str, SourceLine], set[Origin]]) -> None:
        self._in_function = found
        self._anywhere: dict[SourceLine, set[Origin]] = defaultdict(set)
        for (_, line), places in found.items():
            self._anywhere[line] |= {place for place in places if place.line == line}

    def find(self, function: str, line: SourceLine | None) -> frozenset[Origin]:
        if line is None or not line.line:
            return frozenset()
        found = self._in_function.get((function, line)) or self._anywhere.get(line)
        return frozenset(found or {Origin((line,))})


def module_share(module: Any) -> tuple[int, int]:
    """``(known, total)``: operations of ``module`` whose location names a line, and all that compute something.

    Declarations of run-time functions and tables of constants belong to no line of a model, and are not counted.
    """
    origins = OriginCache()
    counted = [op for op in walk(module) if not _is_declaration(op)]
    return sum(1 for op in counted if origins(op)), len(counted)


def _is_declaration(op: Any) -> bool:
    if op.name in ("llvm.mlir.global", "memref.global", "gpu.module", "ml_program.global"):
        return True
    return op.name in _FUNCTIONS and not op.regions[0].blocks


def _module_lines(stage: StageFiles) -> _ModuleLines:
    assert stage.replay is not None
    module = read_module(stage.replay, new_context())
    known, total = module_share(module)
    origins = OriginCache()
    operations = [(op, origins(op)) for op in walk(module)]
    kernels, by_function = _functions(module, origins)
    heading = 1 if stage.has_heading else 0
    lines: dict[int, frozenset[Origin]] = defaultdict(frozenset)
    for (_, places), number in zip(operations, _printed_lines(module), strict=True):
        if number:
            lines[number + heading] |= frozenset(places)
    return _ModuleLines(StageLines(dict(lines), known, total), kernels, _Origins(by_function))


def _printed_lines(module: Any) -> list[int]:
    """For each operation the line on which MLIR prints it (0: on none of its own)."""
    with tempfile.TemporaryDirectory(prefix="mlirstack-lines-") as folder, module.context:
        file = Path(folder) / "module.mlir"
        snapshot = f"builtin.module(snapshot-op-locations{{filename={file} tag={_TAG}}})"
        PassManager.parse(snapshot).run(module.operation)
        return [_tagged_line(str(op.location), f'"{_TAG}"("{file}":') for op in walk(module)]


def _tagged_line(location: str, tag: str) -> int:
    """The line behind ``tag``, which stands last in a location."""
    number = location.rpartition(tag)[2].partition(":")[0]
    return int(number) if number.isdigit() else 0


def _functions(
    module: Any, origins: OriginCache
) -> tuple[dict[str, frozenset[Origin]], dict[tuple[str, SourceLine], set[Origin]]]:
    """The places that each kernel's operations come from, and those that each function's lines stand for."""
    kernels: dict[str, frozenset[Origin]] = {}
    by_line: dict[tuple[str, SourceLine], set[Origin]] = defaultdict(set)
    for function in walk(module):
        if function.name not in _FUNCTIONS or not function.regions[0].blocks:
            continue
        name = ir.StringAttr(function.attributes["sym_name"]).value
        inside = [origins(op) for op in walk(function)]
        for op in walk(function):
            places = origins(op)
            if places and op.operands:  # constants are no instructions, and shared by many
                by_line[name, places[0].line] |= set(places)
        if KERNEL_ATTRIBUTE in function.attributes or "nvvm.kernel" in function.attributes:
            kernels[name] = frozenset(place for places in inside for place in places)
    return kernels, by_line


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
