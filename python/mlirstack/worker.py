"""Compilation in a process of its own, so that a native crash costs a stage and not the session.

The parent sends a :class:`Job`, the worker answers with progress events and either the path of a bundle or an error.  When
the worker dies, the parent knows the stage it was in, finds the reproducer that was written before that stage, and starts
a new worker for the next job.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import shlex
import signal
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Literal

from mlirstack.errors import MlirstackError, StageError, StorageError

Progress = Callable[[str, str, float], None]
"""Called with an event ("before" or "after"), a stage name, and the stage's seconds (0 before)."""


@dataclass(frozen=True)
class Job:
    """What to compile: a model reference with its settings, and lowering options (:class:`mlirstack.lowering.LowerOptions`).

    With ``bundle`` the artifact is built and written there; without it the job ends with the last stage.  ``deploy`` says
    that it is a part of a bundle to deploy: "shared" with parameters and golden answers, "code" without.  ``portable``
    leaves out of it the parameters that ``reference`` and ``seed`` rebuild elsewhere.
    """

    reference: str
    options: Any
    bundle: Path | None = None
    seed: int = 0
    dtype: str | None = None
    dynamic: Mapping[str, Any] = field(default_factory=dict)
    portable: bool = False
    deploy: Literal["shared", "code"] | None = None


@dataclass(frozen=True)
class StageSummary:
    """One line of the table that ``lower`` prints: op counts are zero-length past MLIR."""

    index: int
    name: str
    level: str
    seconds: float
    ops: dict[str, int]


@dataclass(frozen=True)
class Done:
    """A finished job: seconds of compilation (export excluded), route and reason, and a line per stage."""

    seconds: float
    route: str
    route_reason: str
    stages: tuple[StageSummary, ...]
    artifact: dict[str, int]


class Worker:
    """A compile process that is started at the first job, kept for the next, and replaced after a crash."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._job: Job | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the process ahead of its first job: what all jobs need is loaded while the caller does something else."""
        self._ensure()

    def run(self, job: Job, progress: Progress | None = None) -> Done:
        """Run one job; raises what the compilation raised, or :class:`StageError` where the process died."""
        self.begin(job)
        return self.end(progress)

    def begin(self, job: Job) -> None:
        """Hand over a job and go on; :meth:`end` waits for it."""
        if self._job is not None:  # nobody waited for its end
            self.close()
        self._ensure().send(job)
        self._job = job

    def end(self, progress: Progress | None = None) -> Done:
        """Wait for the job that was begun; raises as :meth:`run`."""
        job, connection = self._job, self._connection
        assert job is not None and connection is not None
        stage = "start"
        while True:
            try:
                kind, *values = connection.recv()
            except (EOFError, ConnectionResetError):
                raise self._crash(job, stage) from None
            if kind in ("done", "error", "defect"):
                self._job = None
            if kind == "done":
                done: Done = values[0]
                return done
            if kind == "error":
                raise values[0]
            if kind == "defect":
                raise MlirstackError(f"defect in mlirstack: {values[0]}", hint=f"please report this:\n{values[1]}")
            if kind == "before":
                stage = values[0]
            if progress:
                progress(kind, values[0], values[1])

    def close(self) -> None:
        """End the process."""
        if self._connection:
            self._connection.close()
        if self._process:
            # One that is still loading what jobs need ends by itself after that: killed, it would leave semaphores behind.
            self._process.join(timeout=10 if self._job is None else 2)
            if self._process.is_alive():
                self._process.kill()
        self._process = self._connection = self._job = None

    def _ensure(self) -> Connection:
        if self._process is None or self._connection is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._connection, other = context.Pipe()
            self._process = context.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
        return self._connection

    def _crash(self, job: Job, stage: str) -> StageError:
        assert self._process is not None
        self._process.join(timeout=10)
        code = self._process.exitcode or 0
        self.close()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        folder = job.options.reproducers or job.options.dump
        found = sorted(Path(folder).glob(f"reproducer-*-{stage}")) if folder else []
        error = StageError(
            f"the compiler process died ({how})",
            stage=stage,
            reproducer=found[0] if found else None,
            hint="a native crash in MLIR or LLVM, or the system ended the process (out of memory)",
        )
        if found and code < 0:
            from mlirstack.pipeline.reproducer import record_crash  # needs MLIR, as what has crashed did

            record_crash(found[0], signal.Signals(-code).name, str(error))
        return error


# ------------------------------------------------------------------------------------------------------ in the worker


_NEEDED = ("mlirstack.lowering", "mlirstack.frontend.references", "mlirstack.bundle.store")  # for every job


def _serve(connection: Connection) -> None:
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    # Native code prints to file descriptors 1 and 2; the parent's output is for people.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    if not os.environ.get("MLIRSTACK_WORKER_STDERR"):
        os.dup2(null, 2)
    with contextlib.suppress(ImportError):  # where something is missing, the job says what
        for name in _NEEDED:
            importlib.import_module(name)
    while True:
        try:
            job: Job = connection.recv()
        except (EOFError, OSError):
            return
        try:
            connection.send(("done", _compile(job, connection)))
        except MlirstackError as error:
            connection.send(("error", error))
        except Exception as error:  # a full disk, or a defect: reported to the user as such, with its traceback
            storage = StorageError.of(error)
            defect = "defect", f"{type(error).__name__}: {error}", traceback.format_exc()
            with contextlib.suppress(BrokenPipeError):
                connection.send(("error", storage) if storage else defect)


def _compile(job: Job, connection: Connection) -> Done:
    from mlirstack.bundle.store import BundleInfo, write_bundle
    from mlirstack.frontend.references import ModelSource, load, rebuilt_parameters
    from mlirstack.lowering import build_program, lower_program
    from mlirstack.versions import versions

    connection.send(("before", "export", 0.0))
    source = load(job.reference, seed=job.seed, dtype=job.dtype, dynamic=job.dynamic)
    program = source.program() if isinstance(source, ModelSource) else source
    watcher = _progress_observer(connection)
    job = replace(job, options=replace(job.options, origin=_command(job)))
    artifact: dict[str, int] = {}
    if job.deploy:
        return _compile_part(job, source, program, watcher)
    if job.bundle is None:
        lowering = lower_program(program, job.options, [watcher])
        seconds = lowering.seconds
    else:
        lowering, built, seconds = build_program(program, job.options, [watcher])
        info = BundleInfo(program.name, lowering.route, lowering.route_reason, versions())
        connection.send(("before", "bundle", 0.0))
        rebuilt = rebuilt_parameters(job.reference, source) if job.portable else {}
        write_bundle(job.bundle, built, program.signature, program.parameters, info, rebuilt=rebuilt)
        artifact = {name: len(data) for name, data in built.files.items()}
    stages = tuple(StageSummary(s.index, s.name, s.stage.level.name, s.seconds, s.ops) for s in lowering.stages)
    return Done(seconds, lowering.route, lowering.route_reason, stages, artifact)


def _compile_part(job: Job, source: Any, program: Any, watcher: Any) -> Done:
    from mlirstack.bundle.manifest import Origin
    from mlirstack.deploy.answers import golden_of, golden_of_program
    from mlirstack.deploy.build import write_part
    from mlirstack.frontend.references import ModelSource, load

    assert job.bundle is not None
    shared, golden = job.deploy == "shared", None
    if shared and isinstance(source, ModelSource):
        golden = golden_of(source.eager, source.inputs, source.kwargs, program.signature, seed=job.seed)
    elif shared:
        again = load(job.reference, seed=job.seed, dtype=job.dtype, dynamic=job.dynamic)  # stages change a module in place
        assert not isinstance(again, ModelSource)
        golden = golden_of_program(again, seed=job.seed)
    origin = Origin(job.reference, job.seed, job.dtype)
    lowering, seconds = write_part(
        program, job.options, job.bundle, golden=golden, origin=origin, shared=shared, observers=[watcher]
    )
    return Done(seconds, lowering.route, lowering.route_reason, (), {})


def _command(job: Job) -> str:
    """The command that lowers what this job does, for reproducers."""
    options = job.options
    words = ["mlirstack", "lower", job.reference, "--target", options.target, "--route", options.route, "--out", "dump"]
    words += ["--threads", str(options.threads)] if options.threads != 1 else []
    words += ["--schedule", options.schedule] if options.schedule else []
    words += ["--seed", str(job.seed)] if job.seed else []
    words += ["--dtype", job.dtype] if job.dtype else []
    for name, size in job.dynamic.items():
        words += ["--dynamic", f"{name}={size}"]
    return shlex.join(words)


def _progress_observer(connection: Connection) -> Any:
    from mlirstack.pipeline.runner import Observer, StageOutput, StageRun

    class Report(Observer):
        """Tells the parent which stage is running."""

        def before(self, run: StageRun) -> None:
            connection.send(("before", run.stage.name, 0.0))

        def after(self, run: StageRun, output: StageOutput) -> None:
            connection.send(("after", run.stage.name, output.seconds))

    return Report()
