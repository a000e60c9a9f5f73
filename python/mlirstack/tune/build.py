"""Builds candidate sets: problems of several models, each distinct one once, compiled in processes of their own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from mlirstack.errors import UsageError, WorkerLostError
from mlirstack.frontend.program import Program
from mlirstack.supervised import Supervised
from mlirstack.tune.candidate_set import INDEX, MODULE, CandidateSet, StoredCandidate, StoredProblem
from mlirstack.tune.problems import Problem, architecture, find_problems, select

DEFAULT_CANDIDATES = 10
DEFAULT_TIMEOUT = 120.0  # seconds for one candidate
_COMMAND = (sys.executable, "-m", "mlirstack.tune.compile_candidate")

Report = Callable[[str], None]


def build_set(
    programs: Iterable[Program],
    target: str,
    directory: Path,
    *,
    count: int = DEFAULT_CANDIDATES,
    timeout: float = DEFAULT_TIMEOUT,
    jobs: int | None = None,
    report: Report = lambda line: None,
) -> CandidateSet:
    """Find the problems of all programs and build up to ``count`` candidates of each for ``target`` below ``directory``.

    An earlier set there is replaced.  A candidate that fails, crashes or takes longer than ``timeout`` seconds is recorded
    as skipped.  ``jobs``: processes that compile (default: one per processor, four at most).  ``report`` is told a line
    per problem.
    """
    arch = architecture(target)
    _refuse(directory)
    problems: dict[str, Problem] = {}
    for program in programs:
        for problem in find_problems(program, target):
            problems.setdefault(problem.key, problem)
    _clear(directory)
    jobs = jobs or min(4, os.cpu_count() or 1)
    workers: SimpleQueue[Supervised] = SimpleQueue()
    for _ in range(jobs):
        workers.put(Supervised(_COMMAND, timeout=timeout))
    stored: list[StoredProblem] = []
    try:
        with ThreadPoolExecutor(jobs) as pool:
            for number, problem in enumerate(problems.values()):
                stored.append(_build(problem, f"{number:02d}-{problem.name}", directory, target, count, pool, workers))
                skipped = [c.skipped for c in stored[-1].candidates if c.skipped is not None]
                note = f", {len(skipped)} skipped: {skipped[0]}" if skipped else ""
                report(f"{stored[-1].directory}: {len(stored[-1].candidates) - len(skipped)} candidates{note}")
    finally:
        while not workers.empty():
            workers.get().close()
    found = CandidateSet(arch, tuple(stored))
    found.write(directory)
    return found


def _build(
    problem: Problem,
    name: str,
    directory: Path,
    target: str,
    count: int,
    pool: ThreadPoolExecutor,
    workers: SimpleQueue[Supervised],
) -> StoredProblem:
    folder = directory / name
    folder.mkdir()
    module = folder / MODULE
    module.write_text(problem.module)

    def candidate(number: int, choice: dict[str, Any]) -> StoredCandidate:
        question = {"module": str(module), "target": target, "choice": choice, "directory": str(folder / str(number))}
        worker = workers.get()
        try:
            skipped: str | None = worker.ask(question)
        except WorkerLostError as error:
            skipped = error.message
        finally:
            workers.put(worker)
        return StoredCandidate(choice, skipped)

    entries = [{"name": choice.name, **choice.parameters} for choice in select(problem.choices, count)]
    candidates = tuple(pool.map(candidate, range(len(entries)), entries))
    return StoredProblem(name, problem.key, problem.bucket, problem.model, candidates)


def _refuse(directory: Path) -> None:
    """Raise :class:`UsageError` where anything but an earlier candidate set stands in the way."""
    if (directory / INDEX).is_file() or not directory.exists():
        return
    if not directory.is_dir() or any(directory.iterdir()):
        raise UsageError(f"{directory} exists and holds no candidate set", hint="name a new directory")


def _clear(directory: Path) -> None:
    """An empty directory; an earlier candidate set there goes."""
    try:
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}") from error
