"""The reproducer of a wrong number: the module before the pass that makes it wrong, and what the program is called with."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from mlirstack.compare.bisect.results import Bisection, Verdict
from mlirstack.compare.bisect.subject import Subject
from mlirstack.pipeline.reproducer import ARGUMENTS, EMPTY_PIPELINE, ERROR, Record, Rest
from mlirstack.versions import versions


@dataclass(frozen=True)
class Culprit:
    """A module's file, and the passes that make it wrong (none: it is wrong as it is).

    ``rest`` takes on what they leave, where the plain path cannot; ``level`` is that of a file that is no module.
    """

    file: Path
    pipeline: str
    rest: Rest | None = None
    level: str = ""


def write_reproducer(directory: Path, found: Bisection, culprit: Culprit, subject: Subject) -> Path:
    """Write the reproducer of the first wrong stage below ``directory``; returns its own directory."""
    assert found.first_wrong_stage is not None
    verdict = found[found.first_wrong_stage]
    path = _emptied(directory, verdict)
    name = f"input{culprit.file.suffix}"
    shutil.copyfile(culprit.file, path / name)
    subject.save(path / ARGUMENTS)
    crash = verdict.status == "crash"
    record = Record(
        "crash" if crash else "wrong",
        verdict.name,
        verdict.level,
        culprit.pipeline,
        name,
        message="" if crash else verdict.reason or "",
        # No pass is expected to fail: the answer is wrong after it.
        input_level=culprit.level,
        rel_l2=verdict.rel_l2,
        rest=culprit.rest,
        versions=versions(),
    )
    record.write(path, f"mlirstack reproduce . # stage '{verdict.name}', {culprit.pipeline}")
    (path / ERROR).write_text(f"first wrong stage: {verdict.name}\n{verdict.reason}\n")
    return path


def write_command(directory: Path, found: Bisection, origin: str) -> Path:
    """As :func:`write_reproducer`, of what is wrong in the artifact alone: the command ``origin`` is all there is."""
    assert found.first_wrong_stage is not None
    verdict = found[found.first_wrong_stage]
    path = _emptied(directory, verdict)
    record = Record(
        "wrong",
        verdict.name,
        verdict.level,
        EMPTY_PIPELINE,
        "",
        message=verdict.reason or "",
        input_level="fx",
        origin=origin,
        rel_l2=verdict.rel_l2,
        versions=versions(),
    )
    record.write(path, f"{origin} # stage '{verdict.name}'")
    (path / ERROR).write_text(f"first wrong stage: {verdict.name}\n{verdict.reason}\n")
    return path


def _emptied(directory: Path, verdict: Verdict) -> Path:
    path = directory / f"reproducer-wrong-{verdict.name}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path
