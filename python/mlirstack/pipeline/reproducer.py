"""Reproducers: a directory with all that it takes to see a failure again, written when a stage fails or before it crashes.

::

    reproducer.json    what fails: pipeline, stage, pass, expected message, versions (a :class:`Record`)
    input.mlirbc       the complete IR before the failing pass (before the stage, where the pass is not known)
    command.sh         one command that fails in the same way
    error.txt          the error as it was printed
    arguments.pt       what the program is called with, where a number is wrong; nothing else depends on it
"""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from mlirstack.errors import StageError, UsageError
from mlirstack.ir.foreign import ForeignModule
from mlirstack.ir.text import BYTECODE_MAGIC
from mlirstack.pipeline.runner import Observer, StageOutput, StageRun
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Step, Translation, pipeline_text
from mlirstack.versions import versions

RECORD = "reproducer.json"
ARGUMENTS = "arguments.pt"
COMMAND = "command.sh"
ERROR = "error.txt"

EMPTY_PIPELINE = "builtin.module()"

FailureKind = Literal["failure", "crash", "wrong"]


@dataclass(frozen=True)
class Rest:
    """What is behind ``stage`` in the table that ``target`` has for ``route`` and programs at ``level``: it takes on what
    no other target can execute."""

    target: str
    route: str
    level: str
    stage: str


@dataclass(frozen=True)
class Record:
    """What a reproducer shows.

    ``pipeline`` fails on the file ``input`` with ``message`` ("crash": the name of the signal, empty if it is not known;
    "wrong": the answer is off by ``rel_l2``).  ``input_level`` is set where the input is no module of these bindings.
    ``check`` says that the failure is a condition of ``level`` on what the pipeline leaves.  ``origin`` is the command that
    failed first; where the input is an exported graph, which no file holds, it is the only command there is.  ``rest``: a
    wrong number is found by executing what the pipeline leaves so, and not by the plain path.
    """

    kind: FailureKind
    stage: str
    level: str
    pipeline: str
    input: str
    message: str = ""
    pass_name: str | None = None
    op: str | None = None
    check: bool = False
    input_level: str = ""
    origin: str = ""
    rel_l2: float | None = None
    rest: Rest | None = None
    versions: dict[str, str] = field(default_factory=dict)

    def write(self, directory: Path, command: str) -> None:
        """Write the record and the command into ``directory``."""
        (directory / RECORD).write_text(json.dumps(asdict(self), indent=1) + "\n")
        script = directory / COMMAND
        script.write_text(f'#!/bin/sh\ncd "$(dirname "$0")" && {command}\n')
        script.chmod(0o755)

    @staticmethod
    def read(directory: Path) -> Record:
        """Inverse of :meth:`write`; :class:`UsageError` where ``directory`` holds none."""
        try:
            record = Record(**json.loads((directory / RECORD).read_text()))
            return replace(record, rest=Rest(**record.rest)) if isinstance(record.rest, dict) else record
        except OSError as error:
            hint = "give a directory that an error named as its reproducer"
            raise UsageError(f"{directory} is no reproducer: cannot read {RECORD} ({error.strerror})", hint=hint) from error
        except (ValueError, TypeError) as error:
            raise UsageError(f"{directory / RECORD} is damaged: {error}") from error


def opt_command(record: Record) -> str:
    """The mlirstack-opt call that runs the record's pipeline on its input."""
    return f"mlirstack-opt {record.input} --pass-pipeline={shlex.quote(record.pipeline)}"


def record_crash(directory: Path, signal: str, error: str) -> None:
    """Complete a reproducer that was written before a stage, now that its process has died of ``signal``."""
    record = replace(Record.read(directory), kind="crash", message=signal)
    (directory / RECORD).write_text(json.dumps(asdict(record), indent=1) + "\n")
    (directory / ERROR).write_text(error + "\n")


class Reproducer(Observer):
    """Leaves a reproducer of a stage that fails below ``directory`` and names it in the error.

    With ``early`` one is written before each stage and removed after it, so that a native crash of the process leaves it
    behind too.  ``origin`` is the command that is running, for the record.
    """

    def __init__(self, directory: Path, *, early: bool = False, origin: str = "") -> None:
        self.directory = directory
        self.early = early
        self.origin = origin
        self._foreign = ""  # the level of the input of the next stage, where it is no module of ours

    def start(self, pipeline: Pipeline, first_index: int) -> None:
        """Nothing is known of the input yet."""
        self._foreign = ""

    def before(self, run: StageRun) -> None:
        """Write the input of the stage that is about to run, if crashes are expected."""
        if self.early and run.stage.steps:
            self._write(run, Record("crash", run.stage.name, run.stage.level_name, run.stage.text(), ""), run.input)

    def after(self, run: StageRun, output: StageOutput) -> None:
        """The stage is through: its early reproducer goes."""
        if self.early:
            shutil.rmtree(self._path(run), ignore_errors=True)
        self._foreign = run.stage.level_name if isinstance(output.payload, (str, bytes, ForeignModule)) else ""

    def failed(self, run: StageRun, error: StageError) -> None:
        """Write the reproducer and name it in the error."""
        step = next((s for s in run.stage.steps if s.name == error.pass_name), None)
        known = error.before is not None and step is not None
        record = Record(
            "failure",
            run.stage.name,
            run.stage.level_name,
            pipeline_text((step,)) if known and step is not None else run.stage.text(),
            "",
            message=error.message,
            pass_name=error.pass_name,
            op=error.op,
            check=error.pass_name is None,
        )
        source = error.before if known and error.before is not None else run.input
        error.reproducer = self._write(run, record, source)
        error.before = None  # it is on disk now, and the error may travel to another process
        (error.reproducer / ERROR).write_text(str(error) + "\n")

    def _path(self, run: StageRun) -> Path:
        return self.directory / f"reproducer-{run.index:02d}-{run.stage.name}"

    def _write(self, run: StageRun, record: Record, source: bytes | str) -> Path:
        path = self._path(run)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        is_module = isinstance(source, bytes) and source.startswith(BYTECODE_MAGIC)
        name = "input.mlirbc" if is_module else "input.txt" if isinstance(source, str) else "input.bin"
        (path / name).write_bytes(source.encode() if isinstance(source, str) else source)
        for step in (step for step in run.stage.steps if isinstance(step, Translation)):
            for file, data in step.files(source).items():
                (path / file).write_bytes(data)
        level = self._foreign if source is run.input else ""
        if not is_module and not level:
            level = "fx"
        record = replace(record, input=name, input_level=level, origin=self.origin, versions=versions())
        record.write(path, _command(run.stage, record))
        return path


def _command(stage: Stage, record: Record) -> str:
    """What repeats a failure: an external tool where the stage is one, the first command for a graph, else mlirstack-opt."""
    if record.input_level == "fx" and record.origin:
        return record.origin
    step: Step | None = stage.steps[0] if len(stage.steps) == 1 else None
    own = step.command(record.input) if isinstance(step, Translation) else None
    return own or opt_command(record)
