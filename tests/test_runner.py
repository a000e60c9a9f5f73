"""The runner: who is blamed for a failure, what observers see, what is refused after a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from mlirstack.bindings import ir, new_context
from mlirstack.errors import MlirstackError, StageError
from mlirstack.ir.text import module_text, parse_module
from mlirstack.pipeline.observers import LevelCheck, Snapshots, Verification
from mlirstack.pipeline.runner import Observer, Payload, Runner, StageOutput, StageRun
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass, PythonPass, Schedule, Translation

TOSA = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %r = tosa.exp %a : (tensor<4xf32>) -> tensor<4xf32> loc("model.py":3:4)
  return %r : tensor<4xf32>
}
"""
TO_LINALG = Stage("linalg", "linalg", (Pass("tosa-to-linalg", on="func.func"), Pass("canonicalize")))


def module(text: str = TOSA) -> Any:
    return parse_module(text, new_context())


def run(*stages: Stage, observers: tuple[Observer, ...] = (), text: str = TOSA, **keywords: Any) -> Payload:
    return Runner(observers).run(Pipeline("test", stages), module(text), **keywords)


@dataclass(frozen=True)
class BreakModule(PythonPass):
    """Leaves an invalid module: the function's return no longer fits its type."""

    name: ClassVar[str] = "test-break"

    def apply(self, module: Any) -> None:
        function = module.body.operations[0]
        other = ir.Type.parse("(tensor<4xf32>) -> tensor<5xf32>", module.context)
        function.attributes["function_type"] = ir.TypeAttr.get(other, module.context)


@dataclass(frozen=True)
class Complain(PythonPass):
    """Emits an error without failing."""

    name: ClassVar[str] = "test-complain"

    def apply(self, module: Any) -> None:
        module.body.operations[0].location.emit_error("this will not do")


@dataclass(frozen=True)
class BadSchedule(Schedule):
    """A schedule whose payload does not hold what it wants."""

    name: ClassVar[str] = "test-bad-schedule"

    def build(self, module: Any) -> str:
        return """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op) {
    %f = transform.structured.match ops{["func.func"]} in %m : (!transform.any_op) -> !transform.any_op
    transform.structured.vectorize %f : !transform.any_op
    transform.yield
  }
}"""


@dataclass(frozen=True)
class Shout(Translation):
    """Module to text."""

    name: ClassVar[str] = "test-shout"

    def translate(self, payload: Any) -> str:
        return module_text(payload).upper()


def test_stages_run_in_order_and_observers_see_what_they_leave() -> None:
    snapshots = Snapshots()
    result = run(Stage("tosa", "tosa", ()), TO_LINALG, Stage("loud", "asm", (Shout(),)), observers=(snapshots,))
    assert [r.name for r in snapshots.results] == ["tosa", "linalg", "loud"]
    assert [r.index for r in snapshots.results] == [0, 1, 2]
    assert "tosa.exp" in snapshots.results[0].text
    assert snapshots.results[1].ops["linalg.generic"] == 1
    assert result.startswith("#MAP")
    assert snapshots.results[2].data == result


def test_failing_pass_is_named_with_op_and_source_line() -> None:
    bufferize = Pass("one-shot-bufferize", {"bufferize-function-boundaries": True})
    with pytest.raises(StageError) as caught:
        run(Stage("bufferized", "buffer", (Pass("canonicalize"), Pass("cse"), bufferize, Pass("symbol-dce"))))
    error = caught.value
    assert (error.stage, error.pass_name) == ("bufferized", "one-shot-bufferize")
    assert error.location is not None
    assert str(error.location) == "model.py:3"
    assert error.diagnostics[0].severity == "error"
    assert error.diagnostics[0].message in error.message


def test_module_broken_by_one_pass_is_blamed_on_that_pass() -> None:
    with pytest.raises(StageError) as caught:
        run(Stage("s", "linalg", (Pass("canonicalize"), BreakModule(), Pass("cse"))))
    assert caught.value.pass_name == "test-break"
    assert "function result type" in caught.value.message


def test_a_stage_that_verifies_once_refuses_what_is_invalid_afterwards() -> None:
    broken = module()
    BreakModule().apply(broken)
    stage = Stage("late", "tosa", (Pass("symbol-dce"),), verify_each=False)
    with pytest.raises(StageError, match="function result type") as caught:
        Runner().run(Pipeline("test", (stage,)), broken)
    assert (caught.value.stage, caught.value.pass_name) == ("late", "symbol-dce")


def test_error_without_failure_still_raises() -> None:
    with pytest.raises(StageError, match="this will not do") as caught:
        run(Stage("s", "tosa", (Complain(),)))
    assert caught.value.pass_name == "test-complain"


def test_schedule_that_does_not_fit_fails_with_its_name() -> None:
    with pytest.raises(StageError) as caught:
        run(Stage("tiled", "linalg", (BadSchedule(),)))
    assert caught.value.pass_name == "test-bad-schedule"


def test_level_is_a_post_condition() -> None:
    with pytest.raises(StageError) as caught:
        run(Stage("s", "linalg", (Pass("canonicalize"),)), observers=(LevelCheck(),))
    assert caught.value.op == "tosa.exp"
    assert str(caught.value.location) == "model.py:3"


def test_override_is_verified() -> None:
    broken = module()
    BreakModule().apply(broken)
    with pytest.raises(StageError, match="function result type"):
        run(TO_LINALG, observers=(Verification(),), overrides={"linalg": broken})


def test_invalid_module_prints_in_generic_form() -> None:
    broken = module()
    BreakModule().apply(broken)
    assert '"func.func"()' in module_text(broken)


def test_failed_is_told_once_and_later_stages_do_not_run() -> None:
    @dataclass
    class Log(Observer):
        events: list[str]

        def before(self, run: StageRun) -> None:
            self.events.append(f"before {run.stage.name}")

        def after(self, run: StageRun, output: StageOutput) -> None:
            self.events.append(f"after {run.stage.name}")

        def failed(self, run: StageRun, error: StageError) -> None:
            self.events.append(f"failed {run.stage.name}")

    log = Log([])
    with pytest.raises(StageError):
        run(Stage("a", "tosa", ()), Stage("b", "tosa", (Complain(),)), Stage("c", "tosa", ()), observers=(log,))
    assert log.events == ["before a", "after a", "before b", "failed b"]


def test_errors_cross_process_borders() -> None:
    import pickle

    error = StageError("no", stage="s", pass_name="p", op="a.b", hint="do this")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.stage, copy.pass_name, copy.op) == (StageError, str(error), "s", "p", "a.b")
    plain = pickle.loads(pickle.dumps(MlirstackError("m", hint="h")))
    assert (plain.message, plain.hint) == ("m", "h")
