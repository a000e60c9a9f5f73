"""What the CPU schedules make of one kernel of each class: loops around tile-sized ops, then vectors of exact sizes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mlirstack.bindings import new_context
from mlirstack.ir.ops import op_counts, walk
from mlirstack.ir.text import parse_module
from mlirstack.pipeline.runner import run_steps
from mlirstack.pipeline.step import Step
from mlirstack.schedules.cpu.tiling import TileKernels
from mlirstack.schedules.cpu.vectorize import VectorizeKernels
from mlirstack.schedules.linalg_ops import linalg_ops

pytestmark = pytest.mark.portable

IDENTITY = "affine_map<(m, n) -> (m, n)>"
ROW = "affine_map<(m, n) -> (m)>"


def elementwise(rows: int, columns: int, body: str = "math.exp %x : f32", element: str = "f32") -> str:
    """A kernel with one elementwise op over ``rows`` x ``columns``."""
    kind = f"tensor<{rows}x{columns}x{element}>"
    return f"""
    func.func private @kernel_0(%x: {kind}, %init: {kind}) -> {kind} attributes {{mlirstack.kernel = "elementwise"}} {{
      %r = linalg.generic {{indexing_maps = [{IDENTITY}, {IDENTITY}], iterator_types = ["parallel", "parallel"]}}
          ins(%x : {kind}) outs(%init : {kind}) {{
        ^bb0(%x_: {element}, %out: {element}):
          %y = {body.replace("%x ", "%x_ ")}
          linalg.yield %y : {element}
      }} -> {kind}
      return %r : {kind}
    }}"""


def softmax(rows: int, columns: int) -> str:
    """A kernel that holds a softmax along the last dimension as four ops and two fills."""
    kind, row = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}xf32>"
    reduce = f'{{indexing_maps = [{IDENTITY}, {ROW}], iterator_types = ["parallel", "reduction"]}}'
    scale = f'{{indexing_maps = [{IDENTITY}, {ROW}, {IDENTITY}], iterator_types = ["parallel", "parallel"]}}'
    return f"""
    func.func private @kernel_0(%x: {kind}, %init: {kind}) -> {kind} attributes {{mlirstack.kernel = "reduction"}} {{
      %lowest = arith.constant 0xFF800000 : f32
      %zero = arith.constant 0.0 : f32
      %e1 = tensor.empty() : {row}
      %e2 = tensor.empty() : {kind}
      %f1 = linalg.fill ins(%lowest : f32) outs(%e1 : {row}) -> {row}
      %max = linalg.generic {reduce} ins(%x : {kind}) outs(%f1 : {row}) {{
        ^bb0(%a: f32, %out: f32):
          %m = arith.maximumf %a, %out : f32
          linalg.yield %m : f32 }} -> {row}
      %exp = linalg.generic {scale} ins(%x, %max : {kind}, {row}) outs(%e2 : {kind}) {{
        ^bb0(%a: f32, %b: f32, %out: f32):
          %d = arith.subf %a, %b : f32
          %e = math.exp %d : f32
          linalg.yield %e : f32 }} -> {kind}
      %f2 = linalg.fill ins(%zero : f32) outs(%e1 : {row}) -> {row}
      %sum = linalg.generic {reduce} ins(%exp : {kind}) outs(%f2 : {row}) {{
        ^bb0(%a: f32, %out: f32):
          %m = arith.addf %a, %out : f32
          linalg.yield %m : f32 }} -> {row}
      %r = linalg.generic {scale} ins(%exp, %sum : {kind}, {row}) outs(%init : {kind}) {{
        ^bb0(%a: f32, %b: f32, %out: f32):
          %d = arith.divf %a, %b : f32
          linalg.yield %d : f32 }} -> {kind}
      return %r : {kind}
    }}"""


def lower(text: str, *steps: Step) -> Any:
    """The module ``text`` after ``steps``."""
    module = parse_module(text, new_context())
    run_steps(steps, module)
    return module


def vector_lengths(module: Any) -> set[int]:
    """Lengths of the vectors that are read."""
    reads = [op for op in walk(module) if op.name == "vector.transfer_read"]
    return {int(n) for op in reads for n in re.findall(r"vector<(?:\d+x)*(\d+)x", str(op.results[0].type))}


def test_an_elementwise_kernel_is_loops_around_tiles_of_two_registers() -> None:
    module = lower(elementwise(6, 64), TileKernels(vector_bits=256))
    assert op_counts(module)["scf.for"] == 2
    assert [op.sizes for op in linalg_ops(module)] == [(1, 16)]


def test_a_ragged_size_is_cut_into_a_multiple_and_a_static_rest() -> None:
    module = lower(softmax(6, 70), TileKernels(vector_bits=256))
    elementwise_sizes = [op.shape for op in linalg_ops(module) if len(op.inputs) == 2]
    assert elementwise_sizes == [(1, 16), (1, 6)] * 2, "exponentials and quotients: 70 is 4 times 16 and 6"
    vectors = lower(softmax(6, 70), TileKernels(vector_bits=256), VectorizeKernels())
    assert not [op for op in walk(vectors) if op.name.startswith("linalg.")]
    assert vector_lengths(vectors) == {6, 16, 32}


@pytest.mark.parametrize(("element", "length"), [("f32", 16), ("f64", 8)])
def test_the_tile_follows_the_element_width(element: str, length: int) -> None:
    text = elementwise(4, 64, body=f"math.exp %x : {element}", element=element)
    module = lower(text, TileKernels(vector_bits=256), VectorizeKernels())
    assert vector_lengths(module) == {length}


def test_softmax_is_one_loop_over_rows_with_partial_results() -> None:
    module = lower(softmax(40, 128), TileKernels(vector_bits=256))
    (function,) = list(module.body.operations)
    top = [op for op in function.regions[0].blocks[0].operations if op.operation.name == "scf.for"]
    assert len(top) == 1, "all six ops stand in the loop over rows"
    sizes = [op.sizes for op in linalg_ops(module) if op.name == "linalg.generic"]
    assert sizes == [(1, 32), (1, 16), (1, 32), (1, 16)], "32 partial results, 16 elements a step"
    assert all(size <= 128 for op in linalg_ops(module) for size in op.shape)


def test_softmax_keeps_its_accumulators_in_loop_variables() -> None:
    module = lower(softmax(40, 128), TileKernels(vector_bits=256), VectorizeKernels())
    carried = [r.type for op in walk(module) if op.name == "scf.for" for r in op.results]
    assert sum(str(kind) == "vector<32xf32>" for kind in carried) == 2
    assert not [op for op in walk(module) if op.name.startswith("linalg.")]


def test_booleans_in_memory_are_not_vectorized() -> None:
    text = elementwise(4, 64, body="arith.xori %x , %x : i1", element="i1")
    module = lower(text, TileKernels(vector_bits=256), VectorizeKernels())
    assert [op.sizes for op in linalg_ops(module)] == [(4, 64)], "a byte each in memory, a bit each in a vector"


def test_what_is_larger_than_a_tile_is_not_vectorized() -> None:
    module = lower(elementwise(512, 512), VectorizeKernels())
    assert [op.sizes for op in linalg_ops(module)] == [(512, 512)]


def test_a_module_without_kernels_needs_no_schedule() -> None:
    text = elementwise(4, 64).replace('attributes {mlirstack.kernel = "elementwise"}', "")
    module = parse_module(text, new_context())
    assert TileKernels().build(module) is None
    assert VectorizeKernels().build(module) is None


def test_rows_with_a_rest_are_one_flat_loop() -> None:
    module = lower(elementwise(33, 7), TileKernels(vector_bits=256))
    assert op_counts(module)["scf.for"] == 1
    assert sorted(op.sizes for op in linalg_ops(module)) == [(7,), (16,)], "231 elements: 14 vectors and 7"
