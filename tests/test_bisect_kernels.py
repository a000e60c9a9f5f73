"""Kernels exchanged between a wrong module and a right one: which of them is named, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mlirstack.bindings import new_context
from mlirstack.compare.accuracy import Accuracy, Answer, Reference, compare_answers
from mlirstack.compare.bisect.kernels import first_emitted, first_exchanged
from mlirstack.ir.text import module_text, parse_module

pytestmark = pytest.mark.portable

KERNELS = """
func.func private @first(%a: f32) -> f32 {
  %0 = arith.negf %a : f32
  return %0 : f32
}
func.func private @second(%a: f32) -> f32 {
  %0 = arith.maximumf %a, %a : f32 loc("net.py":7:1)
  return %0 : f32
}
func.func private @third(%a: f32) -> f32 {
  %0 = arith.addf %a, %a : f32
  return %0 : f32
}
"""


def accuracy(*, right: bool) -> Accuracy:
    """Of an answer that is eager's, or half of it."""
    eager = Answer({"output": torch.ones(4)}, "")
    got = eager if right else Answer({"output": torch.full((4,), 0.5)}, "")
    return compare_answers(got, Reference(eager, eager, "as is"))


def wrong_with(*texts: str) -> Any:
    """Judges a module wrong where it holds all of these texts."""
    return lambda module: accuracy(right=not all(text in module_text(module) for text in texts))


def test_the_kernel_that_was_given_wrong_is_named_with_its_line_and_what_differs() -> None:
    right = parse_module(KERNELS, new_context())
    edited = KERNELS.replace("maximumf", "minimumf").replace("addf", "subf").replace(' loc("net.py":7:1)', "")
    answer = first_exchanged(parse_module(edited, new_context()), right, wrong_with("minimumf"))
    found = answer["found"]
    assert (found["op"], found["location"], found["confirmed"]) == ("kernel @second", "net.py:7", True)
    assert found["rel_l2"] == pytest.approx(0.5)
    assert [line.strip() for line in found["text"].splitlines() if line[0] in "+-"] == [
        "-  %0 = arith.maximumf %arg0, %arg0 : f32",
        "+  %0 = arith.minimumf %arg0, %arg0 : f32",
    ]


def test_of_two_that_are_wrong_each_the_first_is_named_and_not_confirmed() -> None:
    right = parse_module(KERNELS, new_context())
    edited = parse_module(
        KERNELS.replace("negf", "absf").replace("arith.absf", "math.absf").replace("addf", "subf"), new_context()
    )
    answer = first_exchanged(
        edited, right, lambda m: accuracy(right="absf" not in module_text(m) and "subf" not in module_text(m))
    )
    assert (answer["found"]["op"], answer["found"]["confirmed"]) == ("kernel @first", False)


def test_what_cannot_be_exchanged_is_said() -> None:
    right = parse_module(KERNELS, new_context())
    other = parse_module(KERNELS.replace("@third", "@fourth"), new_context())
    assert first_exchanged(other, right, wrong_with("x"))["note"].startswith("the module has other kernels")
    assert first_exchanged(right, right, wrong_with("x"))["note"].startswith("no kernel differs")
    assert first_emitted(right, wrong_with("x"))["note"] == "no kernel is written by an emitter here"


def scheduled(*names: str) -> Any:
    functions = [
        f'func.func private @k{i}() attributes {{mlirstack.schedule = {{name = "{name}"}}}} {{ return }}'
        for i, name in enumerate(names)
    ]
    return parse_module("\n".join(functions), new_context())


@pytest.mark.parametrize("guilty", [0, 2, 4])
def test_the_kernel_that_an_emitter_writes_wrong_is_named(guilty: int) -> None:
    names = ["rows", "gemm_fma", "general", "rows", "rows", "rows"]
    emitted = [i for i, name in enumerate(names) if name != "general"]
    names[emitted[guilty]] = "transpose"
    found = first_emitted(scheduled(*names), wrong_with("transpose"))["found"]
    assert found["op"] == f"kernel @k{emitted[guilty]} by emitter 'transpose'"
    assert (found["confirmed"], found["instead"]) == (True, "the general mapping")


def test_where_the_general_mapping_is_as_wrong_no_emitter_is_blamed() -> None:
    answer = first_emitted(scheduled("rows", "rows"), lambda module: accuracy(right=False))
    assert answer["found"] is None
    assert "the general mapping" in answer["note"]
