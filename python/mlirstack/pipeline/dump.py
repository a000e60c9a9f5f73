"""The numbered dump: one readable file per stage, a complete copy for replay, and ``trace.json``.

Files are written as stages complete, so what ran before a killed process is on disk::

    NN-stage.mlir            for people: header line, large constants elided, under 1 MB
    replay/NN-stage.mlirbc   complete, what --from and reproducers read
    schedules/NN-stage.NAME.mlir   the transform-dialect schedules that were applied
    trace.json               what ran, in which order, how long, with which versions
    sources.json             the Python files that the operations come from, as they were
    passes/NN-stage/         on request: what each pass of a stage left (:mod:`mlirstack.pipeline.pass_dump`)
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlirstack.bindings import ir
from mlirstack.errors import StageError, UsageError
from mlirstack.ir.foreign import ForeignModule
from mlirstack.ir.locations import OriginCache
from mlirstack.ir.ops import walk
from mlirstack.ir.text import module_text
from mlirstack.pipeline.runner import Observer, Payload, StageOutput, StageRun, sha256
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import step_text

READABLE_LIMIT = 1_000_000  # bytes of a readable file
TRACE = "trace.json"
SOURCES = "sources.json"  # the Python files that the model comes from: {path: text}
PASSES = "passes"  # folder of the IR after each pass
_STAGE_FILE = re.compile(r"\d\d-[\w-]+\.\w+")
_COMMENT = {"mlir": "//", "ll": ";", "s": "#", "py": "#", "ptx": "//", "sass": "//"}
_NO_COMMENTS = {"json"}  # a heading would make the file unreadable


def prepare_directory(path: Path) -> Path:
    """Make sure that a dump can be written to ``path``; :class:`UsageError` says what is in the way."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file", hint="name a directory for the dump")
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".mlirstack-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}", hint="name a writable directory") from error
    return path


def check_directory(path: Path) -> Path:
    """As :func:`prepare_directory`, before there is anything to write: no directory is left behind."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    prepare_directory(path)
    for folder in missing:
        folder.rmdir()
    return path


def stage_file(index: int, stage: Stage) -> str:
    """Name of a stage's readable (or binary) file."""
    return f"{index:02d}-{stage.name}.{stage.level.extension}"


def readable_text(payload: Payload) -> str:
    """A payload as text for people; not for bytes.  Modules have been verified, by their stage or as an override."""
    if isinstance(payload, str):
        return payload
    return module_text(payload, verified=True) if isinstance(payload, ir.Module) else str(payload.text)


def replay_file(index: int, stage: Stage) -> str:
    """Name of a stage's complete file, relative to the dump directory."""
    extension = "mlirbc" if stage.level.is_module or stage.level.foreign else stage.level.extension
    return f"replay/{index:02d}-{stage.name}.{extension}"


@dataclass(frozen=True)
class DumpInfo:
    """The heading of a trace."""

    model: str
    target: str
    versions: dict[str, str]


class Dump(Observer):
    """Writes the dump of one lowering to ``directory``, which :func:`prepare_directory` has checked."""

    def __init__(self, directory: Path, info: DumpInfo) -> None:
        self.directory = directory
        self._has_sources = False
        self._lines: list[str] = []  # the stages of the trace as they are written, each encoded once
        self.trace: dict[str, Any] = {
            "model": info.model,
            "target": info.target,
            "pipeline": "",
            "route": "",
            "versions": info.versions,
            "stages": [],
            "artifact": {},
        }

    def start(self, pipeline: Pipeline, first_index: int) -> None:
        """Remove what an earlier dump left from this stage on; other files are not touched."""
        for folder in (self.directory, self.directory / "replay", self.directory / "schedules"):
            folder.mkdir(exist_ok=True)
            for file in folder.iterdir():
                if file.is_file() and _STAGE_FILE.match(file.name) and int(file.name[:2]) >= first_index:
                    file.unlink()
        earlier = self._earlier_stages() if first_index else []
        for passes in (self.directory / PASSES).glob("[0-9][0-9]-*"):
            if int(passes.name[:2]) >= first_index:
                shutil.rmtree(passes)
        self._has_sources = bool(earlier)
        if not self._has_sources:
            (self.directory / SOURCES).unlink(missing_ok=True)
        self._lines = []
        self.trace["pipeline"] = pipeline.name
        self.trace["stages"] = [entry for entry in earlier if entry["index"] < first_index]
        self._write_trace()

    def schedule(self, run: StageRun, name: str, text: str) -> None:
        """Write a schedule before it is applied."""
        file = self.directory / "schedules" / f"{run.index:02d}-{run.stage.name}.{name}.mlir"
        with _writing(file, run.stage):
            file.write_text(text)

    def after(self, run: StageRun, output: StageOutput) -> None:
        """Write the stage's files and bring the trace up to date."""
        payload, data = output.payload, output.data
        file = self.directory / stage_file(run.index, run.stage)
        complete = self.directory / replay_file(run.index, run.stage)
        with _writing(file, run.stage):
            if isinstance(data, bytes) and not isinstance(payload, (ir.Module, ForeignModule)):
                file.write_bytes(data)
            else:
                text = readable_text(payload)
                shown = _limited(text, complete.relative_to(self.directory))
                if isinstance(data, bytes):
                    complete.write_bytes(data)
                elif shown != text:
                    complete.write_text(text)
                file.write_text(_header(run, output) + shown)
            self.trace["stages"].append(
                {
                    "index": run.index,
                    "name": run.stage.name,
                    "level": run.stage.level.name,
                    "file": file.name,
                    "seconds": round(output.seconds, 6),
                    "passes": [step_text(step) for step in run.stage.steps],
                    "ops": output.ops,
                    "sha256": output.sha256,
                }
            )
            self._write_trace()
            if isinstance(payload, ir.Module) and not self._has_sources:
                self._has_sources = True
                sources = _sources(payload)
                if sources:
                    (self.directory / SOURCES).write_text(json.dumps(sources, indent=1) + "\n")

    def failed(self, run: StageRun, error: StageError) -> None:
        """Record the failure; the files of earlier stages stay."""
        self.trace["failed"] = {"stage": run.stage.name, "pass": error.pass_name, "message": error.message}
        self._write_trace()

    def describe(self, **fields: Any) -> None:
        """Set fields of the trace that are known only outside the runner: ``route``, ``artifact``."""
        self.trace.update(fields)
        self._write_trace()

    def _earlier_stages(self) -> list[dict[str, Any]]:
        try:
            stages: list[dict[str, Any]] = json.loads((self.directory / TRACE).read_text())["stages"]
        except (OSError, ValueError, KeyError):
            return []
        return stages

    def _write_trace(self) -> None:
        # One line a field and a stage.  Not json's own indentation: that encoder is Python, and slower than many stages.
        entries = self.trace["stages"]
        self._lines = self._lines[: len(entries)] + [json.dumps(entry) for entry in entries[len(self._lines) :]]
        stages = ",\n  ".join(self._lines)
        lines = [
            f'"stages": [\n  {stages}\n ]' if key == "stages" else f'"{key}": {json.dumps(value)}'
            for key, value in self.trace.items()
        ]
        temporary = self.directory / (TRACE + ".new")
        temporary.write_text("{\n " + ",\n ".join(lines) + "\n}\n")
        temporary.replace(self.directory / TRACE)


def _sources(module: Any) -> dict[str, str]:
    """The text of each file that operations of ``module`` come from, as far as it can be read; torch's own left out."""
    origins = OriginCache()
    names = {frame.file for op in walk(module) for origin in origins(op) for frame in origin.user_frames}
    found = {}
    for name in sorted(names):
        with suppress(OSError, UnicodeDecodeError):
            if Path(name).stat().st_size <= READABLE_LIMIT:
                found[name] = Path(name).read_text()
    return found


def _header(run: StageRun, output: StageOutput) -> str:
    if run.stage.level.extension in _NO_COMMENTS:
        return ""
    comment = _COMMENT.get(run.stage.level.extension, "#")
    return (
        f"{comment} mlirstack stage {run.index:02d} {run.stage.name} | level {run.stage.level.name} | "
        f"{run.stage.text()} | input sha256:{sha256(run.input)[:16]} | "
        f"output sha256:{output.sha256[:16]} | {output.seconds:.4f} s\n"
    )


@contextmanager
def _writing(file: Path, stage: Stage) -> Iterator[None]:
    """A full disk or a vanished directory becomes a :class:`StageError`; no half-written file stays."""
    try:
        yield
    except OSError as error:
        file.unlink(missing_ok=True)
        raise StageError(
            f"cannot write {file}: {error.strerror}", stage=stage.name, hint="free space, or name another directory"
        ) from error


def _limited(text: str, complete: Path) -> str:
    """``text``, cut at a line end where it would pass the limit for readable files."""
    if len(text.encode()) <= READABLE_LIMIT - 4096:
        return text
    cut = text.encode()[: READABLE_LIMIT - 4096].decode(errors="ignore")
    return cut[: cut.rfind("\n") + 1] + f"\n... cut here: {len(text)} characters in all, complete in {complete}\n"
