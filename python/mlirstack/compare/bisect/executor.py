"""The parent's end of the process that executes stages: questions go out, verdicts come back, a crash is a verdict too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlirstack.bundle.files import sha256
from mlirstack.compare.bisect.processes import execution_process
from mlirstack.compare.bisect.results import BY_REST, RAN, How, StageFile, Verdict
from mlirstack.compare.bisect.subject import Subject
from mlirstack.errors import StageError, WorkerLostError
from mlirstack.supervised import Supervised

Tell = Callable[[str], None]

SUBJECT_FILE = "subject.pt"


@dataclass(frozen=True)
class Table:
    """Which table of the target a lowering ran through: by its route, and the level that the program came at."""

    route: str
    level: str


class Executor:
    """Executes files of stages for one subject, in ``process`` or one of its own; after a crash in a new one."""

    def __init__(self, subject: Subject, scratch: Path, target: str, process: Supervised | None = None) -> None:
        self.scratch, self.target = scratch, target
        self._known: dict[str, Verdict] = {}
        self._subject = scratch / SUBJECT_FILE
        subject.save(self._subject)
        self._is_own = process is None
        self._process = process or execution_process()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._is_own:
            self._process.close()

    def verdict(self, name: str, file: Path, level: str) -> Verdict:
        """Execute what ``file`` holds at ``level`` by the plain path and judge the answer; a file with the same content as
        an earlier one is not executed again."""
        key = sha256(file)
        if key not in self._known:
            self._known[key] = self._verdict(name, {"do": "run", "file": str(file), "level": level}, "plain path")
        return replace(self._known[key], name=name)

    def verdict_of_bundle(self, name: str, bundle: Path) -> Verdict:
        """Execute a bundle of the target and judge the answer."""
        return self._verdict(name, {"do": "bundle", "file": str(bundle)}, "artifact")

    def verdict_by_rest(self, stage: StageFile, table: Table, without: tuple[str, int] | None = None) -> Verdict:
        """Execute what a stage left through the stages behind it, and judge the answer; ``without`` a step, by its stage
        and its number there."""
        return self._verdict(stage.name, {"do": "rest", "without": without, **_rest(stage, table)}, BY_REST)

    def first_wrong_kernel(self, stage: StageFile, before: StageFile, table: Table, *, overridden: bool) -> Any:
        """``found`` and ``note`` of :mod:`.kernels`; :class:`WorkerLostError` where the process ends."""
        asked = {"do": "kernel", "before": [str(before.file), before.name], "overridden": overridden}
        return self.ask({**asked, **_rest(stage, table), "target": self.target})

    def build_by_rest(self, stage: StageFile, table: Table, bundle: Path) -> None:
        """Write what the stages behind a stage make of it as a bundle; :class:`StageError` where they cannot."""
        answer = self.ask({"do": "build", **_rest(stage, table), "target": self.target, "bundle": str(bundle)})
        if "error" in answer:
            raise StageError(answer["error"], stage=stage.name)

    def _verdict(self, name: str, question: dict[str, Any], how: How) -> Verdict:
        started = time.perf_counter()
        try:
            answer = self.ask({**question, "target": self.target})
        except WorkerLostError as error:
            verdict = _lost(name, error)
        else:
            if "error" in answer:
                verdict = Verdict(name, answer["status"], reason=answer["error"])
                if verdict.status == "crash":  # what is left of its device is of no use to the next
                    self._process.close()
            else:
                found = {key: answer[key] for key in ("rel_l2", "tolerance", "reason", "symptom")}
                verdict = Verdict(name, "ok" if answer["ok"] else "wrong", **found)
        how_executed = how if verdict.status in RAN else None
        return replace(verdict, seconds=time.perf_counter() - started, how=how_executed)

    def keep_answer(self, file: Path, level: str, output: Path) -> None:
        """Execute ``file`` and write its answer to ``output``; :class:`StageError` where it gives none."""
        question = {"do": "run", "file": str(file), "level": level, "target": self.target, "keep": str(output)}
        try:
            answer = self.ask(question)
        except WorkerLostError as error:
            raise StageError(_lost("", error).reason or "", stage="reference") from None
        if "error" in answer:
            raise StageError(answer["error"], stage="reference", hint="the plain path cannot execute this module")

    def ask(self, question: dict[str, Any]) -> Any:
        """Ask the process anything; :class:`WorkerLostError` where it dies or takes too long."""
        return self._process.ask({**question, "subject": str(self._subject)})


def _rest(stage: StageFile, table: Table) -> dict[str, Any]:
    file, name = str(stage.file), stage.name
    return {"file": file, "level": stage.level, "stage": name, "route": table.route, "from": table.level}


def _lost(name: str, error: WorkerLostError) -> Verdict:
    doing = f"while {error.doing}" if error.doing else "before it began"
    if "no answer within" in error.message:
        return Verdict(name, "timeout", reason=f"{error.message} {doing}")
    if "died" in error.message:
        what = "stage crashes when executed" if error.doing == "executing" else "the process crashed"
        return Verdict(name, "crash", reason=f"{what}: {error.message} {doing}")
    return Verdict(name, "error", reason=f"{error.message} {doing}")
