"""The process in which stages are executed: native code that a wrong stage leads to may crash or never end.

Started as ``python -m mlirstack.compare.bisect.execute``; answers the questions that :mod:`.executor` asks.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from mlirstack.bindings import ir, new_context
from mlirstack.bundle.store import read_bundle
from mlirstack.compare.accuracy import Answer
from mlirstack.compare.bisect.subject import Subject
from mlirstack.compare.bisect.symptoms import symptom
from mlirstack.errors import MlirstackError, StageError, TargetUnavailableError
from mlirstack.frontend.program import Program
from mlirstack.ir.level import LEVELS
from mlirstack.ir.text import clone_module, module_bytecode, read_module
from mlirstack.lowering import read_payload
from mlirstack.passes.native_code import CompileObject
from mlirstack.pipeline.runner import Runner, run_steps
from mlirstack.pipelines.reference import reference_pipeline
from mlirstack.supervised import Tell, serve
from mlirstack.targets.base import Executable
from mlirstack.targets.registry import create_target

ROUTES = ("linalg", "tosa")  # down from the torch dialect: what one has no pattern for, the other may have


def executable_of_module(module: Any, subject: Subject) -> Executable:
    """Lower a module by the plain path and load it; :class:`StageError` where that path cannot."""
    failure: StageError | None = None
    for route in ROUTES:
        copy = clone_module(module)
        pipeline = reference_pipeline(copy, route=route)
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


def executable_of_file(file: Path, level: str, target_name: str, subject: Subject) -> Executable:
    """What a stage's file, or a bundle (level ""), holds: by the plain path, below MLIR by what the target itself runs."""
    if not level:
        bundle = read_bundle(file)
        return create_target(target_name).load(bundle.artifact, subject.signature, subject.parameters)
    payload = read_payload(LEVELS[level], file)
    if isinstance(payload, ir.Module):
        return executable_of_module(payload, subject)
    if level == "llvmir":
        payload = CompileObject().translate(payload)
    return executable_of(payload, "cpu", subject)


def main() -> None:
    """Serve questions, each about the subject in a file that it names."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    held: dict[str, Subject] = {}  # the last one

    def answer(question: dict[str, Any], tell: Tell) -> Any:
        file = question["subject"]
        try:
            if file not in held:
                held.clear()
                held[file] = Subject.load(Path(file))
            return _ASKED[question["do"]](question, held[file], tell)
        except MlirstackError as error:
            return {"error": error.message, "unavailable": isinstance(error, TargetUnavailableError)}

    serve(answer)


def _run(question: dict[str, Any], subject: Subject, tell: Tell) -> dict[str, Any]:
    """Execute a stage's file and judge the answer."""
    tell("lowering by the plain path")
    executable = executable_of_file(Path(question["file"]), question["level"], question["target"], subject)
    tell("executing")
    got = subject.answer(executable)
    if question.get("keep"):
        torch.save(got, question["keep"])
        return {}
    return judged(got, subject)


def judged(got: Answer, subject: Subject) -> dict[str, Any]:
    """The verdict on an answer as plain data."""
    accuracy = subject.judge(got)
    worst = accuracy.worst
    return {
        "ok": accuracy.ok,
        "rel_l2": worst.rel_l2 if worst else 0.0,
        "tolerance": worst.tolerance if worst else 0.0,
        "reason": accuracy.reason,
        "symptom": None if accuracy.ok else symptom(got, subject.expected),
    }


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


_ASKED = {"run": _run, "pass": _pass, "op": _op}

if __name__ == "__main__":
    main()
