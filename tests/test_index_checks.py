"""Checks out of kernels: what is inserted before a gather, over which dimensions, and what is left alone."""

from __future__ import annotations

import re

from mlirstack.bindings import new_context
from mlirstack.ir.ops import op_counts
from mlirstack.ir.text import module_text, parse_module
from mlirstack.passes.index_checks import ChecksOutOfKernels
from mlirstack.pipeline.runner import run_steps
from mlirstack.pipeline.step import Pass

EMBEDDING = """
#row = affine_map<(d0, d1) -> (d0)>
#all = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%table: tensor<{rows}x4xf32>, %index: tensor<7xi64>) -> tensor<7x4xf32> {{
  %c10 = arith.constant 10 : index
  %empty = tensor.empty() : tensor<7x4xf32>
  %y = linalg.generic {{indexing_maps = [#row, #all], iterator_types = ["parallel", "parallel"]}}
      ins(%index : tensor<7xi64>) outs(%empty : tensor<7x4xf32>) {{
  ^bb0(%i: i64, %out: f32):
    %row = arith.index_cast %i : i64 to index
    %column = linalg.index 1 : index
    %good = arith.cmpi slt, %row, %c10 : index
    cf.assert %good, "{message}"
    %value = tensor.extract %table[%row, %column] : tensor<{rows}x4xf32>
    linalg.yield %value : f32
  }} -> tensor<7x4xf32>
  return %y : tensor<7x4xf32>
}}
"""


def checked(rows: str = "10", message: str = "index must be smaller than dim size") -> str:
    module = parse_module(EMBEDDING.format(rows=rows, message=message), new_context())
    run_steps((ChecksOutOfKernels(), Pass("canonicalize"), Pass("cse")), module)
    return module_text(module)


def bodies(text: str) -> list[str]:
    return re.findall(r"linalg\.generic.*?\n    \} ->", text, re.DOTALL)


def test_one_check_per_position_over_its_own_dimensions() -> None:
    guard, gather = bodies(checked())
    assert 'iterator_types = ["reduction"]' in guard  # of 7 rows, not of 28 elements
    assert "arith.cmpi ult" in guard
    assert "cf.assert" not in guard + gather
    assert "arith.minsi" in gather
    assert "arith.maxsi" in gather
    assert checked().count("cf.assert") == 1
    assert "index out of range: dimension 0 of tensor<10x4xf32> has size 10" in checked()


def test_other_assertions_keep_their_message() -> None:
    text = checked(message="negative variance")
    assert len(bodies(text)) == 3
    assert 'cf.assert %extracted, "index out of range' in text
    assert '"negative variance"' in text


def test_dynamic_sizes_are_read_from_the_tensor() -> None:
    text = checked(rows="?")
    assert "tensor.dim %arg0, %c0" in text
    assert "has size dynamic" in text


def test_positions_that_no_data_decide_are_left_alone() -> None:
    source = """
    #all = affine_map<(d0) -> (d0)>
    func.func @main(%x: tensor<8xf32>) -> tensor<4xf32> {
      %two = arith.constant 2 : index
      %empty = tensor.empty() : tensor<4xf32>
      %y = linalg.generic {indexing_maps = [#all], iterator_types = ["parallel"]} outs(%empty : tensor<4xf32>) {
      ^bb0(%out: f32):
        %i = linalg.index 0 : index
        %j = arith.muli %i, %two : index
        %value = tensor.extract %x[%j] : tensor<8xf32>
        linalg.yield %value : f32
      } -> tensor<4xf32>
      return %y : tensor<4xf32>
    }"""
    module = parse_module(source, new_context())
    before = op_counts(module)
    run_steps((ChecksOutOfKernels(),), module)
    assert op_counts(module) == before
