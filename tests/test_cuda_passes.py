"""The general mapping and the passes around it, on a few lines of IR: kernels executed by the SIMT emulator, compared with a
calculation by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from simt import run_plan

from mlirstack.bindings import ir, new_context
from mlirstack.errors import StageError
from mlirstack.ir.ops import functions, op_counts, walk
from mlirstack.passes.cuda import dispatches
from mlirstack.passes.cuda.launches import InlineLaunches
from mlirstack.pipeline.runner import run_steps
from mlirstack.pipelines.cuda import cuda_pipeline

pytestmark = pytest.mark.portable

FULL, ROW, COLUMN = (f"affine_map<(r, c) -> ({results})>" for results in ("r, c", "r", "c"))


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context(), ir.Location.unknown():
        yield


@pytest.fixture(autouse=True)
def general_only(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """No emitter takes anything, except where a test is marked ``emitters``."""
    if "emitters" not in request.fixturenames:
        monkeypatch.setattr(dispatches, "choose", lambda graph, device: None)
        monkeypatch.setattr(dispatches, "emitters", lambda: ())


@pytest.fixture
def emitters() -> None:
    """All emitters have their choice."""


def lowered(text: str, to: str = "gpu") -> Any:
    module = ir.Module.parse(text)
    for stage in cuda_pipeline("linalg", "linalg").slice(None, to).stages:
        module = run_steps(stage.steps, module)
    assert module.operation.verify()
    return module


def generic(kinds: str, maps: tuple[str, ...], operands: str, result: str, body: str) -> str:
    iterators = ", ".join('"reduction"' if kind == "r" else '"parallel"' for kind in kinds)
    return f"""linalg.generic {{indexing_maps = [{", ".join(maps)}], iterator_types = [{iterators}]}} {operands} {{
      {body}
    }} -> {result}"""


def reduction(shape: str, result: str, into: str, body: str, start: str, kind: str = "f32", kinds: str = "pr") -> str:
    """A function that reduces its argument of ``shape``."""
    op = generic(
        kinds, (FULL, into), f"ins(%x : tensor<{shape}x{kind}>) outs(%init : tensor<{result}>)", f"tensor<{result}>", body
    )
    return f"""func.func @main(%x: tensor<{shape}x{kind}>) -> tensor<{result}> {{
      %start = arith.constant {start} : {kind}
      %empty = tensor.empty() : tensor<{result}>
      %init = linalg.fill ins(%start : {kind}) outs(%empty : tensor<{result}>) -> tensor<{result}>
      %0 = {op}
      return %0 : tensor<{result}>
    }}"""


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


ADD = "^bb0(%a: f32, %o: f32): %s = arith.addf %a, %o : f32 linalg.yield %s : f32"
MAX = "^bb0(%a: i32, %o: i32): %s = arith.maxsi %a, %o : i32 linalg.yield %s : i32"


# ----------------------------------------------------------------------------------------------------------- general mapping


@pytest.mark.parametrize("shape", [(3, 1), (5, 127), (7, 128), (2, 1000)])
def test_sums_of_rows_short_and_long(shape: tuple[int, int]) -> None:
    """From 128 elements on, a block of threads shares a row."""
    rows, columns = shape
    module = lowered(reduction(f"{rows}x{columns}", f"{rows}xf32", ROW, ADD, "0.5"))
    shuffles = op_counts(module).get("gpu.shuffle", 0)
    assert (shuffles > 0) == (columns >= 128)
    x = numbers(*shape)
    np.testing.assert_allclose(run_plan(module, [x])[0], 0.5 + x.sum(1), rtol=1e-5, atol=1e-5)


def test_sums_of_columns() -> None:
    x = numbers(100, 33)
    text = reduction("100x33", "33xf32", COLUMN, ADD, "0.0", kinds="rp")
    np.testing.assert_allclose(run_plan(lowered(text), [x])[0], x.sum(0), rtol=1e-4, atol=1e-4)


def test_maximum_of_everything_is_exact() -> None:
    x = np.random.default_rng(1).integers(-(2**31), -5, (37, 41)).astype(np.int32)
    text = reduction("37x41", "i32", "affine_map<(r, c) -> ()>", MAX, "-2147483648", "i32", "rr")
    assert run_plan(lowered(text), [x])[0] == x.max()


def test_sum_over_nothing_is_where_it_starts() -> None:
    module = lowered(reduction("3x0", "3xf32", ROW, ADD, "0.5"))
    np.testing.assert_array_equal(run_plan(module, [np.zeros((3, 0), np.float32)])[0], np.full(3, 0.5, np.float32))


def test_nothing_is_launched_for_an_empty_result() -> None:
    module = lowered(reduction("0x5", "0xf32", ROW, ADD, "0.5"))
    assert "gpu.launch_func" not in op_counts(module)
    assert run_plan(module, [np.zeros((0, 5), np.float32)])[0].shape == (0,)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (17, 40)])
def test_dynamic_sizes_travel_with_the_launch(shape: tuple[int, int]) -> None:
    op = generic(
        "pp",
        (FULL, "affine_map<(r, c) -> (c)>", "affine_map<(r, c) -> (c, r)>"),
        "ins(%x, %b : tensor<?x?xf32>, tensor<?xf32>) outs(%empty : tensor<?x?xf32>)",
        "tensor<?x?xf32>",
        "^bb0(%a: f32, %v: f32, %o: f32): %s = arith.subf %a, %v : f32 linalg.yield %s : f32",
    )
    module = lowered(f"""func.func @main(%x: tensor<?x?xf32>, %b: tensor<?xf32>) -> tensor<?x?xf32> {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %r = tensor.dim %x, %c0 : tensor<?x?xf32>
      %c = tensor.dim %x, %c1 : tensor<?x?xf32>
      %empty = tensor.empty(%c, %r) : tensor<?x?xf32>
      %0 = {op}
      return %0 : tensor<?x?xf32>
    }}""")
    x, b = numbers(*shape), numbers(shape[1], seed=1)
    np.testing.assert_array_equal(run_plan(module, [x, b])[0], (x - b).T)


def test_slices_are_written_into_one_tensor() -> None:
    """Concatenation along the inner axis: copies with gaps, all but one element apart."""
    module = lowered("""func.func @main(%x: tensor<5x3xf32>, %y: tensor<5x1xf32>) -> tensor<5x4xf32> {
      %0 = tensor.concat dim(1) %y, %x : (tensor<5x1xf32>, tensor<5x3xf32>) -> tensor<5x4xf32>
      return %0 : tensor<5x4xf32>
    }""")
    x, y = numbers(5, 3), numbers(5, 1, seed=1)
    np.testing.assert_array_equal(run_plan(module, [x, y])[0], np.concatenate([y, x], 1))


def test_slice_with_gaps_is_read_where_it_is_copied() -> None:
    module = lowered("""func.func @main(%x: tensor<8x9xf32>) -> tensor<3x4xf32> {
      %0 = tensor.extract_slice %x[1, 2] [3, 4] [2, 1] : tensor<8x9xf32> to tensor<3x4xf32>
      return %0 : tensor<3x4xf32>
    }""")
    x = numbers(8, 9)
    np.testing.assert_array_equal(run_plan(module, [x])[0], x[1:7:2, 2:6])


def test_padding_is_a_fill_and_a_copy() -> None:
    module = lowered("""func.func @main(%x: tensor<3x4xi8>) -> tensor<5x7xi8> {
      %seven = arith.constant 7 : i8
      %0 = tensor.pad %x low[1, 0] high[1, 3] {
      ^bb0(%r: index, %c: index):
        tensor.yield %seven : i8
      } : tensor<3x4xi8> to tensor<5x7xi8>
      return %0 : tensor<5x7xi8>
    }""")
    x = np.arange(12, dtype=np.int8).reshape(3, 4)
    np.testing.assert_array_equal(run_plan(module, [x])[0], np.pad(x, ((1, 1), (0, 3)), constant_values=7))


SCATTER = """func.func @main(%x: tensor<6x4xf32>, %i: tensor<6x1xi64>, %y: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %0 = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false)
      ins(%x, %i : tensor<6x4xf32>, tensor<6x1xi64>) outs(%y : tensor<9x4xf32>) {
  ^bb0(%new: f32, %old: f32):
    %s = arith.addf %new, %old : f32
    tm_tensor.yield %s : f32
  } -> tensor<9x4xf32>
  return %0 : tensor<9x4xf32>
}"""


def test_scatter_adds_in_order_along_its_updates() -> None:
    x, y = numbers(6, 4), numbers(9, 4, seed=1)
    places = np.array([[3], [0], [3], [8], [3], [0]])
    expected = y.copy()
    np.add.at(expected, places[:, 0], x)
    module = lowered(SCATTER)
    np.testing.assert_allclose(run_plan(module, [x, places, y])[0], expected, rtol=1e-6)
    loops = [op for op in walk(module) if op.name == "scf.for" and op.parent.name != "scf.for"]
    assert len(loops) == 1, "elements of an update are threads, updates a loop"


def test_scatter_with_a_wrong_index_stays_inside() -> None:
    x, y = numbers(6, 4), numbers(9, 4, seed=1)
    places = np.array([[3], [-1], [100], [8], [3], [0]])
    assert run_plan(lowered(SCATTER), [x, places, y])[0].shape == (9, 4)


# -------------------------------------------------------------------------------------------------------------- dispatches


def kernel_ops(module: Any) -> dict[str, int]:
    """Number of linalg ops with loops in each kernel function."""
    found = {}
    for function in functions(module):
        if "mlirstack.kernel" in function.attributes:
            name = ir.StringAttr(function.attributes["sym_name"]).value
            found[name] = sum(op.name == "linalg.generic" for op in walk(function))
    return found


def two_readers(other: str) -> str:
    """``y = x + x``, and two ops that read it."""
    double = generic(
        "pp", (FULL, FULL), "ins(%x : tensor<4x64xf32>) outs(%e : tensor<4x64xf32>)", "tensor<4x64xf32>",
        "^bb0(%a: f32, %o: f32): %s = arith.addf %a, %a : f32 linalg.yield %s : f32",
    )  # fmt: skip
    square = generic(
        "pp", (FULL, FULL), "ins(%y : tensor<4x64xf32>) outs(%e : tensor<4x64xf32>)", "tensor<4x64xf32>",
        "^bb0(%a: f32, %o: f32): %s = arith.mulf %a, %a : f32 linalg.yield %s : f32",
    )  # fmt: skip
    return f"""func.func @main(%x: tensor<4x64xf32>) -> (tensor<4x64xf32>, tensor<4x64xf32>) {{
      %e = tensor.empty() : tensor<4x64xf32>
      %y = {double}
      %z = {square}
      return {other}, %z : tensor<4x64xf32>, tensor<4x64xf32>
    }}"""


def test_one_kernel_leaves_both_results(emitters: None) -> None:
    module = lowered(two_readers("%y"), to="dispatches")
    assert kernel_ops(module) == {"kernel_elementwise_0": 2}
    x = numbers(4, 64)
    y, z = run_plan(lowered(two_readers("%y")), [x])
    np.testing.assert_array_equal(y, x + x)
    np.testing.assert_array_equal(z, (x + x) * (x + x))


def test_groups_that_no_emitter_takes_fall_apart() -> None:
    assert kernel_ops(lowered(two_readers("%y"), to="dispatches")) == {"kernel_elementwise_0": 1, "kernel_elementwise_1": 1}


def test_control_flow_between_kernels_is_refused() -> None:
    module = ir.Module.parse("""func.func @main(%x: memref<i1>) {
      %b = memref.load %x[] : memref<i1>
      scf.if %b {
        memref.store %b, %x[] : memref<i1>
      }
      return
    }""")
    with pytest.raises(StageError, match="control flow") as refused:
        InlineLaunches().apply(module)
    assert refused.value.op == "scf.if"
