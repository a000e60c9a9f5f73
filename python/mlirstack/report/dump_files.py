"""A dump directory as data: its trace, the readable text of each stage, and where the complete copies are.

Everything that shows a dump (report, show, diff) reads it here, from files alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mlirstack.errors import UsageError
from mlirstack.ir.level import LEVELS
from mlirstack.pipeline.dump import PASSES, SOURCES, TRACE
from mlirstack.pipeline.registry import nearest

_BINARY = ("o", "cubin", "vmfb")
_CUT = "... cut here: "


def is_heading(line: str) -> bool:
    """Is this the dump's own first line of a file?"""
    return " mlirstack stage " in line[:24]


@dataclass(frozen=True)
class PassEntry:
    """What one pass of a stage left: the file with its text, None where it changed nothing."""

    name: str
    seconds: float
    file: Path | None
    ops: int


@dataclass(frozen=True)
class StageFiles:
    """One stage of a dump: its entry in the trace, and its files."""

    directory: Path = field(repr=False)
    index: int
    name: str
    level: str
    file: str
    seconds: float
    passes: tuple[str, ...] = field(repr=False)
    ops: dict[str, int] = field(repr=False)
    sha256: str = field(repr=False)

    @property
    def is_text(self) -> bool:
        """Is there something to read?"""
        return LEVELS[self.level].extension not in _BINARY

    @cached_property
    def text(self) -> str:
        """The readable file, heading included; a binary level is described in one line."""
        path = self.directory / self.file
        try:
            if not self.is_text:
                return f"{path.stat().st_size} bytes of {LEVELS[self.level].doc}: {self.file}\n"
            return path.read_text(errors="replace")
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}", hint="dump the model again") from None

    @cached_property
    def lines(self) -> list[str]:
        """:attr:`text` by lines."""
        return self.text.splitlines()

    @property
    def has_heading(self) -> bool:
        """Is the first line the dump's own?"""
        return is_heading(self.text[:40])

    @property
    def body(self) -> list[str]:
        """The lines below the heading: what the stage left, and nothing else."""
        return self.lines[1:] if self.has_heading else self.lines

    @property
    def complete_text(self) -> str:
        """The text without heading, complete even where the readable file was cut."""
        complete = self.replay
        if complete is not None and complete.suffix in (".ll", ".ptx", ".sass", ".s"):
            return complete.read_text()
        return "\n".join(self.body) + "\n"

    @property
    def replay(self) -> Path | None:
        """The complete copy, where there is one."""
        extension = LEVELS[self.level].extension
        folder = self.directory / "replay"
        names = [folder / f"{self.index:02d}-{self.name}.{e}" for e in ("mlirbc", extension)]
        return next((path for path in names if path.is_file()), None)

    @property
    def was_cut(self) -> bool:
        """Was the readable file cut at the size limit?"""
        return bool(self.lines) and self.lines[-1].startswith(_CUT)

    @property
    def op_count(self) -> int:
        """Operations in the module; 0 past MLIR."""
        return sum(self.ops.values())

    def steps(self) -> list[PassEntry]:
        """The IR after each pass, if it was dumped (``lower --passes``)."""
        index = self.directory / PASSES / f"{self.index:02d}-{self.name}" / "index.json"
        if not index.is_file():
            return []
        entries = json.loads(index.read_text())
        return [
            PassEntry(e["pass"], e["seconds"], index.parent / e["file"] if e["file"] else None, e["ops"]) for e in entries
        ]


@dataclass(frozen=True)
class DumpFiles:
    """A dump directory, read."""

    path: Path
    trace: dict[str, Any] = field(repr=False)
    stages: tuple[StageFiles, ...]

    def __getitem__(self, name: str) -> StageFiles:
        """A stage by name, by number, or by level (its last stage); :class:`UsageError` with the nearest names."""
        for stage in self.stages:
            if name == stage.name or name in (str(stage.index), f"{stage.index:02d}", f"{stage.index:02d}-{stage.name}"):
                return stage
        of_level = [stage for stage in self.stages if stage.level == name]
        if of_level:
            return of_level[-1]
        names = [stage.name for stage in self.stages]
        raise UsageError(f"{self.path} has no stage '{name}'{nearest(name, names)}", hint=f"its stages: {', '.join(names)}")

    def sources(self) -> dict[str, str]:
        """The files of the model's Python source, as they were when it was lowered."""
        file = self.path / SOURCES
        found: dict[str, str] = json.loads(file.read_text()) if file.is_file() else {}
        return found

    def comparison(self) -> dict[str, Any] | None:
        """What ``mlirstack compare --json DIR/compare.json`` wrote, if it did."""
        for folder in (self.path, self.path.parent):
            file = folder / "compare.json"
            if file.is_file():
                found = _json(file)
                if isinstance(found, dict) and "results" in found:
                    return found
        return None


def read_dump(path: Path) -> DumpFiles:
    """Read the dump in directory ``path``; :class:`UsageError` where there is none, or a damaged one."""
    file = path / TRACE
    if not file.is_file():
        raise UsageError(
            f"{path} holds no dump ({TRACE} is missing)", hint=f"write one: mlirstack lower MODEL --target cpu --out {path}"
        )
    trace = _json(file)
    try:
        stages = tuple(
            StageFiles(
                path, s["index"], s["name"], s["level"], s["file"], s["seconds"], tuple(s["passes"]), s["ops"], s["sha256"]
            )
            for s in trace["stages"]
        )
    except (KeyError, TypeError) as error:
        raise UsageError(f"{file} is not a trace of mlirstack: {error!r}", hint="dump the model again") from None
    return DumpFiles(path, trace, stages)


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}: {error}") from None
