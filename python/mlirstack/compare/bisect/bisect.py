"""The bisection itself: every stage of a dump is executed, the first wrong one is narrowed to a pass and to an op.

Comes in: a dump (:mod:`mlirstack.pipeline.dump`), the program it was made of, a :class:`Subject`.  Goes out: a
:class:`Bisection`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mlirstack.compare.accuracy import Answer
from mlirstack.compare.bisect.executor import Executor, Table, Tell
from mlirstack.compare.bisect.graph import graph_values, graph_verdict
from mlirstack.compare.bisect.passes import left_out, one_by_one
from mlirstack.compare.bisect.record import Culprit, write_command, write_reproducer
from mlirstack.compare.bisect.results import (
    BY_REST,
    CONTINUED_LEVELS,
    Bisection,
    OpFinding,
    StageFile,
    Verdict,
    behind,
    first_wrong,
)
from mlirstack.compare.bisect.stored import store
from mlirstack.compare.bisect.subject import Subject, subject_of_module
from mlirstack.errors import WorkerLostError
from mlirstack.frontend.program import Program
from mlirstack.ir.level import LEVELS
from mlirstack.ir.text import module_bytecode
from mlirstack.passes.iree.linked_kernels import FormLinkedKernels
from mlirstack.passes.iree.regions import FormRegions
from mlirstack.passes.iree.split import SplitProgram
from mlirstack.pipeline.dump import TRACE
from mlirstack.pipeline.reproducer import EMPTY_PIPELINE, Rest
from mlirstack.pipeline.stage import Pipeline
from mlirstack.pipeline.step import pipeline_text
from mlirstack.supervised import Supervised
from mlirstack.targets.base import Target
from mlirstack.targets.registry import create_target

# What the plain path takes to this machine's code.
PLAIN_LEVELS = ("torch", "tosa", "linalg", "vector", "buffer", "scf", "llvm")
NATIVE_LEVELS = ("llvmir", "object")  # of a table that ends in an object for this machine
TENSOR_LEVELS = ("tosa", "linalg", "vector")  # where values of ops can be compared


@dataclass(frozen=True)
class Request:
    """What to bisect: ``dump`` of a lowering to ``target``, the ``bundle`` built from it (None: it failed), and whether
    to look for the op.  ``overridden`` stages hold what the user gave, not what passes made.
    ``stop``: do not execute what comes after the first wrong stage.  ``artifacts``: where what needs a device that is not
    here is built.  ``origin``: the command that finds the same again."""

    program: Program
    target: str
    dump: Path
    bundle: Path | None = None
    ops: bool = False
    overridden: frozenset[str] = frozenset()
    failure: str | None = None
    threads: int = 1
    stop: bool = False
    artifacts: Path | None = None
    origin: str = ""


def bisect_dump(
    request: Request, subject: Subject, executor: Executor, reproducers: Path | None = None, tell: Tell = lambda doing: None
) -> Bisection:
    """Execute every stage of the dump with ``executor``, which is for ``subject``.

    With ``reproducers`` a wrong stage leaves a reproducer below that directory.
    """
    trace = json.loads((request.dump / TRACE).read_text())
    target = create_target(request.target, threads=request.threads)
    stages = list(_stage_files(request.dump, trace))
    route = trace["route"] or ("tosa" if any(s.name == "tosa" for s in stages) else "linalg")
    table = Table(route, request.program.level)
    pipeline = target.pipeline(route, request.program.level)
    plain = plain_stages(pipeline)
    verdicts = tuple(_verdicts(request, subject, stages, target, plain, table, executor, tell))
    wrong, suspects = first_wrong(verdicts)
    if wrong is not None:
        files = {stage.name: stage for stage in stages}
        suspects += behind(verdicts, wrong, lambda before: executor.verdict_by_rest(files[before.name], table))
    found = Bisection(
        request.program.name,
        request.target,
        route,
        _reference_text(subject),
        verdicts,
        first_wrong_stage=wrong,
        suspects=suspects,
        failure=request.failure,
    )
    if request.artifacts is not None:
        found = store(request.artifacts, found, stages, request.bundle, subject, executor, table, tell)
    if wrong is None:
        return found
    at = [stage.name for stage in stages].index(wrong)
    culprit: Culprit | None = Culprit(stages[at].file, EMPTY_PIPELINE)  # what the user gave is wrong as it is
    by_passes = wrong not in request.overridden and at > 0
    if found[wrong].how == BY_REST:
        culprit = _beyond_the_plain_path(found, stages, at, request, pipeline)
        found = left_out(found, stages[at - 1], pipeline, executor, table, tell) if by_passes else found
    elif wrong not in plain:
        culprit = None
    elif by_passes:
        stage = pipeline.stages[pipeline.index(wrong)]
        found, culprit = one_by_one(found, stages[at - 1], stage, executor, request.program, tell)
    if reproducers is not None and culprit is not None and found[wrong].status != "timeout":
        found = replace(found, reproducer=write_reproducer(reproducers, found, culprit, subject))
    elif reproducers is not None and request.origin:
        found = replace(found, reproducer=write_command(reproducers, found, request.origin))
    return _with_op(found, stages, at, executor, request, subject, tell) if request.ops else found


def module_subject(program: Program, target: str, scratch: Path, seed: int, process: Supervised) -> Subject:
    """The subject of a program that is an MLIR file: its own answer, before any stage, is what the stages must keep.

    ``process`` executes it.
    """
    file = scratch / "given.mlirbc"
    file.write_bytes(module_bytecode(program.payload))

    def run(subject: Subject) -> Answer:
        answer = scratch / "answer.pt"
        with Executor(subject, scratch, target, process) as executor:
            executor.keep_answer(file, program.level, answer)
        kept: Answer = torch.load(answer, weights_only=False)
        return kept

    return subject_of_module(program, run, seed=seed)


def _reference_text(subject: Subject) -> str:
    expected = subject.expected
    return (
        expected.note or f"eager in {expected.precision}"
        if expected.precision == "as is"
        else f"eager in {expected.precision}"
    )


def _stage_files(dump: Path, trace: dict[str, Any]) -> Iterator[StageFile]:
    for entry in trace["stages"]:
        level = LEVELS[entry["level"]]
        extension = "mlirbc" if level.is_module or level.foreign else level.extension
        complete = dump / "replay" / f"{entry['index']:02d}-{entry['name']}.{extension}"
        yield StageFile(entry["name"], entry["level"], complete if complete.is_file() else dump / entry["file"])


def plain_stages(pipeline: Pipeline) -> frozenset[str]:
    """The stages that are executed by the plain path: not those where kernels stand apart from the program around them."""
    native = any(stage.level_name == "object" for stage in pipeline.stages)
    levels = (*PLAIN_LEVELS, *(NATIVE_LEVELS if native else ()))
    found: set[str] = set()
    apart = False
    for stage in pipeline.stages:
        for step in stage.steps:
            apart = isinstance(step, (FormRegions, SplitProgram)) or (apart and not isinstance(step, FormLinkedKernels))
        if not apart and stage.level_name in levels:
            found.add(stage.name)
    return frozenset(found)


def _verdicts(
    request: Request,
    subject: Subject,
    stages: Sequence[StageFile],
    target: Target,
    plain: frozenset[str],
    table: Table,
    executor: Executor,
    tell: Tell,
) -> Iterator[Verdict]:
    for stage in stages:
        tell(stage.name)
        is_artifact = stage is stages[-1] and request.bundle is not None
        if stage.level == "fx":
            verdict = graph_verdict(stage.name, request.program, subject)
        elif stage.name in plain and not is_artifact:
            verdict = executor.verdict(stage.name, stage.file, stage.level)
        elif stage.level not in (*CONTINUED_LEVELS, *PLAIN_LEVELS, *NATIVE_LEVELS) and not is_artifact:
            verdict = Verdict(stage.name, "not executed", reason="shows what the artifact holds")
        elif reason := target.available():
            verdict = Verdict(stage.name, "needs a device", reason=reason)
        elif is_artifact:
            assert request.bundle is not None
            verdict = executor.verdict_of_bundle(stage.name, request.bundle)
        else:
            verdict = executor.verdict_by_rest(stage, table)
        yield replace(verdict, level=stage.level)
        if verdict.is_wrong and request.stop:
            return


def _beyond_the_plain_path(
    found: Bisection, stages: Sequence[StageFile], at: int, request: Request, pipeline: Pipeline
) -> Culprit | None:
    """What only its own target executes: the last module before the target's stages begin, and their passes up to there."""
    wrong = stages[at]
    rest = Rest(request.target, found.route, request.program.level, wrong.name)
    if wrong.name in request.overridden:
        return Culprit(wrong.file, EMPTY_PIPELINE, rest, "" if LEVELS[wrong.level].is_module else wrong.level)
    begin = next((number for number, stage in enumerate(stages[:at]) if stage.level == "linalg"), None)
    if begin is None or request.overridden & {stage.name for stage in stages[begin + 1 : at]}:
        return None
    between = pipeline.stages[pipeline.index(stages[begin].name) + 1 : pipeline.index(wrong.name) + 1]
    return Culprit(stages[begin].file, pipeline_text(tuple(step for stage in between for step in stage.steps)), rest)


# --------------------------------------------------------------------------------------------------------------------- op


def _with_op(
    found: Bisection,
    stages: Sequence[StageFile],
    at: int,
    executor: Executor,
    request: Request,
    subject: Subject,
    tell: Tell,
) -> Bisection:
    """The first op of the wrong stage whose value neither the stage before it nor the exported graph has."""
    stage = stages[at]
    by_kernel = found[stage.name].how == BY_REST and LEVELS[stage.level].is_module
    if stage.level not in TENSOR_LEVELS and not by_kernel:
        return replace(found, op_note=f"values can be compared on tensors; stage '{stage.name}' has none")
    tell(f"{stage.name}: {'kernels' if by_kernel else 'values of ops'}")
    try:
        if by_kernel:
            table = Table(found.route, request.program.level)
            overridden = stage.name in request.overridden
            answer = executor.first_wrong_kernel(stage, stages[at - 1], table, overridden=overridden)
        else:
            answer = executor.ask(_question_of_values(stages, at, executor, request, subject))
    except WorkerLostError as error:
        return replace(found, op_note=f"comparing values: {error.message}")
    if "error" in answer:
        return replace(found, op_note=answer["error"])
    if answer["found"] is None:
        return replace(found, op_note=answer["note"])
    return replace(found, op=OpFinding(stage.name, **answer["found"]))


def _question_of_values(
    stages: Sequence[StageFile], at: int, executor: Executor, request: Request, subject: Subject
) -> dict[str, str]:
    right = next((stage for stage in reversed(stages[:at]) if stage.level in TENSOR_LEVELS), None)
    values = ""
    if request.program.level == "fx":
        values = str(executor.scratch / "values.pt")
        torch.save(graph_values(request.program, subject), values)
    return {"do": "op", "values": values, "right": str(right.file) if right else "", "wrong": str(stages[at].file)}
