"""The runner: stages in order, observers told.  Nothing else.

A payload is an ``ir.Module``; before MLIR an exported graph (anything with ``.text``); past MLIR ``str`` or ``bytes``, or a
:class:`ForeignModule` of another MLIR tool.
Neighbouring native passes of a stage share one PassManager.  MLIR's verifier runs after each step, or after the last of the
stage where the stage says so: it takes longer than most passes.  When a stage fails, its input is replayed one step at a
time, each verified, to name the guilty one.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlirstack.bindings import PassManager, dialect, ir
from mlirstack.errors import Diagnostic, MlirstackError, SourceLine, StageError, UnsupportedError
from mlirstack.ir.diagnostics import collect_diagnostics
from mlirstack.ir.foreign import ForeignModule
from mlirstack.ir.ops import op_counts
from mlirstack.ir.text import module_bytecode, parse_module
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass, PythonPass, Schedule, Step, Translation, pipeline_text

Payload = Any  # ir.Module | str | bytes | ForeignModule | an exported graph


@dataclass(frozen=True)
class StageRun:
    """What observers are told about a stage: its position, itself, its input (bytecode, text or bytes)."""

    index: int
    stage: Stage
    input: bytes | str


def snapshot(payload: Payload) -> bytes | str:
    """A complete copy of a payload: bytecode of a module, the text of an exported graph, text and bytes as they are.

    Records that carry more than what is shown have it in ``data`` (bytes) or ``text``.
    """
    if isinstance(payload, (str, bytes)):
        return payload
    if isinstance(payload, ForeignModule):
        return payload.bytecode
    if isinstance(payload, ir.Module):
        return module_bytecode(payload)
    return payload.data if isinstance(getattr(payload, "data", None), bytes) else payload.text


def sha256(data: bytes | str) -> str:
    """Hex digest of bytes or UTF-8 text."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


class StageOutput:
    """What a stage left behind: the payload, ``data`` (a complete copy of it) and the seconds the stage took.

    ``replaced``: it was put in place of what the stage leaves, and has not been verified.

    What several observers want to know is worked out once, when it is first asked for.
    """

    def __init__(self, payload: Payload, seconds: float, *, replaced: bool = False) -> None:
        self.payload = payload
        self.replaced = replaced
        self.data = snapshot(payload)
        self.seconds = seconds

    @cached_property
    def ops(self) -> dict[str, int]:
        """Op counts of a module; empty for other payloads."""
        return op_counts(self.payload) if isinstance(self.payload, ir.Module) else {}

    @cached_property
    def sha256(self) -> str:
        """Hash of :attr:`data`."""
        return sha256(self.data)


class Observer:
    """Base of observers; every method does nothing."""

    def start(self, pipeline: Pipeline, first_index: int) -> None:
        """A run begins; its first stage has number ``first_index`` in the dump."""

    def before(self, run: StageRun) -> None:
        """A stage is about to run."""

    def schedule(self, run: StageRun, name: str, text: str) -> None:
        """A transform-dialect schedule was built for the module at hand and is about to be applied."""

    def after(self, run: StageRun, output: StageOutput) -> None:
        """A stage has run; raise :class:`StageError` to refuse what it left behind."""

    def failed(self, run: StageRun, error: StageError) -> None:
        """A stage has failed; called once, before the error is raised."""

    def finish(self, payload: Payload) -> None:
        """All stages have run."""


class Runner:
    """Runs pipelines and tells ``observers``."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self.observers = tuple(observers)

    def run(
        self, pipeline: Pipeline, payload: Payload, *, first_index: int = 0, overrides: Mapping[str, Payload] | None = None
    ) -> Payload:
        """Run all stages of ``pipeline`` over ``payload``, which is changed in place; returns the last payload.

        ``overrides`` replaces what a stage leaves behind by something else, a hand-edited module for instance.
        """
        for observer in self.observers:
            observer.start(pipeline, first_index)
        data = snapshot(payload)
        for index, stage in enumerate(pipeline.stages, first_index):
            run = StageRun(index, stage, data)
            payload, data = self._run_stage(run, payload, (overrides or {}).get(stage.name))
        for observer in self.observers:
            observer.finish(payload)
        return payload

    def _run_stage(self, run: StageRun, payload: Payload, replacement: Payload | None) -> tuple[Payload, bytes | str]:
        for observer in self.observers:
            observer.before(run)
        started = time.perf_counter()
        try:
            if replacement is not None:
                payload = replacement
            else:
                payload = _apply(run, payload, lambda name, text: self._tell_schedule(run, name, text))
            seconds = time.perf_counter() - started
            output = StageOutput(payload, seconds, replaced=replacement is not None)
            for observer in self.observers:
                observer.after(run, output)
        except StageError as error:
            for observer in self.observers:
                observer.failed(run, error)
            raise
        return payload, output.data

    def _tell_schedule(self, run: StageRun, name: str, text: str) -> None:
        for observer in self.observers:
            observer.schedule(run, name, text)


def run_steps(steps: Sequence[Step], module: Any) -> Any:
    """Run steps over a module outside any pipeline; :class:`StageError` as in a pipeline.  Returns the payload."""
    return Runner().run(Pipeline("steps", (Stage("steps", "linalg", tuple(steps)),)), module)


# ----------------------------------------------------------------------------------------------------------------- apply


class _Failure(Exception):
    """A step failed: a message, the diagnostics that came with it, the pass if it is known, and what to do.

    ``before`` is the module as the step found it.
    """

    def __init__(
        self,
        message: str,
        diagnostics: tuple[Diagnostic, ...] = (),
        pass_name: str | None = None,
        hint: str | None = None,
        before: bytes | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.diagnostics = diagnostics
        self.pass_name = pass_name
        self.hint = hint
        self.before = before


def _apply(run: StageRun, payload: Payload, tell: Any) -> Payload:
    stage, source = run.stage, run.input if isinstance(payload, ir.Module) else payload
    context = payload.context if isinstance(payload, ir.Module) else None
    try:
        for native, group in itertools.groupby(stage.steps, key=lambda s: isinstance(s, Pass)):
            steps = tuple(group)
            if native:
                _run_native(steps, payload, verify_each=stage.verify_each, verify_last=steps[-1] is stage.steps[-1])
                continue
            for step in steps:
                payload = _run_python(step, payload, tell, verify=stage.verify_each or step is stage.steps[-1])
    except _Failure as failure:
        raise _stage_error(stage, _blamed(failure, stage, source, context)) from None
    return payload


def _run_native(steps: tuple[Step, ...], module: Any, *, verify_each: bool, verify_last: bool = True) -> None:
    with collect_diagnostics(module.context) as diagnostics:
        try:
            with module.context:
                manager = PassManager.parse(pipeline_text(steps))
                manager.enable_verifier(verify_each)
                manager.run(module.operation)
                if verify_last and not verify_each:
                    module.operation.verify()
        except (ir.MLIRError, ValueError) as error:
            raise _Failure(_first_error(diagnostics) or str(error).strip(), tuple(diagnostics)) from None
    message = _first_error(diagnostics)
    if message is not None:
        raise _Failure(f"a pass reported an error without failing: {message}", tuple(diagnostics))


def _run_python(step: Step, payload: Payload, tell: Any, *, verify: bool = True) -> Payload:
    assert not isinstance(step, Pass)
    try:
        if isinstance(step, Translation):
            return step.translate(payload)
        with collect_diagnostics(payload.context) as diagnostics, payload.context, ir.Location.unknown():
            try:
                if isinstance(step, PythonPass):
                    step.apply(payload)
                else:
                    _run_schedule(step, payload, tell)
                valid = not verify or payload.operation.verify()
            except (ir.MLIRError, ValueError) as error:
                raise _Failure(_first_error(diagnostics) or str(error), tuple(diagnostics), step.name) from None
        if not valid or _first_error(diagnostics) is not None:
            raise _Failure(_first_error(diagnostics) or "the module is invalid afterwards", tuple(diagnostics), step.name)
    except UnsupportedError:  # names the user's lines already: not a failure of the stage
        raise
    except StageError as error:  # raised by a step itself: complete it
        raise _Failure(error.message, error.diagnostics, step.name, error.hint) from None
    except MlirstackError as error:
        raise _Failure(error.message, (), step.name, error.hint) from None
    return payload


def _run_schedule(step: Schedule, module: Any, tell: Any) -> None:
    text = step.build(module)
    if text is None:
        return
    tell(step.name, text)
    apply_schedule(module, text, entry=step.entry_point)


def apply_schedule(module: Any, text: str, *, entry: str = "__transform_main") -> None:
    """Apply the named sequence ``entry`` of a transform-dialect module (as text) to ``module``, in place."""
    schedule = parse_module(text, module.context, name="schedule")
    for op in schedule.body.operations:
        if op.operation.name == "transform.named_sequence" and ir.StringAttr(op.attributes["sym_name"]).value == entry:
            dialect("transform.interpreter").apply_named_sequence(module.operation, op.operation, schedule.operation)
            return
    raise StageError(f"the schedule has no named sequence '@{entry}'", stage="schedule")


def _first_error(diagnostics: Sequence[Diagnostic]) -> str | None:
    return next((d.message for d in diagnostics if d.severity == "error"), None)


def _blamed(failure: _Failure, stage: Stage, source: Any, context: Any | None) -> _Failure:
    """The failure with the step's name and what the step found: nothing needs to be run again where it is the first."""
    first = stage.steps[0]
    if len(stage.steps) == 1 or failure.pass_name == first.name:
        before = source if isinstance(source, bytes) else None
        return _Failure(failure.message, failure.diagnostics, first.name, failure.hint, before)
    return _replayed(stage, source, context) or failure


def _replayed(stage: Stage, source: Any, context: Any | None) -> _Failure | None:
    """Replay the stage one step at a time on its input (a module's bytecode, or the payload itself where it is none); the
    first failure, with the step's name and what the step found."""
    payload = source if context is None else parse_module(source, context)
    for step in stage.steps:
        before = module_bytecode(payload) if isinstance(payload, ir.Module) else None
        try:
            if isinstance(step, Pass):
                _run_native((step,), payload, verify_each=True)
            else:
                payload = _run_python(step, payload, lambda name, text: None)
        except _Failure as failure:
            return _Failure(failure.message, failure.diagnostics, step.name, failure.hint, before)
    return None


_OP_IN_MESSAGE = re.compile(r"'([a-z_]+\.[\w.]+)' op|operation '([a-z_]+\.[\w.]+)'")


def _stage_error(stage: Stage, failure: _Failure) -> StageError:
    found = _OP_IN_MESSAGE.search(failure.message)
    location: SourceLine | None = next((d.source for d in failure.diagnostics if d.source), None)
    return StageError(
        failure.message,
        stage=stage.name,
        pass_name=failure.pass_name,
        op=next((g for g in found.groups() if g), None) if found else None,
        location=location,
        diagnostics=failure.diagnostics,
        hint=failure.hint,
        before=failure.before,
    )
