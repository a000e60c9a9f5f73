"""``mlirstack compare … --per-stage``: every stage of every model against eager, as bisect does it."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlirstack.cli.common import console, error_console, progress, write_json
from mlirstack.errors import MlirstackError, UsageError
from mlirstack.parallel import each
from mlirstack.worker import Job, Worker

if TYPE_CHECKING:
    from mlirstack.compare.bisect.results import Bisection
    from mlirstack.lowering import LowerOptions
    from mlirstack.supervised import Supervised


@dataclass(frozen=True)
class _Task:
    """A model, and the lowering to one target whose stages are executed."""

    job: Job
    lower: LowerOptions

    def __str__(self) -> str:
        return f"{self.job.reference} on {self.lower.target}"


def compare_stages(
    job: Job, targets: list[str], lower: LowerOptions, dump: Path | None, json_file: Path | None, jobs: int = 1
) -> int:
    """Bisect each model on each target, ``jobs`` at a time; prints a line each, and what is wrong.

    Returns the exit status.
    """
    from mlirstack.compare.bisect.table import conclusions, print_summary

    for target in targets:
        if target in ("eager", "inductor"):
            raise UsageError(f"target '{target}' has no stages", hint="give one of mlirstack's own targets")
    tasks = [
        _Task(replace(job, reference=reference), replace(lower, target=target, dump=_folder(dump, reference, target)))
        for reference in _references(job.reference)
        for target in targets
    ]
    found, failures = _checked(tasks, jobs, json_file)
    if str(json_file) != "-":
        print_summary(found, console)
    for bisection in found:
        if not bisection.ok:
            lines = "; ".join(conclusions(bisection))
            error_console.print(f"{bisection.model} on {bisection.target}: {lines}", markup=False)
    for failure in failures:
        error_console.print(failure, markup=False)
    write_json(json_file, _json(found))
    statuses = {bisection.exit_status for bisection in found} | ({3} if failures else set())
    return 1 if 1 in statuses else 3 if 3 in statuses else 0


def _checked(tasks: list[_Task], jobs: int, json_file: Path | None) -> tuple[list[Bisection], list[str]]:
    """What was found, and the failures of those whose bisection could not begin, in the order of the tasks."""
    found: dict[int, Bisection] = {}
    failures: dict[int, str] = {}
    with progress("stages") as tell:
        for number, result in each(_bisected, tasks, jobs):
            if isinstance(result, UsageError):
                raise result
            if isinstance(result, MlirstackError):
                failures[number] = f"{tasks[number]}: {result}"
            else:
                found[number] = result
            tell("before", f"{len(found) + len(failures)}/{len(tasks)}, {tasks[number]}", 0.0)
            if str(json_file) != "-":  # a long run that is ended early leaves what it has found
                write_json(json_file, _json([found[n] for n in sorted(found)]))
    return [found[n] for n in sorted(found)], [failures[n] for n in sorted(failures)]


def _json(found: list[Bisection]) -> list[dict[str, Any]]:
    from mlirstack.compare.bisect.table import as_json

    return [as_json(bisection) for bisection in found]


def _references(reference: str) -> list[str]:
    if reference != "zoo:all":
        return [reference]
    from mlirstack import zoo

    # The heavy ones first, so that they do not run alone at the end.
    return [f"zoo:{name}" for name in sorted(zoo.names(), key=lambda name: name not in zoo.HEAVY)]


def _folder(dump: Path | None, reference: str, target: str) -> Path | None:
    return dump / reference.removeprefix("zoo:") / target.replace(":", "-") if dump else None


def _bisected(task: _Task) -> Bisection:
    worker, process = _processes()
    return bisected(task.job, task.lower, worker, process)


def bisected(
    job: Job, lower: LowerOptions, worker: Worker, process: Supervised | None = None, *, stop: bool = False
) -> Bisection:
    """Bisect a model, compiling in ``worker`` and executing in ``process``; a wrong stage leaves a reproducer."""
    from mlirstack.compare.bisect.model import Options, bisect_model
    from mlirstack.frontend.references import load

    kept = Path(tempfile.gettempdir()) / "mlirstack-reproducers" / f"stages-{Path(job.reference).name}-{lower.target}"

    def compile_(options: LowerOptions, bundle: Path) -> Callable[[], object]:
        worker.begin(replace(job, options=replace(options, crash_safe=True, reproducers=kept), bundle=bundle))
        return worker.end

    source = load(job.reference, seed=job.seed, dtype=job.dtype, dynamic=job.dynamic)
    options = Options(lower, seed=job.seed, stop=stop, reproducers=kept, origin=_compare_command(job, lower))
    return bisect_model(source, options, compile_, process=process)


def _compare_command(job: Job, lower: LowerOptions) -> str:
    """The command that finds the same again."""
    words = ["mlirstack", "compare", job.reference, "--targets", lower.target, "--route", lower.route]
    words += ["--seed", str(job.seed)] if job.seed else []
    words += ["--dtype", job.dtype] if job.dtype else []
    for name, size in job.dynamic.items():
        words += ["--dynamic", f"{name}={size}"]
    return shlex.join(words)


@cache
def _processes() -> tuple[Worker, Supervised]:
    """What compiles and what executes for this process, one model after the other, until it ends."""
    from mlirstack.compare.bisect.processes import execution_process

    return Worker(), execution_process()
