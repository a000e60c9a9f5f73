"""What is to be reduced: a module file with a pipeline, or a reproducer; and the file that comes out."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from mlirstack.errors import UsageError
from mlirstack.pipeline.reproducer import EMPTY_PIPELINE, RECORD, Record
from mlirstack.reduce.attempt import Task
from mlirstack.reduce.outcome import Expectation
from mlirstack.reduce.reducer import Reduced
from mlirstack.reduce.replay import expectation_of


@dataclass(frozen=True)
class Case:
    """A module file, what is tried on it, and what is known of the failure."""

    module: Path
    task: Task
    expectation: Expectation | None = None


def case_of(source: Path, pipeline: str | None, *, numbers: bool, seed: int) -> Case:
    """The case that a command line names; :class:`UsageError` where it is none."""
    if source.is_dir():
        return _of_reproducer(source, Record.read(source), pipeline, seed)
    if not source.is_file():
        raise UsageError(f"no file {source}", hint="give a module, or the directory of a reproducer")
    if (source.parent / RECORD).is_file() and pipeline is None:
        return _of_reproducer(source.parent, Record.read(source.parent), None, seed)
    if pipeline is None:
        raise UsageError("which passes fail?", hint="add --pipeline 'builtin.module(…)'")
    return Case(source, Task(pipeline, numbers=numbers, seed=seed))


def _of_reproducer(directory: Path, record: Record, pipeline: str | None, seed: int) -> Case:
    wrong = record.kind == "wrong"
    if wrong and (pipeline or record.pipeline) == EMPTY_PIPELINE:
        raise UsageError(
            "the reproducer holds a module that is wrong as it was given (an override): no pass made it so",
            hint="reduce the module before it with the pass that makes it wrong: --pipeline 'builtin.module(…)' --numbers",
        )
    if record.input_level:
        raise UsageError(
            f"the reproducer's input is no MLIR module but {record.input}",
            hint="reduce the model, or the module of an earlier stage",
        )
    level = record.level if record.check else ""
    task = Task(pipeline or record.pipeline, level, numbers=wrong, seed=seed, rest=record.rest)
    return Case(directory / record.input, task, None if wrong else expectation_of(record))


def write_reduced(file: Path, found: Reduced, task: Task) -> None:
    """Write the reduced module, with the command that shows the failure above it."""
    head = [
        f"// RUN: mlirstack-opt %s --pass-pipeline={shlex.quote(task.pipeline)}",
        *(f"// {line}" for line in found.outcome.text().splitlines()),
    ]
    if task.numbers:
        head.append(f"// mlirstack reduce {file.name} --pipeline {shlex.quote(task.pipeline)} --numbers --seed {task.seed}")
    try:
        file.write_text("\n".join(head) + "\n" + found.text)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
