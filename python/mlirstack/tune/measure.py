"""Measures a candidate set on this machine's GPU, problem by problem, in a process that a bad candidate may take down.

Candidates of a problem run together, so that their times compare.  Where the process is lost, the candidate that it was
at is left out and the others run again; where no single one can be blamed, they run two at a time, each with the first.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mlirstack.errors import WorkerLostError
from mlirstack.supervised import Supervised
from mlirstack.tune.candidate_set import CandidateSet, StoredProblem

DEFAULT_TIMEOUT = 20.0  # seconds without a sign of life
DEFAULT_SECONDS = 0.15  # of measuring, per candidate
_COMMAND = (sys.executable, "-m", "mlirstack.tune.time_candidates")


@dataclass(frozen=True)
class Measured:
    """Seconds per call of the candidates that are right, by number, and why the others are not; ``note``: why nothing was
    measured."""

    problem: StoredProblem
    seconds: dict[int, float] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    note: str | None = None


def gpu_process(timeout: float = DEFAULT_TIMEOUT) -> Supervised:
    """The process that runs candidates; ``timeout``: seconds of silence that end it."""
    return Supervised(_COMMAND, timeout=timeout)


def measure_set(
    found: CandidateSet, directory: Path, worker: Supervised, *, budget: float, seconds: float = DEFAULT_SECONDS
) -> Iterator[Measured]:
    """Measure all problems in turn; after ``budget`` seconds the rest is passed over, with a note that says so."""
    deadline = time.monotonic() + budget
    for problem in found.problems:
        yield measure(problem, directory, worker, seconds, deadline)


def measure(
    problem: StoredProblem, directory: Path, worker: Supervised, seconds: float, deadline: float = math.inf
) -> Measured:
    """Times of all candidates of a problem that were built; none is begun after ``deadline`` on the monotonic clock."""
    alive = [number for number, candidate in enumerate(problem.candidates) if candidate.skipped is None]
    failed: dict[int, str] = {}
    ask = _Question(worker, str((directory / problem.directory).resolve()), seconds)
    while alive:
        if time.monotonic() > deadline:
            return Measured(problem, {}, failed, "the time budget was spent")
        try:
            times, wrong = ask(alive)
        except WorkerLostError as error:
            guilty = error.doing.get("candidate") if isinstance(error.doing, dict) else None
            if guilty not in alive:
                if error.doing == "start":
                    return Measured(problem, {}, failed, f"the process that measures does not start: {error.message}")
                times, wrong = _two_at_a_time(ask, alive, deadline)
                return Measured(problem, times, failed | wrong, None if times else "no candidate runs")
            failed[guilty] = error.message
            alive.remove(guilty)
            continue
        return Measured(problem, times, failed | wrong, None if times else "no candidate is right")
    return Measured(problem, {}, failed, "no candidate runs" if failed else "no candidate was built")


@dataclass(frozen=True)
class _Question:
    worker: Supervised
    directory: str
    seconds: float

    def __call__(self, candidates: list[int]) -> tuple[dict[int, float], dict[int, str]]:
        question = {"directory": self.directory, "candidates": candidates, "seconds": self.seconds}
        answer = self.worker.ask(question)
        times = {int(number): float(value) for number, value in answer["seconds"].items()}
        return times, {int(number): str(reason) for number, reason in answer["failed"].items()}


def _two_at_a_time(
    ask: _Question, candidates: list[int], deadline: float
) -> tuple[dict[int, float], dict[int, str]]:  # fmt: skip
    """Each candidate together with the first one that runs alone."""
    times: dict[int, float] = {}
    failed: dict[int, str] = {}
    first: int | None = None
    for number in candidates:
        if time.monotonic() > deadline:
            failed[number] = "the time budget was spent"
            continue
        try:
            found, wrong = ask([number] if first is None else [first, number])
        except WorkerLostError as error:
            failed[number] = error.message
            continue
        if number in found:
            first = number if first is None else first
            times = found | times  # what was measured first of the first one stands
        else:
            failed[number] = wrong[number]
    return times, failed
