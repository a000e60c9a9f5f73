"""The passes of target cpu, each on a few lines of IR: structure after, and for object code its parts."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from mlirstack.bindings import ir, new_context
from mlirstack.errors import BundleError, StageError
from mlirstack.ir.ops import function, functions, op_counts, walk
from mlirstack.ir.text import module_text, parse_module
from mlirstack.passes import abi
from mlirstack.passes import functions as functions_of
from mlirstack.passes.asserts import AssertsToErrors
from mlirstack.passes.buffers import ResultsToArguments
from mlirstack.passes.elf import ElfObject
from mlirstack.passes.entry import NumberArguments, ProtectArguments
from mlirstack.passes.generalize import GeneralizeNamed
from mlirstack.passes.hoist_parameters import HoistParameters
from mlirstack.passes.llvm_ir import TranslateToLlvmIr, classic_spelling
from mlirstack.passes.loop_order import OrderLoops
from mlirstack.passes.native_code import CompileObject, Disassemble
from mlirstack.passes.outline import OutlineKernels
from mlirstack.passes.pin import PinBroadcasts, PinReshapes
from mlirstack.passes.runtime_libraries import missing, needed
from mlirstack.passes.simplify import SimplifyLinalg
from mlirstack.pipeline.runner import run_steps
from mlirstack.pipeline.step import Pass, Step

pytestmark = pytest.mark.portable

ROWS = "affine_map<(r, c) -> (r)>"
FULL = "affine_map<(r, c) -> (r, c)>"


def after(text: str, *steps: Step) -> Any:
    module = run_steps(steps, parse_module(text, new_context()))
    assert module.operation.verify()
    return module


def kernel_classes(module: Any) -> list[str]:
    return [
        ir.StringAttr(f.attributes["mlirstack.kernel"]).value
        for f in functions(module)
        if "mlirstack.kernel" in f.attributes
    ]


def _names(of: Any) -> list[str]:
    """Names of the ops in the body of a function, their regions left out."""
    return [op.operation.name for op in of.regions[0].blocks[0].operations]


# ------------------------------------------------------------------------------------------------------------- arguments


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
    assert _names(prepare) == ["tensor.empty", "linalg.transpose", "func.return"]
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
    assert [name for name in _names(prepare) if name.startswith("linalg.")] == ["linalg.transpose", "linalg.negf"]
    assert _names(main) == ["func.return"]
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
    assert _names(main) == ["tensor.empty", "func.call", "func.return"]
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


# ------------------------------------------------------------------------------------------------------ LLVM IR and object


@pytest.mark.parametrize(
    ("new", "value"),
    [
        ("float f0x3DCCCCCD", 0.1),
        ("float 1.500000e+00", 1.5),
        ("double -2.5", -2.5),
        ("float +inf", math.inf),
        ("double -inf", -math.inf),
    ],
)
def test_literals_in_classic_spelling(new: str, value: float) -> None:
    kind, literal = classic_spelling(f"  ret {new}\n").split()[1:]
    bits = struct.pack("<Q", int(literal, 16))  # a float is written as the double of the same value
    assert struct.unpack("<d", bits)[0] == pytest.approx(value, rel=1e-7)
    assert new.startswith(kind + " ")


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("half f0x3C00", "half 0xH3C00"),
        ("half 5.000000e-01", "half 0xH3800"),
        ("bfloat f0x3F80", "bfloat 0xR3F80"),
        ("float +nan(0x1)", "float 0x7FF8000020000000"),
        ("double +qnan", "double 0x7FF8000000000000"),
    ],
)
def test_narrow_floats_and_nans_in_classic_spelling(new: str, old: str) -> None:
    assert classic_spelling(f"  ret {new}\n") == f"  ret {old}\n"


def test_names_and_strings_are_not_literals() -> None:
    line = '@"float 1.5" = constant [9 x i8] c"float 2.5", !dbg !3 ; float 3.5\n'
    assert classic_spelling(line) == line


def test_an_op_without_translation_is_an_error_and_no_crash() -> None:
    module = parse_module(
        "func.func @f(%a: f32, %b: f32) -> f32 { %c = arith.addf %a, %b : f32 return %c : f32 }", new_context()
    )
    with pytest.raises(StageError, match=r"func\.func.*no translation"):
        TranslateToLlvmIr().translate(module)


LL = """
@text = constant [3 x i8] c"ab\\00"
declare double @cbrt(double)
define double @twice(double %x) {
  %y = call double @cbrt(double %x)
  %z = fadd double %y, %y
  ret double %z
}
"""


def test_object_and_its_parts() -> None:
    code = CompileObject().translate(LL)
    elf = ElfObject.parse(code.data)
    assert elf.undefined() == ("cbrt",)
    assert [f.name for f in elf.functions()] == ["twice"]
    assert elf.constant("text") == b"ab\0"
    listing = Disassemble().translate(code).text
    assert listing.startswith("twice:\n")
    assert "; cbrt" in listing
    assert code.data == CompileObject().translate(LL).data


def test_a_symbol_that_no_library_has_is_named_at_compile_time() -> None:
    with pytest.raises(StageError, match="no_such_function"):
        CompileObject().translate(
            "declare void @no_such_function()\ndefine void @f() { call void @no_such_function() ret void }"
        )


def test_llvm_says_what_is_wrong_with_the_text() -> None:
    with pytest.raises(StageError, match="LLVM does not accept"):
        CompileObject().translate("define void @f() { ret i32 0 }")


@pytest.mark.parametrize("data", [b"", b"not an object", b"\x7fELF\x02\x01" + b"\0" * 40])
def test_damaged_objects_are_refused(data: bytes) -> None:
    with pytest.raises(BundleError):
        ElfObject.parse(data)


def test_libraries_by_symbol() -> None:
    assert needed(["malloc", "expf"]) == ["libc.so.6", "libm.so.6"]
    assert missing(["expf", "no_such_function"]) == ["no_such_function"]


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


def test_kernels_stay_functions_of_their_own() -> None:
    text = 'attributes #0 = { noinline "frame-pointer"="all" }\nattributes #1 = { nocallback memory(none) }\n'
    assert classic_spelling(text) == "attributes #0 = { noinline }\n"


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
