"""Runs the stage table of a target over a program, and builds the artifact: what every way to compile a model shares.

The route is decided here (TOSA first, the whole graph again through linalg), overrides and resumed stages are read, and a
failure of all routes becomes a list of the operations that cannot be lowered.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlirstack.bindings import ir
from mlirstack.errors import StageError, UnsupportedError, UsageError
from mlirstack.frontend.parameters import save_parameters
from mlirstack.frontend.program import Program
from mlirstack.ir.diff import unified
from mlirstack.ir.level import IREE_DIALECTS, Level
from mlirstack.pipeline.dump import Dump, DumpInfo, prepare_directory
from mlirstack.pipeline.observers import LevelCheck, Snapshots, StageResult, Verification
from mlirstack.pipeline.pass_dump import PassDump
from mlirstack.pipeline.registry import nearest
from mlirstack.pipeline.reproducer import Reproducer
from mlirstack.pipeline.runner import Observer, Payload, Runner
from mlirstack.pipeline.stage import Pipeline
from mlirstack.targets.base import Artifact, Target
from mlirstack.targets.registry import create_target
from mlirstack.versions import versions

if TYPE_CHECKING:
    from mlirstack.frontend.export import Inputs
    from mlirstack.frontend.references import Model


@dataclass(frozen=True)
class LowerOptions:
    """Everything about a lowering that is not the model.

    ``route``: auto, tosa or linalg.  ``to``: a stage or level to stop after.  ``start``: begin with what this stage left in
    ``dump``.  ``overrides``: stage name → file whose content replaces what the stage leaves.  ``reproducers``: directory
    for reproducers of failures (default: the dump, else a new temporary directory); ``crash_safe`` writes them before each
    stage as well, ``origin`` is the command that goes into them.  ``schedule``: another way to write kernels, where the
    target has one.  ``settings``: options of the target's compiler.  ``passes``: dump the IR after each pass as well.
    ``explain``: where all routes fail, lower each operation alone to name those that cannot be lowered.
    """

    target: str = "cpu"
    route: str = "auto"
    threads: int = 1
    to: str | None = None
    start: str | None = None
    overrides: Mapping[str, Path] = field(default_factory=dict)
    dump: Path | None = None
    reproducers: Path | None = None
    crash_safe: bool = False
    schedule: str | None = None
    origin: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    passes: bool = False
    explain: bool = True


@dataclass
class Lowering:
    """A finished lowering: its program, the stages in order, the route taken and why, and the last payload."""

    program: Program
    target: Target
    pipeline: Pipeline
    route: str
    route_reason: str
    stages: list[StageResult]
    payload: Payload
    seconds: float
    dump: Dump | None = None

    def __getitem__(self, stage: str) -> StageResult:
        """A stage by name; :class:`UsageError` with the nearest names."""
        for result in self.stages:
            if result.name == stage:
                return result
        names = [result.name for result in self.stages]
        raise UsageError(f"no stage '{stage}'{nearest(stage, names)}", hint=f"stages: {', '.join(names)}")

    def diff(self, before: str, after: str) -> str:
        """Unified diff of the readable text of two stages; lines that differ in the numbers of values only are equal."""
        a, b = self[before].text.splitlines(), self[after].text.splitlines()
        return "".join(f"{line}\n" for line in unified(a, b, before, after))


def program_of(
    model: Model,
    inputs: Inputs = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str | None = None,
    allow_random: bool = False,
) -> Program:
    """Export a model as :func:`mlirstack.frontend.export.export` does; a :class:`Program` passes through.

    A model reference (a string or a path) is loaded, and brings its own inputs where none are given.
    """
    from mlirstack.frontend.references import source_of

    source = source_of(model, inputs, kwargs=kwargs, dynamic_shapes=dynamic_shapes, name=name)
    return source if isinstance(source, Program) else source.program(allow_random=allow_random)


def lower_program(program: Program, options: LowerOptions, observers: Sequence[Observer] = ()) -> Lowering:
    """Run the stage table of ``options.target`` over ``program``.

    Route auto tries TOSA first and, where any stage fails, the whole graph again through linalg; the reason is in the
    result.  Raises :class:`StageError`, or :class:`UnsupportedError` with all ops that no route can express.
    """
    from mlirstack.frontend.routes import choose_route, route_failure_reason, unsupported_ops

    started = time.perf_counter()
    target = create_target(options.target, threads=options.threads, schedule=options.schedule, settings=options.settings)
    route = choose_route(program, options.route)
    tables = [_table(target, route.name, program, options)]
    dump = _dump_of(program, options)  # not before it is known that there is something to write
    reproducers = options.reproducers or options.dump
    if reproducers is None:
        reproducers = (
            Path(tempfile.gettempdir()) / "mlirstack-reproducers" / f"{program.name}-{options.target}-{os.getpid()}"
        )
    snapshots = Snapshots()
    # Verified before it is printed; printed before a leak of another level's ops is refused, so that it can be seen.
    watchers: list[Observer] = [Verification(), snapshots, *([dump] if dump else []), LevelCheck()]
    if dump and options.passes:
        watchers.append(PassDump(dump.directory))
    watchers += [Reproducer(reproducers, early=options.crash_safe, origin=options.origin), *observers]
    runner = Runner(watchers)

    reason = route.reason
    failures: list[StageError] = []
    for attempt in (route.name, *([route.fallback] if route.fallback else [])):
        snapshots.results.clear()
        if failures:
            tables.append(_table(target, attempt, program, options))
        pipeline = tables[-1]
        try:
            payload = _run(runner, pipeline, program, options)
        except StageError as error:
            failures.append(error)
            reason = f"{attempt} failed: {route_failure_reason(error)}"
            continue
        if dump:
            dump.describe(route=attempt, route_reason=reason, **target.figures(payload))
        seconds = time.perf_counter() - started
        return Lowering(program, target, pipeline, attempt, reason, snapshots.results, payload, seconds, dump)
    ops = unsupported_ops(program, failures, tables) if options.explain else ()
    if ops:
        kept = f"what failed is kept for 'mlirstack reproduce': {failures[-1].reproducer}"
        raise UnsupportedError(
            f"{program.name}: {len(ops)} operation(s) cannot be lowered", ops, hint=kept if failures[-1].reproducer else None
        ) from failures[-1]
    raise failures[-1]


def build_program(
    program: Program, options: LowerOptions, observers: Sequence[Observer] = ()
) -> tuple[Lowering, Artifact, float]:
    """Lower and build: the lowering, the artifact, and the seconds both took."""
    started = time.perf_counter()
    lowering = lower_program(program, options, observers)
    artifact = lowering.target.build(program, lowering.payload, observers)
    if lowering.dump:
        sizes = {name: len(data) for name, data in artifact.files.items()}
        lowering.dump.describe(artifact=sizes, copied_inputs=list(program.copied_inputs))
    return lowering, artifact, time.perf_counter() - started


# --------------------------------------------------------------------------------------------------------------- details


def _dump_of(program: Program, options: LowerOptions) -> Dump | None:
    if options.dump is None:
        if options.start:
            raise UsageError("resuming from a stage needs the directory of an earlier dump")
        return None
    if options.start and not options.dump.is_dir():
        raise UsageError(f"{options.dump} holds no stage '{options.start}'", hint="dump the whole table there first")
    directory = prepare_directory(options.dump)
    # Weights never stand in the IR: a replay that runs a module finds them here, once for all stages.
    save_parameters(program.parameters, directory / "replay" / "parameters.safetensors")
    return Dump(directory, DumpInfo(program.name, options.target, versions()))


def _table(target: Target, route: str, program: Program, options: LowerOptions) -> Pipeline:
    """The stage table, cut after ``options.to``: a stage, or a level (its last stage)."""
    if options.to == "stablehlo":
        from mlirstack.pipelines.frontend import stablehlo_pipeline

        return stablehlo_pipeline()
    pipeline = target.pipeline(route, program.level)
    if options.to is None:
        return pipeline
    of_level = [stage.name for stage in pipeline.stages if stage.level.name == options.to]
    if options.to not in pipeline.names() and of_level:
        return pipeline.slice(last=of_level[-1])
    return pipeline.slice(last=options.to)


def _run(runner: Runner, pipeline: Pipeline, program: Program, options: LowerOptions) -> Payload:
    overrides = {stage: _read_stage(pipeline, stage, Path(file)) for stage, file in options.overrides.items()}
    if options.start is None:
        return runner.run(pipeline, _fresh(program), overrides=overrides)
    index = pipeline.index(options.start)
    assert options.dump is not None
    payload = _resume_payload(pipeline, options.start, options.dump)
    rest = pipeline.slice(first=options.start)
    return runner.run(rest, payload, first_index=index + 1, overrides=overrides)


def _fresh(program: Program) -> Payload:
    """The program's payload, copied where stages would change it in place."""
    from mlirstack.ir.text import clone_module

    return clone_module(program.payload) if isinstance(program.payload, ir.Module) else program.payload


def _resume_payload(pipeline: Pipeline, stage_name: str, directory: Path) -> Payload:
    from mlirstack.pipeline.dump import replay_file, stage_file

    index = pipeline.index(stage_name)
    stage = pipeline.stages[index]
    complete = directory / replay_file(index, stage)
    file = complete if complete.is_file() else directory / stage_file(index, stage)
    if not file.is_file():
        raise UsageError(f"{directory} holds no stage '{stage_name}' ({file.name})", hint="dump the whole table there first")
    return _read_stage(pipeline, stage_name, file)


def _read_stage(pipeline: Pipeline, stage_name: str, file: Path) -> Payload:
    """What a file holds, as the payload that stage ``stage_name`` leaves."""
    return read_payload(pipeline.stages[pipeline.index(stage_name)].level, file)


def read_payload(level: Level, file: Path) -> Payload:
    """What a file holds, as a payload at ``level``; :class:`UsageError` where it cannot be read."""
    from mlirstack.bindings import new_context
    from mlirstack.ir.foreign import ForeignModule
    from mlirstack.ir.text import BYTECODE_MAGIC, read_module

    if level.dialects is not None:
        context = new_context()
        context.allow_unregistered_dialects = bool(level.dialects & IREE_DIALECTS)
        return read_module(file, context)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    if data.startswith(BYTECODE_MAGIC):
        return ForeignModule(data, f"// read from {file.name}\n")
    return data if level.extension in ("o", "vmfb", "cubin") else data.decode()
