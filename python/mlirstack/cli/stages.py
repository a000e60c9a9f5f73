"""``mlirstack compare … --per-stage``: every stage of every model against eager, as bisect does it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlirstack.cli.common import console, error_console, progress, write_json
from mlirstack.errors import MlirstackError, UsageError
from mlirstack.worker import Job, Worker

if TYPE_CHECKING:
    from mlirstack.compare.bisect.results import Bisection
    from mlirstack.lowering import LowerOptions
    from mlirstack.supervised import Supervised


def compare_stages(job: Job, targets: list[str], lower: LowerOptions, dump: Path | None, json_file: Path | None) -> int:
    """Bisect each model on each target; prints a line each, and what is wrong.  Returns the exit status."""
    from mlirstack.compare.bisect.executor import execution_process
    from mlirstack.compare.bisect.table import as_json, conclusions, print_summary

    for target in targets:
        if target in ("eager", "inductor"):
            raise UsageError(f"target '{target}' has no stages", hint="give one of mlirstack's own targets")
    found: list[Bisection] = []
    failures: list[str] = []
    references = _references(job.reference)
    with Worker() as worker, execution_process() as process, progress("stages") as tell:
        for number, reference in enumerate(references, 1):
            for target in targets:
                title = f"{number}/{len(references)} {reference} on {target}"

                def doing(what: str, title: str = title) -> None:
                    tell("before", f"{title}: {what}", 0.0)

                folder = dump / reference.removeprefix("zoo:") / target.replace(":", "-") if dump else None
                options = replace(lower, target=target, dump=folder)
                try:
                    found.append(_bisected(replace(job, reference=reference), options, worker, process, doing))
                except UsageError:
                    raise
                except MlirstackError as error:
                    failures.append(f"{reference} on {target}: {error}")
            if str(json_file) != "-":  # a long run that is ended early leaves what it has found
                write_json(json_file, [as_json(bisection) for bisection in found])
    if str(json_file) != "-":
        print_summary(found, console)
    for bisection in found:
        if not bisection.ok:
            lines = "; ".join(conclusions(bisection))
            error_console.print(f"{bisection.model} on {bisection.target}: {lines}", markup=False)
    for failure in failures:
        error_console.print(failure, markup=False)
    write_json(json_file, [as_json(bisection) for bisection in found])
    statuses = {bisection.exit_status for bisection in found} | ({3} if failures else set())
    return 1 if 1 in statuses else 3 if 3 in statuses else 0


def _references(reference: str) -> list[str]:
    if reference != "zoo:all":
        return [reference]
    from mlirstack import zoo

    return [f"zoo:{name}" for name in zoo.names()]


def _bisected(job: Job, lower: LowerOptions, worker: Worker, process: Supervised, doing: Callable[[str], None]) -> Bisection:
    from mlirstack.compare.bisect.model import Options, bisect_model
    from mlirstack.frontend.references import load

    kept = Path(tempfile.gettempdir()) / "mlirstack-reproducers" / f"stages-{Path(job.reference).name}-{lower.target}"

    def compile_(options: LowerOptions, bundle: Path) -> None:
        worker.run(replace(job, options=replace(options, crash_safe=True, reproducers=kept), bundle=bundle))

    source = load(job.reference, seed=job.seed, dtype=job.dtype, dynamic=job.dynamic)
    return bisect_model(source, Options(lower, seed=job.seed, reproducers=kept), compile_, doing, process)
