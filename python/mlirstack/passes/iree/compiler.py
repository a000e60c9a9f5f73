"""IREE's compiler as a subprocess: a module in, what it is after one of IREE's phases out.

``iree-compile`` brings its own build of MLIR, which must not share a process with torch-mlir's: the program is found beside
the package without importing it.  Every run works in a temporary directory of its own, so that a killed compiler leaves
nothing half-written.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlirstack.errors import Diagnostic, MissingDependencyError, SourceLine, StageError
from mlirstack.ir.foreign import ForeignModule
from mlirstack.ir.text import BYTECODE_MAGIC, ELIDE_ELEMENTS, elided
from mlirstack.passes.iree.archive import LINKED_OBJECT, OBJECT_CARRIER
from mlirstack.pipeline.tool import ToolRun, run_tool

PHASES = {
    "input": "IREE's form of the input: linalg on tensors, parameters as globals",
    "abi": "exported functions take and return HAL buffer views",
    "preprocessing": "target-specific rewrites before anything else",
    "global-optimization": "layouts, transposes and data types decided for the whole program; constants hoisted",
    "dispatch-creation": "fused regions become dispatches; data tiling chosen",
    "flow": "data flow between dispatches, each outlined into an executable",
    "stream": "asynchronous schedule, resource lifetimes and placement",
    "executable-sources": "executables per target, before code generation",
    "executable-configurations": "a code generation strategy (tile sizes, pipeline) for each executable",
    "executable-targets": "executables tiled, vectorized and lowered to the LLVM dialect",
    "hal": "command buffers and device calls; executables compiled to machine code",
    "vm": "the host program as IREE VM code",
}
"""IREE's compilation phases in order, and what each leaves behind."""

MESSAGE_LIMIT = 400  # characters
ENCODER_FILE = "encoder.mlirbc"  # what the compiler is told to write beside its output, it writes to the file of this name
_SEARCH_PATH = ("--iree-hal-executable-object-search-path=.",)


@dataclass(frozen=True)
class CompilerRun:
    """One run of iree-compile: from what follows phase ``after`` (None: the start) through ``phase`` (None: to a vmfb)."""

    after: str | None
    phase: str | None
    flags: tuple[str, ...]
    timeout: float

    def arguments(self, source: str, output: str) -> list[str]:
        """The command line without the program."""
        steps = [f"--compile-from={self.after}"] if self.after else []
        steps += [f"--compile-to={self.phase}", "--emit-mlir-bytecode"] if self.phase else []
        return [source, *self.flags, *steps, *_SEARCH_PATH, "-o", output]


@cache
def compiler_program() -> Path:
    """Path of the iree-compile that pip installed; :class:`MissingDependencyError` where there is none."""
    try:
        spec = importlib.util.find_spec("iree.compiler")  # imports nothing but the empty namespace 'iree'
    except ModuleNotFoundError:
        spec = None
    for folder in spec.submodule_search_locations or () if spec else ():
        program = Path(folder) / "_mlir_libs" / "iree-compile"
        if program.is_file():
            return program
    raise MissingDependencyError(
        "IREE's compiler is not installed",
        hint="pip install iree-base-compiler (the pinned version is in constraints.txt)",
    )


def run_compiler(run: CompilerRun, source: bytes | str) -> ForeignModule | bytes:
    """Compile ``source`` (MLIR bytecode or text) as ``run`` says: a module after a phase, with the encoder that this phase
    has split off beside it, or the bytes of a vmfb at the end.

    Raises :class:`StageError` with the compiler's messages, the user's source line where it is known, and the command to
    repeat.
    """
    program = compiler_program()
    with tempfile.TemporaryDirectory(prefix="mlirstack-iree-") as folder:
        directory = Path(folder)
        name = "input.mlirbc" if isinstance(source, bytes) else "input.mlir"
        (directory / name).write_bytes(source if isinstance(source, bytes) else source.encode())
        for file, data in linked_files(source).items():
            (directory / file).write_bytes(data)
        arguments = run.arguments(name, "output")
        # The readable form comes from the same run: a second one would cost as much as the phase itself.  MLIR's own flags
        # for eliding are no use: bytecode holds attributes of some dialects as text, and loses their constants then.
        shown = [
            f"--dump-compilation-phases-to={directory}",
            f"--mlir-print-elementsattrs-with-hex-if-larger={ELIDE_ELEMENTS}",
        ]
        command = [str(program), *arguments, *(shown if run.phase else [])]
        tool = run_tool(command, directory=directory, timeout=run.timeout)
        if tool.failure is not None:
            raise _error(tool, run, ["iree-compile", *arguments])
        output = (directory / "output").read_bytes()
        if run.phase is None:
            return output
        [text] = directory.glob(f"*.{run.phase}.mlir")
        encoder = directory / ENCODER_FILE
        return ForeignModule(output, elided(text.read_text()), encoder.read_bytes() if encoder.is_file() else None)


_CARRIED_OBJECT = re.compile(rf'"{re.escape(OBJECT_CARRIER)}", data = dense<"0x([0-9A-F]+)">'.encode())


def linked_files(source: bytes | str) -> dict[str, bytes]:
    """The files that the compiler links, by name: the object that rides along in an attribute of the module.

    IREE 3.13 takes objects for processors by path alone; where it is given the bytes, it links an empty file.  Attributes of
    its dialects are text in bytecode as well.
    """
    found = _CARRIED_OBJECT.search(source if isinstance(source, bytes) else source.encode())
    return {LINKED_OBJECT: bytes.fromhex(found[1].decode())} if found else {}


def source_of(payload: ForeignModule | bytes | str) -> bytes | str:
    """What iree-compile reads for a payload between two phases: bytecode, or text that somebody has written by hand."""
    if isinstance(payload, ForeignModule):
        return payload.bytecode
    if isinstance(payload, bytes) and not payload.startswith(BYTECODE_MAGIC):
        raise StageError("this is not a module that IREE's compiler left behind a phase", stage="iree")
    return payload


# ---------------------------------------------------------------------------------------------------------- diagnostics

_MESSAGE = re.compile(
    r"^(?P<file>[^\s:][^:\n]*|<unknown>)(?::(?P<line>\d+))?(?::(?P<column>\d+))?: (?P<severity>error|warning|note): "
    r"(?P<message>.*)$"
)


def parse_messages(stderr: str) -> tuple[Diagnostic, ...]:
    """The errors in what iree-compile printed, notes attached to the error before them; warnings are left out."""
    found: list[list[Diagnostic]] = []  # an error and its notes
    for line in stderr.splitlines():
        match = _MESSAGE.match(line)
        if match is None or match["severity"] == "warning":
            continue
        place = _place(match["file"], match["line"], match["column"])
        message = Diagnostic(match["severity"], _short(match["message"]), str(place or match["file"]), place)
        if message.severity == "error":
            found.append([message])
        elif found:
            found[-1].append(message)
    return tuple(_with_notes(error, notes) for error, *notes in found)


def _with_notes(error: Diagnostic, notes: Sequence[Diagnostic]) -> Diagnostic:
    """The error at the user's own line: where it lies inside torch, the notes say from where that was called."""
    lines = [d.source for d in (error, *notes) if d.source]
    own = [line for line in lines if "/site-packages/torch/" not in line.file]
    return dataclasses.replace(error, source=next(iter(own or lines), None), notes=tuple(notes))


def _short(message: str) -> str:
    """IREE prints whole ops with all features of the processor; the beginning says what is wrong."""
    return message if len(message) <= MESSAGE_LIMIT else message[:MESSAGE_LIMIT] + " ..."


def _place(file: str, line: str | None, column: str | None) -> SourceLine | None:
    """A line of the user's program; the compiler's own input file and unknown places say nothing to a user."""
    if line is None or int(line) == 0 or Path(file).name in ("input.mlir", "input.mlirbc", "-", "<stdin>", "<unknown>"):
        return None
    return SourceLine(file, int(line), int(column or 0))


def _error(tool: ToolRun, run: CompilerRun, command: Sequence[str]) -> StageError:
    diagnostics = parse_messages(tool.stderr)
    lines = [line.strip() for line in tool.stderr.splitlines() if line.strip()]
    if tool.timed_out:
        message = f"iree-compile took longer than {run.timeout:g} s and was ended"
    elif diagnostics:
        message = f"iree-compile: {diagnostics[0].message}"
    else:
        message = f"iree-compile {tool.failure}" + (": " + " / ".join(lines[:3]) if lines else "")
    return StageError(
        message,
        stage=f"iree-{run.phase}" if run.phase else "vmfb",
        location=next((d.source for d in diagnostics if d.source), None),
        diagnostics=diagnostics,
        hint=f"to repeat it on the stage's complete input: {shlex.join(command)}",
    )
