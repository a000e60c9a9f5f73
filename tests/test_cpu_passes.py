"""The passes of target cpu, each on a few lines of IR: structure after, and for object code its parts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from passes_on_text import after, op_names

from mlirstack.bindings import ir
from mlirstack.ir.ops import function, functions, op_counts, walk
from mlirstack.ir.text import module_text
from mlirstack.passes import abi
from mlirstack.passes import functions as functions_of
from mlirstack.passes.generalize import GeneralizeNamed
from mlirstack.passes.hoist_parameters import HoistParameters
from mlirstack.passes.loop_order import OrderLoops
from mlirstack.passes.outline import OutlineKernels
from mlirstack.passes.pin import PinBroadcasts, PinReshapes
from mlirstack.passes.simplify import SimplifyLinalg
from mlirstack.pipeline.step import Pass

pytestmark = pytest.mark.portable

ROWS = "affine_map<(r, c) -> (r)>"
FULL = "affine_map<(r, c) -> (r, c)>"


def kernel_classes(module: Any) -> list[str]:
    return [
        ir.StringAttr(f.attributes["mlirstack.kernel"]).value
        for f in functions(module)
        if "mlirstack.kernel" in f.attributes
    ]


# ------------------------------------------------------------------------------------------------------------ parameters

LINEAR = """
func.func @main(%w: tensor<8x4xf32> {mlirstack.parameter = "w", mlirstack.argument = 0 : i64},
                %x: tensor<2x4xf32> {mlirstack.argument = 1 : i64},
                %v: tensor<8xf32> {mlirstack.parameter = "unused", mlirstack.argument = 2 : i64}) -> tensor<2x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %t = linalg.transpose ins(%w : tensor<8x4xf32>) outs(%e : tensor<4x8xf32>) permutation = [1, 0]
  %z = arith.constant 0.0 : f32
  %o = tensor.empty() : tensor<2x8xf32>
  %f = linalg.fill ins(%z : f32) outs(%o : tensor<2x8xf32>) -> tensor<2x8xf32>
  %r = linalg.matmul ins(%x, %t : tensor<2x4xf32>, tensor<4x8xf32>) outs(%f : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %r : tensor<2x8xf32>
}"""


def test_a_weight_transpose_moves_into_prepare() -> None:
    module = after(LINEAR, HoistParameters())
    prepare, main = function(module, "prepare"), function(module, "main")
    assert op_names(prepare) == ["tensor.empty", "linalg.transpose", "func.return"]
    assert "linalg.transpose" not in {op.name for op in walk(main)}
    assert [str(t) for t in functions_of.type_of(main).inputs] == ["tensor<2x4xf32>", "tensor<4x8xf32>"]
    assert functions_of.integer(functions_of.argument_attributes(main)[1][abi.PREPARED]) == 0
    assert functions_of.integer(functions_of.argument_attributes(prepare)[0][abi.ARGUMENT]) == 0


def test_what_is_prepared_can_be_prepared_further() -> None:
    text = """
    func.func @prepare(%w: tensor<8x4xf32> {mlirstack.parameter = "w", mlirstack.argument = 0 : i64})
        -> (tensor<8x4xf32>, tensor<4x8xf32>) {
      %e = tensor.empty() : tensor<4x8xf32>
      %t = linalg.transpose ins(%w : tensor<8x4xf32>) outs(%e : tensor<4x8xf32>) permutation = [1, 0]
      return %w, %t : tensor<8x4xf32>, tensor<4x8xf32>
    }
    func.func @main(%p: tensor<8x4xf32> {mlirstack.prepared = 0 : i64},
                    %t: tensor<4x8xf32> {mlirstack.prepared = 1 : i64}) -> tensor<4x8xf32> {
      %e = tensor.empty() : tensor<4x8xf32>
      %n = linalg.negf ins(%t : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
      return %n : tensor<4x8xf32>
    }"""
    module = after(text, HoistParameters())
    prepare, main = function(module, "prepare"), function(module, "main")
    assert len(functions_of.type_of(prepare).results) == 1
    assert [name for name in op_names(prepare) if name.startswith("linalg.")] == ["linalg.transpose", "linalg.negf"]
    assert op_names(main) == ["func.return"]
    (given,) = functions_of.argument_attributes(main)
    assert functions_of.integer(given[abi.PREPARED]) == 0


def test_a_broadcast_of_a_parameter_stays_where_it_is() -> None:
    text = f"""
    func.func @main(%b: tensor<8xf32> {{mlirstack.parameter = "b", mlirstack.argument = 0 : i64}}) -> tensor<64x8xf32> {{
      %o = tensor.empty() : tensor<64x8xf32>
      %r = linalg.generic {{indexing_maps = [affine_map<(r, c) -> (c)>, {FULL}], iterator_types = ["parallel", "parallel"]}}
          ins(%b : tensor<8xf32>) outs(%o : tensor<64x8xf32>) {{
        ^bb0(%x: f32, %y: f32): linalg.yield %x : f32 }} -> tensor<64x8xf32>
      return %r : tensor<64x8xf32>
    }}"""
    assert [functions_of.name_of(f) for f in functions(after(text, HoistParameters()))] == ["main"]


# -------------------------------------------------------------------------------------------------- fusion and its guards


def test_named_ops_are_generalized_by_kind() -> None:
    counts = op_counts(after(LINEAR, GeneralizeNamed()))
    assert (counts["linalg.generic"], counts["linalg.matmul"], counts["linalg.fill"]) == (1, 1, 1)
    counts = op_counts(after(LINEAR, GeneralizeNamed(windows=True)))
    assert (counts["linalg.generic"], counts["linalg.fill"]) == (2, 1)


NORMALIZE = f"""
func.func @main(%v: tensor<4xf32>, %x: tensor<4x64xf32>) -> tensor<4x64xf32> {{
  %e = tensor.empty() : tensor<4xf32>
  %i = linalg.generic {{indexing_maps = [affine_map<(r) -> (r)>, affine_map<(r) -> (r)>], iterator_types = ["parallel"]}}
      ins(%v : tensor<4xf32>) outs(%e : tensor<4xf32>) {{
    ^bb0(%a: f32, %o: f32): %q = math.BODY %a : f32
      linalg.yield %q : f32 }} -> tensor<4xf32>
  %o = tensor.empty() : tensor<4x64xf32>
  %r = linalg.generic {{indexing_maps = [{FULL}, {ROWS}, {FULL}], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %i : tensor<4x64xf32>, tensor<4xf32>) outs(%o : tensor<4x64xf32>) {{
    ^bb0(%a: f32, %b: f32, %c: f32): %m = arith.mulf %a, %b : f32
      linalg.yield %m : f32 }} -> tensor<4x64xf32>
  return %r : tensor<4x64xf32>
}}"""


@pytest.mark.parametrize(("body", "ops"), [("rsqrt", 2), ("absf", 1)])
def test_expensive_values_of_a_row_are_not_computed_per_element(body: str, ops: int) -> None:
    fuse = (PinBroadcasts(), Pass("linalg-fuse-elementwise-ops", on="func.func"), PinBroadcasts(remove=True), Pass("cse"))
    module = after(NORMALIZE.replace("BODY", body), *fuse)
    assert op_counts(module)["linalg.generic"] == ops
    assert [functions_of.name_of(f) for f in functions(module)] == ["main"]


def test_maximum_starts_from_minus_infinity_and_relu_has_no_upper_end() -> None:
    text = f"""
    func.func @main(%x: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4x8xf32>) {{
      %low = arith.constant -3.40282347E+38 : f32
      %high = arith.constant 3.40282347E+38 : f32
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<4xf32>
      %f = linalg.fill ins(%low : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
      %m = linalg.generic {{indexing_maps = [{FULL}, {ROWS}], iterator_types = ["parallel", "reduction"]}}
          ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) {{
        ^bb0(%a: f32, %o: f32): %q = arith.maximumf %a, %o : f32
          linalg.yield %q : f32 }} -> tensor<4xf32>
      %p = tensor.empty() : tensor<4x8xf32>
      %r = linalg.generic {{indexing_maps = [{FULL}, {FULL}], iterator_types = ["parallel", "parallel"]}}
          ins(%x : tensor<4x8xf32>) outs(%p : tensor<4x8xf32>) {{
        ^bb0(%a: f32, %o: f32): %c = arith.minimumf %a, %high : f32
          %d = arith.maximumf %c, %zero : f32
          linalg.yield %d : f32 }} -> tensor<4x8xf32>
      return %m, %r : tensor<4xf32>, tensor<4x8xf32>
    }}"""
    module = after(text, SimplifyLinalg(), Pass("canonicalize"))
    assert "arith.minimumf" not in op_counts(module)
    fill = next(op for op in walk(module) if op.name == "linalg.fill")
    start = ir.FloatAttr(fill.operands[0].owner.attributes["value"]).value
    assert start == -math.inf


# --------------------------------------------------------------------------------------------------------------- kernels


SOFTMAX = f"""
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {{
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%low : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {{indexing_maps = [{FULL}, {ROWS}], iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) {{
    ^bb0(%a: f32, %o: f32): %q = arith.maximumf %a, %o : f32
      linalg.yield %q : f32 }} -> tensor<4xf32>
  %p = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {{indexing_maps = [{FULL}, {ROWS}, {FULL}], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %m : tensor<4x8xf32>, tensor<4xf32>) outs(%p : tensor<4x8xf32>) {{
    ^bb0(%a: f32, %b: f32, %o: f32): %s = arith.subf %a, %b : f32
      %q = math.exp %s : f32
      linalg.yield %q : f32 }} -> tensor<4x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %n = linalg.generic {{indexing_maps = [{FULL}, {ROWS}], iterator_types = ["parallel", "reduction"]}}
      ins(%y : tensor<4x8xf32>) outs(%g : tensor<4xf32>) {{
    ^bb0(%a: f32, %o: f32): %q = arith.addf %a, %o : f32
      linalg.yield %q : f32 }} -> tensor<4xf32>
  %r = linalg.generic {{indexing_maps = [{FULL}, {ROWS}, {FULL}], iterator_types = ["parallel", "parallel"]}}
      ins(%y, %n : tensor<4x8xf32>, tensor<4xf32>) outs(%p : tensor<4x8xf32>) {{
    ^bb0(%a: f32, %b: f32, %o: f32): %q = arith.divf %a, %b : f32
      linalg.yield %q : f32 }} -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}}"""


def test_a_softmax_is_one_kernel_that_writes_into_its_last_argument() -> None:
    module = after(SOFTMAX, OutlineKernels())
    assert kernel_classes(module) == ["reduction"]
    kernel, main = function(module, "kernel_reduction_0"), function(module, "main")
    assert [str(t) for t in functions_of.type_of(kernel).inputs] == ["tensor<4x8xf32>", "tensor<4x8xf32>"]
    assert op_names(main) == ["tensor.empty", "func.call", "func.return"]
    last = [op for op in walk(kernel) if op.name == "linalg.generic"][-1]
    assert last.operands[2] == kernel.regions[0].blocks[0].arguments[1]


def test_an_epilogue_joins_its_contraction_and_repeated_kernels_are_one() -> None:
    text = f"""
    func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {{
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<4x4xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
      {_layer("%h", "%x")}
      {_layer("%r", "%h")}
      return %r : tensor<4x4xf32>
    }}"""
    module = after(text, OutlineKernels(), Pass("canonicalize"), Pass("duplicate-function-elimination"), Pass("symbol-dce"))
    assert kernel_classes(module) == ["contraction"]
    calls = [op for op in walk(function(module, "main")) if op.name == "func.call"]
    assert len(calls) == 2


def _layer(name: str, x: str) -> str:
    return f"""
      {name}m = linalg.matmul ins({x}, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%f : tensor<4x4xf32>) -> tensor<4x4xf32>
      {name} = linalg.generic {{indexing_maps = [{FULL}, {FULL}], iterator_types = ["parallel", "parallel"]}}
          ins({name}m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {{
        ^bb0(%a: f32, %o: f32): %q = arith.maximumf %a, %zero : f32
          linalg.yield %q : f32 }} -> tensor<4x4xf32>"""


def test_a_value_used_elsewhere_is_not_swallowed() -> None:
    """The matmul's result is returned as well: matmul and epilogue stay two kernels."""
    text = f"""
    func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {{
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<4x4xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
      {_layer("%h", "%x")}
      return %h, %hm : tensor<4x4xf32>, tensor<4x4xf32>
    }}"""
    assert sorted(kernel_classes(after(text, OutlineKernels()))) == ["contraction", "elementwise"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("4x8xf32", "elementwise"), ("?x8xf32", "other"), ("4x8xi1", "other"), ("4x8xcomplex<f32>", "other")],
)
def test_what_no_schedule_can_take_is_other(kind: str, expected: str) -> None:
    text = f"""
    func.func @main(%x: tensor<{kind}>, %o: tensor<{kind}>) -> tensor<{kind}> {{
      %r = linalg.generic {{indexing_maps = [{FULL}, {FULL}], iterator_types = ["parallel", "parallel"]}}
          ins(%x : tensor<{kind}>) outs(%o : tensor<{kind}>) {{
        ^bb0(%a: {kind.split("x", 2)[2]}, %b: {kind.split("x", 2)[2]}): linalg.yield %a : {kind.split("x", 2)[2]}
      }} -> tensor<{kind}>
      return %r : tensor<{kind}>
    }}"""
    assert kernel_classes(after(text, OutlineKernels())) == [expected]


def test_the_description_of_entry_points_survives_as_text() -> None:
    main = abi.FunctionAbi(
        "main",
        (
            abi.ValueAbi("f32", (8, None), "argument", 3),
            abi.ValueAbi("i64", None, "argument", 0),
            abi.ValueAbi("bf16", (), "prepared", 1),
        ),
        (abi.ValueAbi("complex<f32>", (2, 3)),),
        (abi.ValueAbi("index", (None,)), abi.ValueAbi("f64", None)),
        (1, 0, 2),
        checked=True,
    )
    described = abi.ModuleAbi((main, abi.FunctionAbi("prepare", (), (), (), ())), ("index must be < 3: no (really)",))
    assert abi.ModuleAbi.parse(described.text()) == described


@pytest.mark.parametrize(
    ("right", "position"), [("affine_map<(m, n, k) -> (k, n)>", 1), ("affine_map<(m, n, k) -> (n, k)>", 2)]
)
def test_a_dynamic_matmul_has_its_unit_stride_innermost_where_there_is_one(right: str, position: int) -> None:
    kind = "tensor<?x?xf32>"
    maps = f"affine_map<(m, n, k) -> (m, k)>, {right}, affine_map<(m, n, k) -> (m, n)>"
    text = f"""
    func.func @kernel(%a: {kind}, %b: {kind}, %c: {kind}) -> {kind} attributes {{mlirstack.kernel = "other"}} {{
      %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel", "reduction"]}}
          ins(%a, %b : {kind}, {kind}) outs(%c : {kind}) {{
        ^bb0(%x: f32, %y: f32, %z: f32): %p = arith.mulf %x, %y : f32
          %s = arith.addf %z, %p : f32
          linalg.yield %s : f32 }} -> {kind}
      return %r : {kind}
    }}"""
    module = after(text, OrderLoops())
    op = next(op for op in walk(module) if op.name == "linalg.generic")
    iterators = [str(i) for i in ir.ArrayAttr(op.attributes["iterator_types"])]
    assert ["reduction" in name for name in iterators].index(True) == position


def test_what_a_factor_is_made_of_is_looked_at_once_however_many_ways_lead_to_it() -> None:
    """Each of 60 sums reads the one before it twice: 2⁶⁰ ways lead from the product to the first."""
    sums = "".join(
        f"""
        %{number + 1} = linalg.generic {{indexing_maps = [#map, #map, #map],
            iterator_types = ["parallel", "parallel", "parallel"]}}
            ins(%{number}, %{number} : tensor<2x4x4xf32>, tensor<2x4x4xf32>) outs(%x : tensor<2x4x4xf32>) {{
        ^bb0(%a: f32, %b: f32, %out: f32):
          %sum = arith.mulf %a, %b : f32
          linalg.yield %sum : f32
        }} -> tensor<2x4x4xf32>"""
        for number in range(60)
    )
    text = f"""
    #map = affine_map<(b, i, j) -> (b, i, j)>
    func.func @main(%x: tensor<2x4x4xf32>) -> tensor<2x4x4xf32> {{
        %0 = linalg.copy ins(%x : tensor<2x4x4xf32>) outs(%x : tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
        {sums}
        %product = linalg.batch_matmul ins(%60, %60 : tensor<2x4x4xf32>, tensor<2x4x4xf32>)
            outs(%x : tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
        return %product : tensor<2x4x4xf32>
    }}"""
    assert "mlirstack_pin" not in module_text(after(text, PinReshapes()))
