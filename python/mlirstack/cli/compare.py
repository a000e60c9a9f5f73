"""``mlirstack compare``: targets against eager; each target is compiled in a worker process and run here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlirstack.cli.common import console, error_console, key_values, progress, run_command, write_json
from mlirstack.errors import TargetUnavailableError, UsageError
from mlirstack.pipeline.dump import prepare_directory
from mlirstack.pipeline.registry import nearest
from mlirstack.targets.registry import create_target, target_names
from mlirstack.worker import Job, Worker

if TYPE_CHECKING:
    from mlirstack.compare.compare import Candidate
    from mlirstack.compare.results import Report
    from mlirstack.frontend.references import ModelSource

EXAMPLES = """
Examples:

  mlirstack compare zoo:tiny_mlp --targets cpu,iree-cpu,inductor --bench --dump demo/tiny_mlp

  mlirstack compare model.py:Net --targets cpu --route linalg

  mlirstack compare zoo:all --targets cpu,iree-cpu --json zoo.json
"""


def compare(
    model: Annotated[str, typer.Argument(help="model reference; zoo:all runs the whole zoo")],
    targets: Annotated[str, typer.Option("--targets", help="comma-separated: cpu,iree-cpu,inductor")] = "cpu",
    bench: Annotated[bool, typer.Option("--bench", help="also time each target, interleaved, after warm-up")] = False,
    dump: Annotated[Path | None, typer.Option("--dump", help="directory; every target gets its own below it")] = None,
    route: Annotated[str, typer.Option("--route", help="auto, tosa or linalg")] = "auto",
    dynamic: Annotated[list[str] | None, typer.Option("--dynamic", help="x:0=1..64: a dynamic dimension")] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="threads, of eager too")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="seed of weights and inputs")] = 0,
    dtype: Annotated[str | None, typer.Option("--dtype", help="dtype of weights and inputs: float16, bfloat16, …")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Compare targets with eager: error against a stated tolerance, compile time, run time and ratio."""

    def body() -> int:
        names = _targets(targets)
        root = prepare_directory(dump) if dump else None
        template = Job(model, None, seed=seed, dtype=dtype, dynamic=key_values(dynamic or [], "NAME:DIM=LOW..HIGH"))
        with Worker() as worker, tempfile.TemporaryDirectory(prefix="mlirstack-") as scratch:
            run = _Comparison(worker, Path(scratch), names, route, threads, bench)
            if model == "zoo:all":
                return run.whole_zoo(template, root, json_file)
            return run.one(template, root, json_file)

    run_command(body)


def _targets(text: str) -> list[str]:
    """The target names, checked before any work."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = ["eager", "inductor", *target_names()]
    for name in names:
        if name.partition(":")[0] not in known:
            raise UsageError(f"unknown target '{name}'{nearest(name, known)}", hint=f"targets: {', '.join(known)}")
    if not names:
        raise UsageError("no target given", hint=f"targets: {', '.join(known)}")
    return names


class _Comparison:
    """One invocation: where compiled bundles go, and how a target becomes a callable."""

    def __init__(self, worker: Worker, scratch: Path, targets: list[str], route: str, threads: int, bench: bool) -> None:
        self.worker, self.scratch, self.targets = worker, scratch, targets
        self.route, self.threads, self.bench = route, threads, bench
        self.bundles = 0

    def one(self, job: Job, dump: Path | None, json_file: Path | None) -> int:
        from mlirstack.compare.table import as_json, print_report

        with progress(job.reference) as tell:
            report = self.report(job, dump, lambda doing: tell("before", doing, 0.0))
        if str(json_file) != "-":
            print_report(report, console)
            if dump:
                console.print(f"dump: {dump}", highlight=False)
        write_json(json_file, as_json(report))
        return report.exit_status

    def whole_zoo(self, job: Job, dump: Path | None, json_file: Path | None) -> int:
        from mlirstack import zoo
        from mlirstack.compare.expected import judge, load_expected_failures
        from mlirstack.compare.table import as_json, print_reports

        reports = []
        names = zoo.names()
        with progress("zoo") as tell:
            for number, name in enumerate(names, 1):
                title = f"{number}/{len(names)} {name}"
                folder = dump / name if dump else None
                one = replace(job, reference=f"zoo:{name}")
                reports.append(self.report(one, folder, lambda doing, t=title: tell("before", f"{t}: {doing}", 0.0)))  # type: ignore[misc]
        expected = load_expected_failures()
        found = [verdict for report in reports for verdict in judge(report, expected)]
        if str(json_file) != "-":
            print_reports(reports, console)
        for verdict in found:
            if not verdict.ok:
                error_console.print(
                    f"{verdict.model} on {verdict.target}: {verdict.outcome}: {verdict.reason}", markup=False
                )
        write_json(json_file, [as_json(report) for report in reports])
        return 0 if all(verdict.ok for verdict in found) else 1

    def report(self, job: Job, dump: Path | None, tell: Callable[[str], None]) -> Report:
        from mlirstack.compare.compare import compare as run_comparison
        from mlirstack.frontend.program import Program
        from mlirstack.frontend.references import load

        source = load(job.reference, seed=job.seed, dtype=job.dtype, dynamic=job.dynamic)
        if isinstance(source, Program):
            raise UsageError(f"{job.reference} has no eager answer to compare with", hint="compare needs a torch model")

        def compile_function(
            module: Any, inputs: tuple[Any, ...], *, target: str, route: str, dynamic_shapes: Any
        ) -> Candidate:
            return self.candidate(job, target, dump, tell)

        return run_comparison(
            _module(source),
            source.inputs,
            self.targets,
            compile_function=compile_function,
            name=source.name,
            route=self.route,
            dynamic_shapes=source.dynamic_shapes,
            bench=self.bench,
            threads=self.threads,
            progress=tell,
        )

    def candidate(self, job: Job, target: str, dump: Path | None, tell: Callable[[str], None]) -> Candidate:
        """Compile in the worker, load here."""
        from mlirstack.api import LowerOptions
        from mlirstack.bundle.store import read_bundle
        from mlirstack.compare.compare import Candidate
        from mlirstack.targets.callable import CompiledFunction

        loader = create_target(target, threads=self.threads)
        reason = loader.available()
        if reason:
            raise TargetUnavailableError(reason)
        self.bundles += 1
        bundle = self.scratch / str(self.bundles)
        folder = dump / target.replace(":", "-") if dump else None
        reproducers = folder or _reproducers(job.reference, target)
        options = LowerOptions(
            target,
            self.route,
            self.threads,
            dump=prepare_directory(folder) if folder else None,
            reproducers=prepare_directory(reproducers),
            crash_safe=True,
        )
        done = self.worker.run(
            replace(job, options=options, bundle=bundle), lambda event, stage, seconds: tell(f"{target}: {stage}")
        )
        built = read_bundle(bundle)
        executable = loader.load(built.artifact, built.signature, built.parameters)
        function = CompiledFunction(executable, built.signature, built.parameters)
        return Candidate(function, route=done.route, compile_s=done.seconds)


def _reproducers(reference: str, target: str) -> Path:
    """Where reproducers go when there is no dump: a failure outlives the scratch directory of this call."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in f"{reference}-{target}")
    return Path(tempfile.gettempdir()) / "mlirstack-reproducers" / name


def _module(source: ModelSource) -> Any:
    """The model as a module that takes the inputs by position only."""
    import torch

    module = source.eager
    if not source.kwargs:
        return module

    class WithKeywords(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def forward(self, *args: Any) -> Any:
            return self.model(*args, **source.kwargs)

    return WithKeywords()
