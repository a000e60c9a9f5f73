"""The process in which stages are executed: native code that a wrong stage leads to may crash or never end.

Started as ``python -m mlirstack.compare.bisect.execute``; answers the questions that :mod:`.executor` asks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mlirstack.bindings import ir, new_context
from mlirstack.bundle.store import BundleInfo, write_bundle
from mlirstack.compare.bisect.execute_bundle import judged, run_bundle, serve_questions
from mlirstack.compare.bisect.subject import Subject
from mlirstack.errors import StageError, TargetUnavailableError
from mlirstack.frontend.program import Program
from mlirstack.ir.level import LEVELS
from mlirstack.ir.text import clone_module, module_bytecode, read_module
from mlirstack.lowering import read_payload
from mlirstack.passes.native_code import CompileObject
from mlirstack.pipeline.reproducer import Rest
from mlirstack.pipeline.runner import Runner, run_steps
from mlirstack.pipelines.reference import reference_pipeline, rest_of
from mlirstack.supervised import Tell
from mlirstack.targets.base import Executable
from mlirstack.targets.registry import create_target
from mlirstack.versions import versions

if TYPE_CHECKING:
    from mlirstack.compare.accuracy import Accuracy
    from mlirstack.compare.bisect.kernels import Judge

# Elements of all inputs and parameters from which LLVM's optimizer gains more time than it takes.
OPTIMIZED_FROM = 1 << 17
ROUTES = ("linalg", "tosa")  # down from the torch dialect: what one has no pattern for, the other may have


def executable_of_module(module: Any, subject: Subject) -> Executable:
    """Lower a module by the plain path and load it; :class:`StageError` where that path cannot."""
    failure: StageError | None = None
    tensors = (*subject.parameters.values(), *subject.leaves())
    optimized = sum(t.numel() for t in tensors if isinstance(t, torch.Tensor)) >= OPTIMIZED_FROM
    for route in ROUTES:
        copy = clone_module(module)
        pipeline = reference_pipeline(copy, route=route, optimized=optimized)
        try:
            return executable_of(Runner().run(pipeline, copy), "cpu", subject)
        except StageError as error:
            failure = failure or error
        if not any(stage.name == "plain-tosa" for stage in reference_pipeline(clone_module(module), route="tosa").stages):
            break  # the routes part at the torch dialect only
    assert failure is not None
    raise failure


def executable_of(payload: Any, target_name: str, subject: Subject) -> Executable:
    """Build and load what the last stage of a target left."""
    target = create_target(target_name)
    reason = target.available()
    if reason:
        raise TargetUnavailableError(reason)
    program = Program("stage", payload, "", subject.signature, subject.parameters)
    return target.load(target.build(program, payload), subject.signature, subject.parameters)


def executable_of_file(file: Path, level: str, subject: Subject) -> Executable:
    """What a stage's file holds: by the plain path, below MLIR by what target cpu itself runs."""
    payload = read_payload(LEVELS[level], file)
    if isinstance(payload, ir.Module):
        return executable_of_module(payload, subject)
    if level == "llvmir":
        payload = CompileObject().translate(payload)
    return executable_of(payload, "cpu", subject)


def executable_by_rest(payload: Any, rest: Rest, subject: Subject, without: tuple[str, int] | None = None) -> Executable:
    """Lower what a stage left by the stages behind it (``without`` one step) and load it; :class:`StageError` where they
    cannot."""
    return executable_of(_through(payload, rest, without), rest.target, subject)


def _through(payload: Any, rest: Rest, without: tuple[str, int] | None = None) -> Any:
    table = create_target(rest.target).pipeline(rest.route, rest.level)
    return Runner().run(rest_of(table, rest.stage, without), payload)


def _run(question: dict[str, Any], subject: Subject, tell: Tell) -> dict[str, Any]:
    """Execute a stage's file and judge the answer."""
    tell("lowering by the plain path")
    executable = executable_of_file(Path(question["file"]), question["level"], subject)
    tell("executing")
    if question.get("keep"):
        torch.save(subject.answer(executable), question["keep"])
        return {}
    return judged(executable, subject)


def _run_rest(question: dict[str, Any], subject: Subject, tell: Tell) -> dict[str, Any]:
    """Execute a stage's file through the stages behind it in its own table."""
    tell("lowering by the rest of the table")
    without = tuple(question["without"]) if question["without"] else None
    executable = executable_by_rest(_payload(question), _rest(question), subject, without)
    tell("executing")
    return judged(executable, subject)


def _payload(question: dict[str, Any]) -> Any:
    return read_payload(LEVELS[question["level"]], Path(question["file"]))


def _rest(question: dict[str, Any]) -> Rest:
    return Rest(question["target"], question["route"], question["from"], question["stage"])


def _build_rest(question: dict[str, Any], subject: Subject, tell: Tell) -> dict[str, Any]:
    """Write what the stages behind a stage make of its file as a bundle, without parameters."""
    tell("lowering by the rest of the table")
    payload = _through(_payload(question), _rest(question))
    program = Program(question["stage"], payload, "", subject.signature, subject.parameters)
    artifact = create_target(question["target"]).build(program, program.payload)
    info = BundleInfo(question["stage"], question["route"], "", versions())
    names = subject.parameters
    write_bundle(Path(question["bundle"]), artifact, subject.signature, names, info, rebuilt=names)
    return {}


def _pass(question: dict[str, Any], subject: Subject, tell: Tell) -> dict[str, Any]:
    """Run one step of a stage on a file and write what it leaves: ``changed``, and ``native`` where it left MLIR."""
    pipeline = create_target(question["target"]).pipeline(question["route"], question["from"])
    stage = pipeline.stages[pipeline.index(question["stage"])]
    module = read_module(Path(question["file"]), new_context())
    before = module_bytecode(module)
    tell(f"pass {question['index']}")
    payload = run_steps(stage.steps[question["index"] : question["index"] + 1], module)
    after = module_bytecode(payload)
    Path(question["output"]).write_bytes(after)
    return {"changed": after != before}


def _op(question: dict[str, Any], subject: Subject, tell: Tell) -> Any:
    from mlirstack.compare.bisect.ops import first_wrong_op

    values = torch.load(question["values"], weights_only=False) if question["values"] else []
    right = read_module(Path(question["right"]), new_context()) if question["right"] else None
    wrong = read_module(Path(question["wrong"]), new_context())
    return first_wrong_op(wrong, right, values, subject, tell)


def _kernel(question: dict[str, Any], subject: Subject, tell: Tell) -> Any:
    """The first wrong kernel of a stage's file; ``before``: the file and the name of the stage before it, ``overridden``:
    it was given by hand, and the passes make a right one."""
    from mlirstack.compare.bisect.kernels import first_emitted, first_exchanged

    rest = _rest(question)
    file, name = question["before"]
    before = read_module(Path(file), new_context())

    def judge_after(stage: str) -> Judge:
        def judge(module: Any) -> Accuracy:
            tell("executing")
            executable = executable_by_rest(module, replace(rest, stage=stage), subject)
            return subject.judge(subject.answer(executable), tf32=executable.tf32)

        return judge

    if not question["overridden"]:
        return first_emitted(before, judge_after(name))
    table = create_target(rest.target).pipeline(rest.route, rest.level)
    right = Runner().run(table.slice(first=name, last=rest.stage), before)
    return first_exchanged(_payload(question), right, judge_after(rest.stage))


if __name__ == "__main__":
    asked = {"run": _run, "rest": _run_rest, "build": _build_rest, "bundle": run_bundle}
    serve_questions({**asked, "pass": _pass, "op": _op, "kernel": _kernel})
