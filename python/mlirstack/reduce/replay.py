"""Replaying a reproducer: is it still the same failure?

Comes in: a directory with a :class:`~mlirstack.pipeline.reproducer.Record`.  Goes out: a :class:`Replay`; and on request
files for others: a call of mlirstack-opt, a test for an upstream developer.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mlirstack.bindings import new_context
from mlirstack.errors import UsageError
from mlirstack.ir.text import module_text, read_module
from mlirstack.opt.reproducer import reproducer_text
from mlirstack.pipeline.parse import parse_pipeline
from mlirstack.pipeline.reproducer import ARGUMENTS, Record
from mlirstack.pipeline.step import Pass
from mlirstack.pipeline.tool import run_tool
from mlirstack.reduce.attempt import Task
from mlirstack.reduce.outcome import Expectation, Outcome
from mlirstack.reduce.server import Server
from mlirstack.steps import register_steps

Status = Literal["same failure", "another failure", "fixed"]

LIMIT = 600.0  # seconds for a replay

# Passes of torch-mlir's own, which mlir-opt does not have.
_TORCH_MLIR = re.compile(r"torch|refback|tm-tensor|mlprogram-bufferize|tcp|chlo|stablehlo")
_OWN_ATTRIBUTE = re.compile(r"mlirstack\.")


@dataclass(frozen=True)
class Replay:
    """How a replay ended: ``status``, what was expected and what was found."""

    status: Status
    expected: str
    found: str


def expectation_of(record: Record) -> Expectation:
    """What the record says must fail."""
    if record.kind == "crash":
        # Where the process did not live to tell, any crash is the one.
        return Expectation("crash", record.message, record.pass_name, exact=not record.message)
    return Expectation(record.kind, record.message, record.pass_name)


def task_of(directory: Path, record: Record) -> Task:
    """The record's task; numbers are judged with the arguments in the directory."""
    arguments = str((directory / ARGUMENTS).resolve()) if record.kind == "wrong" else ""
    level = record.level if record.check else ""
    numbers = record.kind == "wrong"
    return Task(record.pipeline, level, numbers, arguments=arguments, input_level=record.input_level, rest=record.rest)


def replay(directory: Path) -> Replay:
    """Run a reproducer again; :class:`UsageError` where there is none."""
    record = Record.read(directory)
    expected = expectation_of(record)
    if record.input_level == "fx":
        return _replay_command(record)
    with Server(task_of(directory, record), limit=LIMIT) as server:
        outcome = server.outcome(directory / record.input)
    told = Outcome(expected.kind, expected.text, expected.pass_name, record.rel_l2).text()
    if outcome.kind == "ok":
        return Replay("fixed", told, outcome.message or "nothing fails")
    same = expected.matches(outcome)
    return Replay("same failure" if same else "another failure", told, outcome.text())


def _replay_command(record: Record) -> Replay:
    """An exported graph stands in no file: the command that made it is run.  Of a wrong answer the command is a comparison,
    which exits with 1 where it finds it again."""
    if not record.origin:
        raise UsageError(
            "the reproducer begins with an exported graph and does not say how it was made",
            hint="lower the model again with 'mlirstack lower', which writes reproducers that can be replayed",
        )
    words = shlex.split(record.origin)
    command = [sys.executable, "-m", "mlirstack", *words[1:]]
    with tempfile.TemporaryDirectory(prefix="mlirstack-replay-") as folder:
        if "--out" in command:
            command[command.index("--out") + 1] = folder
        run = run_tool(command, directory=Path.cwd(), timeout=LIMIT)
    if run.status == 0:
        return Replay("fixed", record.message, "nothing fails")
    said = " ".join(run.stderr.split())
    if record.kind == "wrong":
        return Replay("same failure" if run.status == 1 else "another failure", record.message, said[:400])
    same = " ".join(record.message.split()) in said
    return Replay("same failure" if same else "another failure", record.message, said[:400])


def is_upstream(pipeline: str) -> bool:
    """Are all passes those of MLIR itself, which mlir-opt has too?"""
    register_steps()
    return all(isinstance(step, Pass) and not _TORCH_MLIR.search(step.name) for step in parse_pipeline(pipeline))


def upstream_text(directory: Path) -> str:
    """The reproducer as one file that mlir-opt runs: a RUN line for lit, and the resource that --run-reproducer reads.

    :class:`UsageError` where a pass is not upstream's, or where the failure is no failure of a pass.
    """
    record = Record.read(directory)
    if record.kind == "wrong" or record.check or record.input_level:
        raise UsageError(
            "mlir-opt cannot show a wrong number" if record.kind == "wrong" else "no pass of mlir-opt fails here",
            hint="'mlirstack reproduce' without --upstream replays it",
        )
    if not is_upstream(record.pipeline):
        raise UsageError(
            f"not all passes are upstream's: {record.pipeline}", hint="'sh command.sh' in the directory runs mlirstack-opt"
        )
    text = module_text(read_module(directory / record.input, new_context()), elide=False)
    allowed = " --allow-unregistered-dialect" if _OWN_ATTRIBUTE.search(text) else ""
    head = (
        f"// RUN: mlir-opt{allowed} %s --pass-pipeline={shlex.quote(record.pipeline)}\n"
        "// or, with the resource at the end: mlir-opt --run-reproducer\n"
        + "".join(f"// {line}\n" for line in (record.message or "the pass crashes").splitlines())
    )
    return head + reproducer_text(text, record.pipeline)
