"""Entry points of a program of the host: arguments by number, results in arguments, checks that leave early."""

from __future__ import annotations

import pytest
from passes_on_text import after

from mlirstack.bindings import ir, new_context
from mlirstack.ir.ops import function, op_counts, walk
from mlirstack.ir.text import module_text, parse_module
from mlirstack.passes import abi
from mlirstack.passes import functions as functions_of
from mlirstack.passes.asserts import AssertsToErrors
from mlirstack.passes.buffers import ResultsToArguments
from mlirstack.passes.entry import NumberArguments, ProtectArguments
from mlirstack.pipeline.step import Pass

pytestmark = pytest.mark.portable


def test_arguments_are_numbered_once() -> None:
    module = after("func.func @main(%a: tensor<2xf32>, %b: i64) { return }", NumberArguments(), NumberArguments())
    given = functions_of.argument_attributes(function(module, "main"))
    assert [functions_of.integer(g[abi.ARGUMENT]) for g in given] == [0, 1]


def test_bufferization_does_not_write_into_protected_arguments() -> None:
    text = """
    func.func @main(%a: tensor<4xf32>, %x: f32) -> tensor<4xf32> {
      %r = linalg.fill ins(%x : f32) outs(%a : tensor<4xf32>) -> tensor<4xf32>
      return %r : tensor<4xf32>
    }"""
    bufferize = Pass("one-shot-bufferize", {"bufferize-function-boundaries": True})
    module = after(text, ProtectArguments(), bufferize)
    filled = [op for op in walk(module) if op.name == "linalg.fill"]
    assert isinstance(filled[0].operands[1].owner, (ir.Operation, ir.OpView))
    assert filled[0].operands[1].owner.name == "memref.alloc"


RETURNS = """
func.func @main(%a: memref<4xf32>, %n: index, %s: i64)
    -> (memref<4xf32>, memref<2x2xf32>, i64, memref<4xf32>, memref<?xf32>) {
  %p = memref.alloc() : memref<4xf32>
  linalg.fill ins(%x : f32) outs(%p : memref<4xf32>)
  %q = memref.alloc() : memref<4xf32>
  %v = memref.expand_shape %q [[0, 1]] output_shape [2, 2] : memref<4xf32> into memref<2x2xf32>
  %d = memref.alloc(%n) : memref<?xf32>
  return %p, %v, %s, %a, %d : memref<4xf32>, memref<2x2xf32>, i64, memref<4xf32>, memref<?xf32>
}""".replace("linalg.fill", "%x = arith.constant 1.0 : f32\n  linalg.fill")


def test_static_results_become_arguments_and_their_allocations_vanish() -> None:
    module = after(RETURNS, ResultsToArguments())
    main = function(module, "main")
    signature = functions_of.type_of(main)
    assert [str(t) for t in signature.inputs[3:]] == ["memref<4xf32>", "memref<2x2xf32>", "memref<4xf32>"]
    assert [str(t) for t in signature.results] == ["i64", "memref<?xf32>"]
    counts = op_counts(module)
    assert counts["memref.alloc"] == 1  # the dynamic one; the reshaped one is a view of its argument
    assert counts["memref.copy"] == 1  # the argument that is returned


def test_a_buffer_returned_twice_is_written_to_one_argument_and_copied_to_the_other() -> None:
    text = """
    func.func @main() -> (memref<4xf32>, memref<4xf32>) {
      %p = memref.alloc() : memref<4xf32>
      return %p, %p : memref<4xf32>, memref<4xf32>
    }"""
    counts = op_counts(after(text, ResultsToArguments()))
    assert (counts["memref.copy"], counts.get("memref.alloc")) == (1, None)


def test_two_results_of_one_allocation() -> None:
    """The second was once read where the first had been replaced: a crash."""
    text = """
    func.func @main() -> (memref<4xf32>, memref<2x2xf32>) {
      %p = memref.alloc() : memref<4xf32>
      %q = memref.expand_shape %p [[0, 1]] output_shape [2, 2] : memref<4xf32> into memref<2x2xf32>
      return %p, %q : memref<4xf32>, memref<2x2xf32>
    }"""
    for order in (
        text,
        text.replace(
            "return %p, %q : memref<4xf32>, memref<2x2xf32>", "return %q, %p : memref<2x2xf32>, memref<4xf32>"
        ).replace("-> (memref<4xf32>, memref<2x2xf32>)", "-> (memref<2x2xf32>, memref<4xf32>)"),
    ):
        counts = op_counts(after(order, ResultsToArguments()))
        assert (counts["memref.copy"], counts.get("memref.alloc")) == (1, None)


# --------------------------------------------------------------------------------------------------------------- checks


def test_a_failed_check_leaves_through_every_caller() -> None:
    text = """
    func.func private @inner(%ok: i1) { cf.assert %ok, "inner fails"
      return }
    func.func @main(%ok: i1, %fine: i1) -> memref<2xf32> {
      call @inner(%ok) : (i1) -> ()
      cf.assert %fine, "outer fails"
      %m = memref.alloc() : memref<2xf32>
      return %m : memref<2xf32>
    }"""
    module = after(text, AssertsToErrors())
    assert "cf.assert" not in op_counts(module)
    messages = module.operation.attributes[abi.ASSERT_MESSAGES]
    assert [ir.StringAttr(m).value for m in messages] == ["inner fails", "outer fails"]
    for name in ("inner", "main"):
        checked = function(module, name)
        assert str(functions_of.type_of(checked).inputs[-1]) == "memref<i64>"
        assert abi.CHECKED in checked.attributes
    assert len(function(module, "main").regions[0].blocks) == 5


def test_without_checks_nothing_changes() -> None:
    text = "func.func @main(%a: memref<2xf32>) { return }"
    assert module_text(after(text, AssertsToErrors())) == module_text(parse_module(text, new_context()))
