"""The parent's end of the process that executes stages: questions go out, verdicts come back, a crash is a verdict too."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlirstack.compare.bisect.results import Status, Verdict
from mlirstack.compare.bisect.subject import Subject
from mlirstack.errors import StageError, WorkerLostError
from mlirstack.pipeline.runner import sha256
from mlirstack.supervised import Supervised

SUBJECT_FILE = "subject.pt"
TIMEOUT = 300.0  # seconds for lowering or executing one stage


def execution_process(timeout: float = TIMEOUT) -> Supervised:
    """The process that executes; one may serve many executors, one after the other.  ``timeout``: seconds for a stage."""
    return Supervised([sys.executable, "-m", "mlirstack.compare.bisect.execute"], timeout=timeout)


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
        """Execute what ``file`` holds at ``level`` ("": a bundle) and judge the answer; a file with the same content as an
        earlier one is not executed again."""
        if not level:
            return self._verdict(name, file, level)
        key = sha256(file.read_bytes())
        if key not in self._known:
            self._known[key] = self._verdict(name, file, level)
        return replace(self._known[key], name=name)

    def _verdict(self, name: str, file: Path, level: str) -> Verdict:
        started = time.perf_counter()
        try:
            answer = self.ask({"do": "run", "file": str(file), "level": level, "target": self.target})
        except WorkerLostError as error:
            verdict = _lost(name, error)
        else:
            if "error" in answer:
                status: Status = "needs a device" if answer["unavailable"] else "error"
                verdict = Verdict(name, status, reason=answer["error"])
            else:
                found = {key: answer[key] for key in ("rel_l2", "tolerance", "reason", "symptom")}
                verdict = Verdict(name, "ok" if answer["ok"] else "wrong", **found)
        return replace(verdict, seconds=time.perf_counter() - started)

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


def _lost(name: str, error: WorkerLostError) -> Verdict:
    doing = f"while {error.doing}" if error.doing else "before it began"
    if "no answer within" in error.message:
        return Verdict(name, "timeout", reason=f"{error.message} {doing}")
    if "died" in error.message:
        what = "stage crashes when executed" if error.doing == "executing" else "the process crashed"
        return Verdict(name, "crash", reason=f"{what}: {error.message} {doing}")
    return Verdict(name, "error", reason=f"{error.message} {doing}")
