"""Failures of several kinds seeded in large modules, and how small they become."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mlirstack.bindings import new_context
from mlirstack.errors import MlirstackError, UsageError
from mlirstack.ir.ops import op_counts
from mlirstack.ir.text import parse_module
from mlirstack.pipeline.reproducer import EMPTY_PIPELINE, Record, Rest
from mlirstack.pipelines.cpu import cpu_pipeline
from mlirstack.reduce.attempt import Task
from mlirstack.reduce.case import case_of
from mlirstack.reduce.edits import apply, inventory
from mlirstack.reduce.outcome import Expectation, Outcome, essence
from mlirstack.reduce.reducer import Reduced, reduce_module

pytestmark = pytest.mark.portable

PASSES = '''
import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class CrashOnDivision(PythonPass):
    """Dies of a division that is followed by anything."""

    name = "crash-on-division"

    def apply(self, module: Any) -> None:
        if any(op.name == "arith.divf" for op in walk(module)):
            os.kill(os.getpid(), signal.SIGSEGV)


@dataclass(frozen=True)
class BreakExp(PythonPass):
    """Leaves an exponential without its operand."""

    name = "break-exp"

    def apply(self, module: Any) -> None:
        for op in walk(module):
            if op.name == "math.exp":
                ir.Operation.create("math.exp", results=[op.results[0].type], operands=[], ip=ir.InsertionPoint(op))


@dataclass(frozen=True)
class HangWhereSmaller(PythonPass):
    """Fails on modules of at least three ops, does not end on others."""

    name = "hang-where-smaller"

    def apply(self, module: Any) -> None:
        if sum(1 for _ in walk(module)) < 3:
            time.sleep(60)
        raise ValueError("as seeded")


@dataclass(frozen=True)
class SwapSubtraction(PythonPass):
    """Takes a - b for b - a."""

    name = "swap-subtraction"

    def apply(self, module: Any) -> None:
        for op in walk(module):
            if op.name == "arith.subf":
                op.operands[0], op.operands[1] = op.operands[1], op.operands[0]
'''


@pytest.fixture
def passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeded passes, known to every process that starts from here on."""
    file = tmp_path / "seeded_passes.py"
    file.write_text(PASSES)
    monkeypatch.setenv("MLIRSTACK_PASSES", str(file))


def module_with(op: str, count: int) -> str:
    """``count`` elementwise ops on tensors, each reading earlier ones, and ``op`` in the middle of them."""
    draw = random.Random(count)
    values, lines = ["%a", "%b"], []
    kind = "tensor<8x16xf32>"
    for i in range(count):
        x, y = draw.choice(values[-6:]), draw.choice(values[-6:])
        text = (
            op.format(x=x, y=y, kind=kind) if i == count // 2 else f"arith.{draw.choice(('addf', 'mulf'))} {x}, {y} : {kind}"
        )
        lines.append(f"    %v{i} = {text}")
        values.append(f"%v{i}")
    body = "\n".join(lines)
    return (
        f"func.func private @other(%x: {kind}) -> {kind} {{\n  return %x : {kind}\n}}\n"
        f"func.func @main(%a: {kind}, %b: {kind}) -> ({kind}, {kind}) {{\n{body}\n"
        f"  return {values[-1]}, %v{count // 2} : {kind}, {kind}\n}}\n"
    )


def reduced(folder: Path, text: str, task: Task, *, expect: str | None = None) -> Reduced:
    file = folder / "module.mlir"
    file.write_text(text)
    found = reduce_module(file, task, text=expect)
    assert found.finished
    parse_module(found.text, new_context())  # valid by itself
    return found


def test_a_pass_that_fails_on_one_of_200_ops(tmp_path: Path) -> None:
    text = module_with("tosa.erf {x} : ({kind}) -> {kind}", 200)
    bufferize = "one-shot-bufferize{bufferize-function-boundaries=true}"
    task = Task(f"builtin.module(func.func(convert-elementwise-to-linalg),{bufferize})")
    found = reduced(tmp_path, text, task, expect="op was not bufferized")
    assert found.ops_before > 200
    assert found.ops <= 4
    assert found.seconds < 120
    assert found.outcome == Outcome("failure", "op was not bufferized", "one-shot-bufferize")
    assert "tosa.erf" in found.text
    assert "1x1xf32" in found.text  # shapes shrink as well
    assert "@other" not in found.text


@pytest.mark.usefixtures("passes")
def test_a_verifier_failure(tmp_path: Path) -> None:
    text = module_with("math.exp {x} : {kind}", 60)
    found = reduced(tmp_path, text, Task("builtin.module(cse,break-exp)"))
    assert found.ops <= 4
    assert "math.exp" in found.text
    assert found.outcome.pass_name == "break-exp"
    assert "operand" in found.outcome.message


@pytest.mark.usefixtures("passes")
def test_a_crash(tmp_path: Path) -> None:
    text = module_with("arith.divf {x}, {y} : {kind}", 60)
    found = reduced(tmp_path, text, Task("builtin.module(crash-on-division,canonicalize)"))
    assert found.ops <= 4
    assert "arith.divf" in found.text
    assert found.outcome == Outcome("crash", "SIGSEGV", "crash-on-division")


@pytest.mark.usefixtures("passes")
def test_candidates_that_do_not_end_in_time_are_not_judged(tmp_path: Path) -> None:
    file = tmp_path / "module.mlir"
    file.write_text("func.func @f(%a: f32) -> f32 {\n %0 = math.exp %a : f32\n return %0 : f32\n}")
    found = reduce_module(file, Task("builtin.module(hang-where-smaller)"), limit=0.7)
    assert (found.ops, found.finished) == (3, False)
    assert 0 < found.unjudged <= found.tries


@pytest.mark.usefixtures("passes")
def test_a_module_that_does_not_end_in_time_is_reduced_only_where_that_is_the_failure(tmp_path: Path) -> None:
    file = tmp_path / "module.mlir"
    file.write_text("func.func @f() {\n return\n}")
    task = Task("builtin.module(hang-where-smaller)")
    with pytest.raises(MlirstackError, match="no end within"):
        reduce_module(file, task, limit=0.5)
    assert reduce_module(file, task, text="no end", seconds=0.1, limit=0.5).outcome.kind == "timeout"


@pytest.mark.usefixtures("passes")
def test_a_wrong_number(tmp_path: Path) -> None:
    text = module_with("arith.subf {x}, {y} : {kind}", 12)
    found = reduced(tmp_path, text, Task("builtin.module(swap-subtraction)", numbers=True))
    assert found.ops <= 4
    assert "arith.subf" in found.text
    assert found.outcome.kind == "wrong"
    assert (found.outcome.rel_l2 or 0) > 0.1


@pytest.mark.usefixtures("passes")
def test_a_wrong_number_that_only_the_target_itself_computes(tmp_path: Path) -> None:
    """What the passes leave is executed by the stages behind them, as levels of a GPU must be."""
    prepared = cpu_pipeline("tosa", "linalg").stages[0]
    passes = f"builtin.module(swap-subtraction,{prepared.text().removeprefix('builtin.module(')}"
    rest = Rest("cpu", "tosa", "linalg", prepared.name)
    found = reduced(tmp_path, module_with("arith.subf {x}, {y} : {kind}", 12), Task(passes, numbers=True, rest=rest))
    assert found.ops <= 4
    assert "arith.subf" in found.text
    assert found.outcome.kind == "wrong"


def test_what_was_given_wrong_is_not_reduced(tmp_path: Path) -> None:
    (tmp_path / "input.mlir").write_text(module_with("arith.subf {x}, {y} : {kind}", 2))
    Record("wrong", "gpu", "gpu", EMPTY_PIPELINE, "input.mlir", rest=Rest("cuda", "tosa", "fx", "gpu")).write(
        tmp_path, "true"
    )
    with pytest.raises(UsageError, match="wrong as it was given"):
        case_of(tmp_path, None, numbers=False, seed=0)


def test_what_does_not_fail_is_not_reduced(tmp_path: Path) -> None:
    file = tmp_path / "module.mlir"
    file.write_text(module_with("arith.addf {x}, {y} : {kind}", 4))
    with pytest.raises(MlirstackError, match="nothing fails"):
        reduce_module(file, Task("builtin.module(canonicalize)"))


def test_messages_are_the_same_failure_whatever_their_types_and_names() -> None:
    first = Outcome("failure", "'tosa.add' op operand #1 must be tensor<8x16xf32>, but got tensor<?x4xf32>", "canonicalize")
    second = Outcome("failure", "'tosa.add' op operand #0 must be tensor<1x1xf32>, but got tensor<1xf32>", "canonicalize")
    assert essence(first.message) == essence(second.message)
    expected = Expectation.of(first)
    assert expected.matches(second)
    assert not expected.matches(Outcome("failure", "'tosa.sub' op operand #0 must be tensor<1xf32>", "canonicalize"))
    assert not expected.matches(Outcome("failure", second.message, "cse"))
    assert not expected.matches(Outcome("crash", "SIGSEGV", "canonicalize"))
    assert Expectation.of(first, "operand #1").matches(first)
    assert not Expectation.of(first, "operand #1").matches(second)


NESTED = """
func.func @main(%a: tensor<6x8xf32>, %n: index) -> tensor<48xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %a) -> tensor<6x8xf32> {
    %1 = math.exp %acc : tensor<6x8xf32>
    scf.yield %1 : tensor<6x8xf32>
  }
  %2 = tensor.collapse_shape %0 [[0, 1]] : tensor<6x8xf32> into tensor<48xf32>
  return %2 : tensor<48xf32>
}
"""


def test_edits_leave_valid_modules() -> None:
    module = parse_module(NESTED, new_context())
    found = inventory(module)
    assert found["sizes"] == [48, 8, 6]
    assert found["results"] == {"main": 1}
    assert len(found["regions"]) == 1
    apply(module, {"edit": "inline-region", "op": found["regions"][0]})
    apply(module, {"edit": "resize", "sizes": {"48": 1, "8": 1, "6": 1}})
    assert module.operation.verify()
    assert "scf.for" not in op_counts(module)
    assert op_counts(module)["math.exp"] == 1
    assert "tensor<1x1xf32> into tensor<1xf32>" in str(module)
    apply(module, {"edit": "return-operand", "function": "main", "index": 0, "operand": 0})
    apply(module, {"edit": "drop-ops", "ops": inventory(module)["ops"]})
    apply(module, {"edit": "drop-arguments", "function": "main"})
    assert module.operation.verify()
    assert set(op_counts(module)) == {"func.func", "func.return"}
