"""Debug information for LLVM: each instruction knows the line of the Torch model that it comes from.

Locations of MLIR go in, scopes that LLVM's translation understands come out; LLVM then carries the lines through its own
optimizations into the line table of an object, or into the ``.loc`` lines of PTX.  A profiler or debugger shows them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from mlirstack.bindings import ir
from mlirstack.errors import SourceLine
from mlirstack.ir.locations import first_origin
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass

LINE_TABLES, DIRECTIVES = "LineTablesOnly", "DebugDirectivesOnly"
_LAST_COLUMN = 65535  # LLVM keeps 16 bits


@dataclass(frozen=True)
class DebugLines(PythonPass):
    """Before: functions of the LLVM dialect with locations of any kind.  After: every operation in them has one line in a
    scope of its function, the first of those that it comes from; the column stays what it was.

    ``kind`` is LLVM's kind of emission: "LineTablesOnly" for objects, "DebugDirectivesOnly" for PTX.
    """

    name = "mlirstack-debug-lines"
    kind: str = LINE_TABLES

    def apply(self, module: Any) -> None:
        functions = list(_functions(module))
        if not functions:
            return
        line_of = _Lines()
        bodies = [_Body.read(function, line_of) for function in functions]
        files = sorted({line.file for body in bodies for _, line in [(None, body.line), *body.lines] if line is not None})
        for body, scope_of in zip(bodies, _scopes(bodies, files, self.kind), strict=True):
            body.place(scope_of)


class _Lines:
    """The first line that an operation comes from; a module has many operations, and few locations."""

    def __init__(self) -> None:
        self._known: dict[Any, SourceLine | None] = {}

    def __call__(self, op: Any) -> SourceLine | None:
        location = op.location
        key = location.attr  # equal locations are equal in Python, but do not hash equal
        if key not in self._known:
            first = first_origin(location)
            self._known[key] = None if first is None else first.line
        return self._known[key]


@dataclass(frozen=True)
class _Body:
    """A function, the line that it stands for, and its operations with their lines."""

    function: Any
    line: SourceLine
    lines: list[tuple[Any, SourceLine | None]]

    @staticmethod
    def read(function: Any, line_of: _Lines) -> _Body:
        lines = [(op, line_of(op)) for op in walk(function)]
        own = line_of(function)
        first = next((line for _, line in lines if line is not None), SourceLine("unknown", 0))
        return _Body(function, own or first, lines)

    def place(self, scope_of: dict[str, Any]) -> None:
        """Give the function and its operations locations with scopes; operations without a line get line 0."""
        made: dict[SourceLine, Any] = {}
        for op, known in self.lines:
            line = known or SourceLine(self.line.file, 0)
            if line not in made:
                made[line] = _scoped(line, scope_of[line.file])
            op.location = made[line]
        self.function.location = _scoped(self.line, scope_of[""])


def _functions(module: Any) -> Iterator[Any]:
    """Functions with a body, those in ``gpu.module``s included."""
    for op in module.operation.regions[0].blocks[0].operations:
        if op.operation.name == "llvm.func" and op.regions[0].blocks:
            yield op.operation
        elif op.operation.name == "gpu.module":
            yield from _functions(op)


def _scopes(bodies: list[_Body], files: list[str], kind: str) -> list[dict[str, Any]]:
    """For each function the scope of its lines in each of ``files``.

    All scopes are parsed from one text: only there do equal ``distinct`` numbers mean the same compile unit.
    """
    unit = (
        f"#llvm.di_compile_unit<id = distinct[0]<>, sourceLanguage = DW_LANG_Python, file = {_file(files[0])}, "
        f'producer = "mlirstack", isOptimized = true, emissionKind = {kind}>'
    )
    rows = []
    for number, body in enumerate(bodies, 1):
        name, line = ir.StringAttr(body.function.attributes["sym_name"]).value, body.line
        own = (
            f"#llvm.di_subprogram<id = distinct[{number}]<>, compileUnit = {unit}, scope = {_file(line.file)}, "
            f"name = {json.dumps(name)}, file = {_file(line.file)}, line = {line.line}, scopeLine = {line.line}, "
            'subprogramFlags = "Definition|Optimized", type = #llvm.di_subroutine_type<callingConvention = DW_CC_normal>>'
        )
        others = [
            own
            if file == line.file
            else f"#llvm.di_lexical_block_file<scope = {own}, file = {_file(file)}, discriminator = 0>"
            for file in files
        ]
        rows.append(f"[{own}, {', '.join(others)}]")
    parsed = ir.ArrayAttr(ir.Attribute.parse(f"[{', '.join(rows)}]"))
    return [
        {"": next(iter(row)), **dict(zip(files, list(row)[1:], strict=True))}
        for row in (ir.ArrayAttr(row) for row in parsed)
    ]


def _file(name: str) -> str:
    path = PurePosixPath(name)
    folder = "" if path.parent == PurePosixPath(".") else str(path.parent)
    return f"#llvm.di_file<{json.dumps(path.name)} in {json.dumps(folder)}>"


def _scoped(line: SourceLine, scope: Any) -> Any:
    column = line.column if line.column <= _LAST_COLUMN else 0
    return ir.Location.fused([ir.Location.file(line.file, line.line, column)], scope)
