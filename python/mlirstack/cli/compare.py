"""``mlirstack compare``: targets against eager; each target is compiled in a worker process and run here.

With a directory of artifacts, compiling and running can happen on two machines: the second needs no MLIR.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlirstack.cli.common import KERNELS, console, error_console, key_values, progress, run_command, write_json
from mlirstack.cli.stages import bisected, compare_stages
from mlirstack.errors import BundleError, MlirstackError, TargetUnavailableError, UsageError
from mlirstack.parallel import each
from mlirstack.pipeline.registry import nearest
from mlirstack.targets.registry import create_target, settings_of, target_names
from mlirstack.worker import Done, Job, Worker

if TYPE_CHECKING:
    from mlirstack.bundle.store import Bundle
    from mlirstack.compare.compare import Candidate
    from mlirstack.compare.results import Report

EXAMPLES = """
Examples:

  mlirstack compare zoo:tiny_mlp --targets cpu,iree-cpu,inductor --bench --dump demo/tiny_mlp

  mlirstack compare model.py:Net --targets cpu --route linalg

  mlirstack compare zoo:all --targets cpu,iree-cpu --json zoo.json

  mlirstack compare zoo:all --targets cpu --per-stage --jobs 8

Compile on one machine, run on another (with a GPU, without torch-mlir):

  mlirstack compare zoo:all --targets cuda:sm_90a --build-only --artifacts zoo-artifacts

  mlirstack compare zoo:all --targets cuda:sm_90a --artifacts zoo-artifacts
"""


def compare(
    model: Annotated[str, typer.Argument(help="model reference; zoo:all runs the whole zoo")],
    targets: Annotated[str, typer.Option("--targets", help="comma-separated: cpu,iree-cpu,inductor")] = "cpu",
    bench: Annotated[bool, typer.Option("--bench", help="also time each target, interleaved, after warm-up")] = False,
    dump: Annotated[Path | None, typer.Option("--dump", help="directory; every target gets its own below it")] = None,
    route: Annotated[str, typer.Option("--route", help="auto, tosa or linalg")] = "auto",
    dynamic: Annotated[list[str] | None, typer.Option("--dynamic", help="x:0=1..64: a dynamic dimension")] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="threads, of eager too")] = 1,
    kernels: Annotated[str | None, KERNELS] = None,
    seed: Annotated[int, typer.Option("--seed", help="seed of weights and inputs")] = 0,
    dtype: Annotated[str | None, typer.Option("--dtype", help="dtype of weights and inputs: float16, bfloat16, …")] = None,
    artifacts: Annotated[
        Path | None, typer.Option("--artifacts", help="directory of artifacts to run instead of compiling")
    ] = None,
    build_only: Annotated[bool, typer.Option("--build-only", help="write the artifacts there, run nothing")] = False,
    per_stage: Annotated[
        bool, typer.Option("--per-stage", help="execute the module after every stage, as bisect does, not only at the end")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="models at a time, each in processes of one thread")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Compare targets with eager: error against a stated tolerance, compile time, run time and ratio."""

    def body() -> int:
        names = _targets(targets)
        if build_only and artifacts is None:
            raise UsageError("--build-only needs a place for what is built", hint="add --artifacts DIR")
        root = _directory(dump) if dump else None
        template = Job(model, None, seed=seed, dtype=dtype, dynamic=key_values(dynamic or [], "NAME:DIM=LOW..HIGH"))
        if jobs > 1 and (bench or threads > 1):
            raise UsageError("--jobs shares the processors evenly", hint="leave out --bench and --threads")
        if per_stage:
            if bench or build_only or artifacts:
                raise UsageError("--per-stage compares numbers only", hint="leave out --bench, --artifacts, --build-only")
            from mlirstack.lowering import LowerOptions  # needs MLIR, as every machine that compiles has it

            lower = LowerOptions(route=route, threads=threads)
            return compare_stages(template, names, lower, root, json_file, jobs)
        given = settings_of([n for n in names if n not in _TORCH], {"kernels": kernels} if kernels else {})
        settings = _Settings(tuple(names), route, threads, bench, artifacts, build_only, given)
        if model == "zoo:all":
            return _whole_zoo(settings, template, root, json_file, jobs)
        with Worker() as worker, tempfile.TemporaryDirectory(prefix="mlirstack-") as scratch:
            return _Comparison(worker, Path(scratch), settings).one(template, root, json_file)

    run_command(body)


_TORCH = ("eager", "inductor")  # run by torch alone


def _targets(text: str) -> list[str]:
    """The target names, checked before any work."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [*_TORCH, *target_names()]
    for name in names:
        if name.partition(":")[0] not in known:
            raise UsageError(f"unknown target '{name}'{nearest(name, known)}", hint=f"targets: {', '.join(known)}")
    if not names:
        raise UsageError("no target given", hint=f"targets: {', '.join(known)}")
    return names


def _whole_zoo(settings: _Settings, job: Job, dump: Path | None, json_file: Path | None, jobs: int) -> int:
    """All models, ``jobs`` at a time, against the table of expected failures; returns the exit status."""
    from mlirstack import zoo
    from mlirstack.compare.expected import judge, load_expected_failures
    from mlirstack.compare.table import as_json, print_reports

    names = zoo.names()
    asked = [(settings, replace(job, reference=f"zoo:{name}"), dump / name if dump else None) for name in names]
    reports: dict[int, Report] = {}
    with progress("zoo") as tell:
        for number, report in each(_zoo_report, asked, jobs):
            if isinstance(report, MlirstackError):
                raise report
            reports[number] = report
            tell("before", f"{len(reports)}/{len(names)}, {names[number]}", 0.0)
    ordered = [reports[number] for number in sorted(reports)]
    expected = load_expected_failures()
    found = [verdict for report in ordered for verdict in judge(report, expected)]
    if settings.build_only:  # what is known to give a wrong answer still builds
        found = [verdict for verdict in found if verdict.outcome != "unexpected pass"]
    if str(json_file) != "-":
        print_reports(ordered, console)
    for verdict in found:
        if not verdict.ok:
            error_console.print(f"{verdict.model} on {verdict.target}: {verdict.outcome}: {verdict.reason}", markup=False)
    write_json(json_file, [as_json(report) for report in ordered])
    return 0 if all(verdict.ok for verdict in found) else 1


@dataclass(frozen=True)
class _Settings:
    """What one invocation asks for, of every model alike."""

    targets: tuple[str, ...]
    route: str
    threads: int
    bench: bool
    artifacts: Path | None
    build_only: bool
    given: Mapping[str, Mapping[str, str]]  # of the target's compiler, by target


def _zoo_report(asked: tuple[_Settings, Job, Path | None]) -> Report:
    """The report on one model of many, in whichever process."""
    settings, job, dump = asked
    with tempfile.TemporaryDirectory(prefix="mlirstack-") as scratch:
        return _Comparison(_worker(), Path(scratch), settings).report(job, dump, lambda doing: None)


@cache
def _worker() -> Worker:
    """What compiles for this process, one model after the other, until it ends."""
    return Worker()


class _Comparison:
    """What runs the reports: where compiled bundles go, and how a target becomes a callable."""

    def __init__(self, worker: Worker, scratch: Path, settings: _Settings) -> None:
        self.worker, self.scratch, self.targets = worker, scratch, settings.targets
        self.route, self.threads, self.bench = settings.route, settings.threads, settings.bench
        self.artifacts, self.build_only, self.given = settings.artifacts, settings.build_only, settings.given
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
        if not self.artifacts:
            self.explain_mismatches(job, report)
        return report.exit_status

    def explain_mismatches(self, job: Job, report: Report) -> None:
        """Bisect what is wrong, so that a wrong answer leaves a reproducer as a failure does; printed to standard error."""
        from mlirstack.compare.bisect.table import conclusions
        from mlirstack.lowering import LowerOptions

        for result in report.results:
            if result.status != "mismatch" or result.target in ("eager", "inductor"):
                continue
            with progress(f"{job.reference} on {result.target}: which stage is it"):
                lower = LowerOptions(result.target, self.route, self.threads, settings=self.given.get(result.target, {}))
                found = bisected(job, lower, self.worker, stop=True)
            for line in conclusions(found):
                error_console.print(line, markup=False)

    def report(self, job: Job, dump: Path | None, tell: Callable[[str], None]) -> Report:
        if self.build_only:
            return self.built(job, dump, tell)
        from mlirstack.compare.compare import compare as run_comparison
        from mlirstack.compare.keywords import bound, positional
        from mlirstack.frontend.program import Program
        from mlirstack.frontend.references import load

        source = load(job.reference, seed=job.seed, dtype=job.dtype, dynamic=job.dynamic)
        if isinstance(source, Program):
            raise UsageError(f"{job.reference} has no eager answer to compare with", hint="compare needs a torch model")

        def compile_function(
            module: Any, inputs: tuple[Any, ...], *, target: str, route: str, dynamic_shapes: Any
        ) -> Candidate:
            found = self.stored(job, target, module) if self.artifacts else self.candidate(job, target, dump, tell)
            return replace(found, function=bound(found.function, source.kwargs, found.device))

        return run_comparison(
            positional(source.eager, source.kwargs),
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
        from mlirstack.bundle.store import read_bundle

        reason = create_target(target, threads=self.threads).available()
        if reason:
            raise TargetUnavailableError(reason)
        self.bundles += 1
        bundle = self.scratch / str(self.bundles)
        done = self.compile(replace(job, bundle=bundle), target, dump, tell)
        return self.loaded(target, read_bundle(bundle), compile_s=done.seconds)

    def stored(self, job: Job, target: str, module: Any) -> Candidate:
        """Load what was built earlier; the seconds of compilation are those of loading."""
        from mlirstack.bundle.store import read_bundle
        from mlirstack.frontend.references import ModelSource, rebuilt_parameters

        folder = self.folder(job, target)
        if not folder.is_dir():
            raise BundleError(f"there is no artifact {folder}", hint="build it: the same command with --build-only")
        rebuilt = rebuilt_parameters(job.reference, ModelSource("", module, ()))
        return self.loaded(target, read_bundle(folder, rebuilt))

    def loaded(self, target: str, bundle: Bundle, compile_s: float | None = None) -> Candidate:
        from mlirstack.compare.compare import Candidate
        from mlirstack.targets.callable import CompiledFunction

        loader = create_target(target, threads=self.threads)
        executable = loader.load(bundle.artifact, bundle.signature, bundle.parameters)
        function = CompiledFunction(executable, bundle.signature, bundle.parameters)
        return Candidate(function, bundle.info.route, compile_s, executable.device, executable.tf32)

    def built(self, job: Job, dump: Path | None, tell: Callable[[str], None]) -> Report:
        """Write the artifacts of one model; neither eager nor a target runs."""
        from mlirstack.compare.results import Report, TargetResult

        results = []
        for target in self.targets:
            to_build = replace(job, bundle=self.folder(job, target), portable=True)
            try:
                done = self.compile(to_build, target, dump, tell)
                results.append(TargetResult(target, "ok", route=done.route, compile_s=done.seconds))
            except UsageError:
                raise
            except MlirstackError as error:
                results.append(TargetResult(target, "error", error=str(error)))
        name = job.reference.removeprefix("zoo:")
        return Report(name, tuple(results), "as is", "built, not run", self.threads)

    def compile(self, job: Job, target: str, dump: Path | None, tell: Callable[[str], None]) -> Done:
        """Compile in the worker and write a bundle."""
        from mlirstack.lowering import LowerOptions

        folder = dump / target.replace(":", "-") if dump else None
        options = LowerOptions(
            target,
            self.route,
            self.threads,
            dump=_directory(folder) if folder else None,
            reproducers=_directory(folder or _reproducers(job.reference, target)),
            crash_safe=True,
            settings=self.given[target],
        )
        return self.worker.run(replace(job, options=options), lambda event, stage, seconds: tell(f"{target}: {stage}"))

    def folder(self, job: Job, target: str) -> Path:
        """Where the artifact of a model for a target is stored."""
        assert self.artifacts is not None
        model = job.reference.removeprefix("zoo:") + (f"-{job.dtype}" if job.dtype else "")
        return self.artifacts / _file_name(model) / _file_name(target)


def _directory(path: Path) -> Path:
    from mlirstack.pipeline.dump import prepare_directory  # needs MLIR, as every machine that compiles has it

    return prepare_directory(path)


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in text)


def _reproducers(reference: str, target: str) -> Path:
    """Where reproducers go when there is no dump: a failure outlives the scratch directory of this call."""
    return Path(tempfile.gettempdir()) / "mlirstack-reproducers" / _file_name(f"{reference}-{target}")
