"""The lines of a module's text, with the places that its operations come from.

Bytecode goes in, a :class:`ModuleLines` comes out.  Modules that only IREE's build of MLIR reads are looked at in the same
way, with its bindings in a process of its own: two builds of MLIR must not share one.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlirstack.bindings import PassManager, ir, new_context
from mlirstack.errors import MlirstackError, SourceLine
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.locations import Origin, OriginCache
from mlirstack.ir.ops import walk
from mlirstack.ir.text import read_module
from mlirstack.passes.iree.compiler import compiler_program
from mlirstack.pipeline.tool import run_tool

Places = frozenset[Origin]

_TAG = "mlirstack-printed-line"
_FUNCTIONS = ("func.func", "gpu.func", "llvm.func")
_EXECUTABLES = ("flow.executable", "stream.executable", "hal.executable.variant")
_FOREIGN_BINDINGS = "iree.compiler"
_TIMEOUT = 300.0  # seconds for all the modules of a dump


@dataclass(frozen=True)
class ModuleLines:
    """The places of each line of a module's text (counted from 1), of each kernel, and of each line within a function that
    an operation names first.

    ``known`` of ``total`` are the operations that know a line of the model.
    """

    lines: dict[int, Places] = field(repr=False)
    known: int
    total: int
    kernels: dict[str, Places] = field(repr=False)
    by_function: dict[tuple[str, SourceLine], Places] = field(repr=False)


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


def module_lines(file: Path) -> ModuleLines:
    """Read a module's bytecode."""
    module = read_module(file, new_context())
    known, total = module_share(module)
    origins = OriginCache()
    places = [origins(op) for op in walk(module)]
    kernels, by_function = _functions(module, origins)
    lines: dict[int, Places] = defaultdict(frozenset)
    for found, number in zip(places, printed_lines(module), strict=True):
        if number:
            lines[number] |= frozenset(found)
    return ModuleLines(dict(lines), known, total, kernels, by_function)


def printed_lines(module: Any) -> list[int]:
    """For each operation the line on which MLIR prints it (0: on none of its own)."""
    with tempfile.TemporaryDirectory(prefix="mlirstack-lines-") as folder, module.context:
        file = Path(folder) / "module.mlir"
        snapshot = f"builtin.module(snapshot-op-locations{{filename={file} tag={_TAG}}})"
        PassManager.parse(snapshot).run(module.operation)
        counted, *numbers = [_tagged_line(op, f'"{_TAG}"("{file}":') for op in (module.operation, *walk(module))]
        # Aliases of attributes stand above the module; MLIR does not count the lines inside of them.
        text = file.read_text().splitlines()
        first = next(number for number, line in enumerate(text, 1) if line.startswith("module"))
        return [number and number + first - counted for number in numbers]


def _tagged_line(op: Any, tag: str) -> int:
    """The line behind ``tag``, which stands last in the location of ``op``."""
    number = str(op.location).rpartition(tag)[2].partition(":")[0]
    return int(number) if number.isdigit() else 0


def _functions(module: Any, origins: OriginCache) -> tuple[dict[str, Places], dict[tuple[str, SourceLine], Places]]:
    """The places that each kernel's operations come from, and those that each function's lines stand for."""
    kernels: dict[str, Places] = {}
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
        if _is_kernel(function):
            kernels[name] = frozenset(place for places in inside for place in places)
    return kernels, {key: frozenset(places) for key, places in by_line.items()}


def _is_kernel(function: Any) -> bool:
    if KERNEL_ATTRIBUTE in function.attributes or "nvvm.kernel" in function.attributes:
        return True
    module = function.parent
    holder = module.operation.parent if module else None
    return holder is not None and holder.name in _EXECUTABLES


# -------------------------------------------------------------------------------------------------------------- foreign


def foreign_lines(files: Sequence[Path]) -> list[ModuleLines]:
    """:func:`module_lines` of modules of IREE's; :class:`MissingDependencyError` where its compiler is not installed."""
    compiler_program()
    with tempfile.TemporaryDirectory(prefix="mlirstack-lines-") as folder:
        output = Path(folder) / "lines.json"
        command = [sys.executable, "-m", "mlirstack.report.module_lines", str(output), *(str(f.resolve()) for f in files)]
        environment = os.environ | {"MLIRSTACK_BINDINGS": _FOREIGN_BINDINGS}
        tool = run_tool(command, directory=Path(folder), timeout=_TIMEOUT, environment=environment)
        if tool.failure is not None:
            said = tool.stderr.strip().splitlines()
            raise MlirstackError(f"reading IREE's modules {tool.failure}: {said[-1] if said else 'nothing was said'}")
        return [_from_plain(entry) for entry in json.loads(output.read_text())]


def _to_plain(found: ModuleLines) -> dict[str, Any]:
    """The lines and kernels as JSON holds them; by_function is for what follows MLIR, which is not IREE's."""
    numbers: dict[Origin, int] = {}

    def of(places: Places) -> list[int]:
        return sorted(numbers.setdefault(place, len(numbers)) for place in places)

    lines = [[number, of(places)] for number, places in found.lines.items()]
    kernels = {name: of(places) for name, places in found.kernels.items()}
    origins = [[(frame.file, frame.line, frame.column) for frame in origin.frames] for origin in numbers]
    return {"lines": lines, "known": found.known, "total": found.total, "kernels": kernels, "origins": origins}


def _from_plain(data: dict[str, Any]) -> ModuleLines:
    origins = [Origin(tuple(SourceLine(*frame) for frame in frames)) for frames in data["origins"]]
    lines = {number: frozenset(origins[n] for n in places) for number, places in data["lines"]}
    kernels = {name: frozenset(origins[n] for n in places) for name, places in data["kernels"].items()}
    return ModuleLines(lines, data["known"], data["total"], kernels, {})


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps([_to_plain(module_lines(Path(file))) for file in sys.argv[2:]]))
