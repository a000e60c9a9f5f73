"""A bisection in two parts: what needs a device is built on one machine and executed on another, which needs no MLIR.

In the folder between them: ``subject.pt`` (inputs, parameters, eager's answer), ``bisection.json`` (what was found so far),
and a bundle for each stage that is still to be executed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlirstack.compare.bisect.executor import SUBJECT_FILE, Executor, Table, Tell
from mlirstack.compare.bisect.processes import bundle_process
from mlirstack.compare.bisect.results import (
    BY_REST,
    CONTINUED_LEVELS,
    Bisection,
    How,
    StageFile,
    Verdict,
    behind,
    first_wrong,
)
from mlirstack.compare.bisect.subject import Subject
from mlirstack.compare.bisect.table import as_json
from mlirstack.errors import StageError, TargetUnavailableError, UsageError, WorkerLostError
from mlirstack.targets.registry import create_target

FOUND = "bisection.json"
_CONTROL = "control-"  # before the name of a stage that was executed here, and is executed once more there


def store(
    folder: Path,
    found: Bisection,
    stages: Sequence[StageFile],
    artifact: Path | None,
    subject: Subject,
    executor: Executor,
    table: Table,
    tell: Tell,
) -> Bisection:
    """Build what the stages without a device need and write the folder; returns ``found`` with their status "built".

    ``artifact`` is the bundle of the whole lowering (None: it failed).
    """
    subject.save(folder / SUBJECT_FILE)
    verdicts = list(found.stages)
    for number, verdict in enumerate(verdicts):
        if verdict.status != "needs a device":
            continue
        if verdict.level not in CONTINUED_LEVELS:
            assert artifact is not None
            shutil.copytree(artifact, folder / verdict.name, dirs_exist_ok=True)
            verdicts[number] = replace(verdict, status="built", reason=None)
            continue
        tell(f"{verdict.name}: building")
        verdicts[number] = _built(verdict, folder / verdict.name, stages[number], executor, table)
        if number and verdicts[number - 1].status == "ok" and verdicts[number].status == "built":
            before = stages[number - 1]
            _built(verdicts[number - 1], folder / f"{_CONTROL}{before.name}", before, executor, table)
    found = replace(found, stages=tuple(verdicts))
    (folder / FOUND).write_text(json.dumps(as_json(found), indent=1) + "\n")
    return found


def _built(verdict: Verdict, bundle: Path, stage: StageFile, executor: Executor, table: Table) -> Verdict:
    try:
        executor.build_by_rest(stage, table, bundle)
    except (StageError, WorkerLostError) as error:
        return replace(verdict, status="error", reason=error.message)
    return replace(verdict, status="built", reason=None)


def bisect_stored(folder: Path, target: str, tell: Tell = lambda doing: None, *, stop: bool = False) -> Bisection:
    """Execute what :func:`store` has built and complete its bisection; ``stop``: nothing behind the first wrong stage.

    :class:`TargetUnavailableError` where there is no device either.
    """
    found = _read(folder)
    if found.target.partition(":")[0] != target.partition(":")[0]:
        raise UsageError(f"{folder} was built for target {found.target}", hint=f"--target {found.target}")
    if reason := create_target(target).available():
        raise TargetUnavailableError(f"{target} cannot run here: {reason}", hint=f"execute {folder} where there is a device")
    verdicts: list[Verdict] = []
    with bundle_process() as process, Executor(Subject.load(folder / SUBJECT_FILE), folder, target, process) as executor:
        for verdict in found.stages:
            tell(verdict.name)
            is_built = verdict.status == "built"
            verdicts.append(_executed(verdict, folder / verdict.name, executor) if is_built else verdict)
            if stop and verdicts[-1].is_wrong:
                break
        wrong, suspects = first_wrong(tuple(verdicts))
        if wrong is not None:

            def control(before: Verdict) -> Verdict:
                return _executed(before, folder / f"{_CONTROL}{before.name}", executor)

            suspects = (*suspects, *behind(verdicts, wrong, control))
    return replace(found, stages=tuple(verdicts), first_wrong_stage=wrong, suspects=suspects)


def _executed(verdict: Verdict, bundle: Path, executor: Executor) -> Verdict:
    found = executor.verdict_of_bundle(verdict.name, bundle)
    how: How = BY_REST if verdict.level in CONTINUED_LEVELS or verdict.how else "artifact"
    return replace(found, level=verdict.level, how=how if found.how else None)


def _read(folder: Path) -> Bisection:
    """Inverse of what :func:`store` writes, as far as it is needed."""
    try:
        data: dict[str, Any] = json.loads((folder / FOUND).read_text())
        verdicts = tuple(
            Verdict(**{**entry, "rel_l2": None if entry["rel_l2"] is None else float(entry["rel_l2"])})
            for entry in data["stages"]
        )
        return Bisection(data["model"], data["target"], data["route"], data["reference"], verdicts, failure=data["failure"])
    except OSError as error:
        raise UsageError(
            f"{folder} holds no bisection: {error.strerror}", hint="build it: the same command with --build-only"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / FOUND} cannot be read: {error}", hint="build it again, with --build-only") from error
