"""Packed contractions and convolutions: the form, the register tiles, the loops, the vectors."""

from __future__ import annotations

from typing import Any

import pytest

from mlirstack.bindings import new_context
from mlirstack.ir.ops import first_op, function, walk
from mlirstack.ir.text import parse_module
from mlirstack.pipeline.runner import run_steps
from mlirstack.pipeline.step import Pass, Step
from mlirstack.schedules.contractions import contraction
from mlirstack.schedules.cpu.contraction import packed_loops
from mlirstack.schedules.cpu.direct import direct_loops
from mlirstack.schedules.cpu.loops import cut
from mlirstack.schedules.cpu.packing import PackContractions
from mlirstack.schedules.cpu.register_tile import Registers, RegisterTile, register_tile
from mlirstack.schedules.cpu.tiling import TileKernels
from mlirstack.schedules.cpu.unit_loops import DropUnitLoops
from mlirstack.schedules.cpu.vectorize import VectorizeKernels
from mlirstack.schedules.linalg_ops import linalg_ops

pytestmark = pytest.mark.portable

AVX2, AVX512 = Registers.of(256, 32), Registers.of(512, 32)
CLEAN = (Pass("canonicalize"), Pass("cse"))


def matmul(rows: int, columns: int, sums: int, *, epilogue: bool = False, mark: str = "") -> str:
    """``@main``: a matmul over a filled result, a bias added behind it on request; ``mark`` is an attribute of B."""
    a, b, c = f"tensor<{rows}x{sums}xf32>", f"tensor<{sums}x{columns}xf32>", f"tensor<{rows}x{columns}xf32>"
    bias = f"tensor<{columns}xf32>"
    identity = "affine_map<(m, n) -> (m, n)>"
    add = f"""
      %s = linalg.generic {{indexing_maps = [{identity}, affine_map<(m, n) -> (n)>, {identity}],
                            iterator_types = ["parallel", "parallel"]}}
          ins(%r, %bias : {c}, {bias}) outs(%e : {c}) {{
        ^bb0(%x: f32, %y: f32, %out: f32):
          %t = arith.addf %x, %y : f32
          linalg.yield %t : f32 }} -> {c}"""
    return f"""
    func.func @main(%a: {a}, %b: {b} {mark}, %bias: {bias}) -> {c} attributes {{mlirstack.kernel = "contraction"}} {{
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : {c}
      %f = linalg.fill ins(%zero : f32) outs(%e : {c}) -> {c}
      %r = linalg.matmul ins(%a, %b : {a}, {b}) outs(%f : {c}) -> {c}
      {add if epilogue else ""}
      return {"%s" if epilogue else "%r"} : {c}
    }}"""


def convolution(stride: int) -> str:
    """``@main``: a 3x3 convolution, channels last, of an image that gives 8x8 x 32."""
    size = 7 * stride + 3
    x, w, y = f"tensor<1x{size}x{size}x16xf32>", "tensor<3x3x16x32xf32>", "tensor<1x8x8x32xf32>"
    return f"""
    func.func @main(%x: {x}, %w: {w}, %init: {y}) -> {y} attributes {{mlirstack.kernel = "convolution"}} {{
      %r = linalg.conv_2d_nhwc_hwcf {{strides = dense<{stride}> : vector<2xi64>}}
          ins(%x, %w : {x}, {w}) outs(%init : {y}) -> {y}
      return %r : {y}
    }}"""


def lower(text: str, *steps: Step) -> Any:
    """The module ``text`` after ``steps``."""
    module = parse_module(text, new_context())
    run_steps(steps, module)
    return module


def test_a_product_that_stands_in_the_result_several_times_is_none() -> None:
    """A loop of the result alone was taken for columns, which B does not have."""
    maps = "affine_map<(t, m, n, k) -> (m, k)>, affine_map<(t, m, n, k) -> (k, n)>, affine_map<(t, m, n, k) -> (t, m, n)>"
    module = lower(f"""
    func.func @main(%a: tensor<5x7xf32>, %b: tensor<7x9xf32>, %c: tensor<3x5x9xf32>) -> tensor<3x5x9xf32>
        attributes {{mlirstack.kernel = "contraction"}} {{
      %r = linalg.generic {{indexing_maps = [{maps}],
          iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
          ins(%a, %b : tensor<5x7xf32>, tensor<7x9xf32>) outs(%c : tensor<3x5x9xf32>) {{
        ^bb0(%x: f32, %y: f32, %sum: f32):
          %p = arith.mulf %x, %y : f32
          %s = arith.addf %sum, %p : f32
          linalg.yield %s : f32 }} -> tensor<3x5x9xf32>
      return %r : tensor<3x5x9xf32>
    }}""")
    assert [contraction(op) for op in linalg_ops(function(module, "main"))] == [None]
    run_steps([PackContractions()], module)
    assert [op.name for op in walk(module)].count("linalg.generic") == 1


@pytest.mark.parametrize(
    ("rows", "columns", "registers", "tile"),
    [
        (512, 512, AVX2, RegisterTile(4, 16)),
        (600, 512, AVX2, RegisterTile(6, 16)),
        (512, 512, AVX512, RegisterTile(8, 32)),
        (56, 64, AVX512, RegisterTile(14, 32)),
        (512, 16, AVX512, RegisterTile(16, 16)),
        (1, 1024, AVX512, RegisterTile(1, 128)),
        (512, 10, AVX512, RegisterTile(16, 16)),
    ],
)
def test_register_tiles(rows: int, columns: int, registers: Registers, tile: RegisterTile) -> None:
    assert register_tile(rows, columns, registers) == tile


@pytest.mark.parametrize("columns", [*range(1, 70), 100, 1000, 1025])
def test_panels_are_powers_of_two_and_tiles_fit_the_registers(columns: int) -> None:
    for rows in (1, 2, 7, 33, 197, 512):
        for registers in (AVX2, AVX512):
            tile = register_tile(rows, columns, registers)
            wide = -(-tile.columns // registers.lanes)
            assert tile.columns & (tile.columns - 1) == 0
            assert 1 <= tile.rows <= rows
            assert tile.rows * wide < registers.count


@pytest.mark.parametrize("size", range(1, 80))
@pytest.mark.parametrize("powers_of_two", [True, False])
def test_pieces_cover_a_loop(size: int, powers_of_two: bool) -> None:
    pieces = cut(size, min(32, size), powers_of_two=powers_of_two)
    assert sum(length for length, _ in pieces) == size
    assert all(length % tile == 0 for length, tile in pieces)
    if powers_of_two:
        assert all(tile <= 3 or tile & (tile - 1) == 0 for _, tile in pieces)


def test_packing_reshapes_the_result_and_copies_b_into_panels() -> None:
    module = lower(matmul(64, 96, 50), PackContractions(256), *CLEAN)
    copy, product = [op for op in linalg_ops(module) if op.name == "linalg.generic"]
    assert copy.shape == (6, 50, 16)
    assert packed_loops(product) is not None
    assert product.outputs[0].shape == (16, 4, 6, 16)
    assert product.inputs[0].shape == (16, 4, 50)
    assert first_op(module, lambda op: op.name in ("linalg.pack", "linalg.unpack", "tensor.pad")) is None


def test_what_follows_a_contraction_takes_its_shape() -> None:
    module = lower(matmul(64, 96, 50, epilogue=True), PackContractions(256), *CLEAN)
    last = linalg_ops(module)[-1]
    assert last.shape == (16, 4, 6, 16)
    assert [op.name for op in walk(module)][-2:] == ["tensor.collapse_shape", "func.return"]


def test_columns_that_no_panel_divides_are_padded() -> None:
    module = lower(matmul(64, 100, 50), PackContractions(512), *CLEAN)
    assert first_op(module, lambda op: op.name == "tensor.pad") is not None
    product = next(op for op in linalg_ops(module) if packed_loops(op))
    assert product.outputs[0].shape == (4, 16, 7, 16)


def test_rows_that_no_tile_divides_are_cut() -> None:
    module = lower(matmul(197, 64, 50), PackContractions(256), *CLEAN)
    products = [op for op in linalg_ops(module) if packed_loops(op)]
    assert sum(op.outputs[0].shape[0] * op.outputs[0].shape[1] for op in products) == 197
    assert len(products) == 2


@pytest.mark.parametrize(
    ("rows", "mark", "packs"), [(15, "", False), (4, "{mlirstack.prepared = 0 : i64}", True), (16, "", True)]
)
def test_a_copy_of_b_must_pay(rows: int, mark: str, packs: bool) -> None:
    module = lower(matmul(rows, 64, 64, mark=mark), PackContractions(256), *CLEAN)
    assert any(packed_loops(op) for op in linalg_ops(module)) == packs


def linear(rows: int, columns: int, sums: int) -> str:
    """As :func:`matmul`, of a B that lies as ``[columns, sums]`` and is transposed first, as weights are."""
    plain, turned = f"tensor<{sums}x{columns}xf32>", f"tensor<{columns}x{sums}xf32>"
    transpose = f"""
      %d = tensor.empty() : {plain}
      %turned = linalg.generic {{indexing_maps = [affine_map<(k, n) -> (n, k)>, affine_map<(k, n) -> (k, n)>],
                            iterator_types = ["parallel", "parallel"]}} ins(%b : {turned}) outs(%d : {plain}) {{
        ^bb0(%x: f32, %out: f32):
          linalg.yield %x : f32 }} -> {plain}
      %zero ="""
    text = matmul(rows, columns, sums, epilogue=True).replace(f"%b: {plain}", f"%b: {turned}")
    return text.replace("%zero =", transpose).replace("ins(%a, %b", "ins(%a, %turned")


def test_a_transpose_of_b_is_part_of_the_copy_into_panels() -> None:
    module = lower(linear(64, 96, 50), PackContractions(256), *CLEAN)
    copy, product, _ = [op for op in linalg_ops(module) if op.name == "linalg.generic"]
    assert copy.shape == (6, 50, 16)
    assert copy.inputs[0].dims == (0, 2, 1), "from [panel, column, sum], as B lies in memory"
    assert packed_loops(product) is not None


@pytest.mark.parametrize(
    ("rows", "partial"),
    [(1, "vector<8x16xf32>"), (4, "vector<4x6x16xf32>"), (7, "vector<7x4x16xf32>"), (64, "vector<4x6x16xf32>")],
)
def test_few_rows_read_a_transposed_b_as_it_lies(rows: int, partial: str) -> None:
    """No copy: dot products, as many at once as registers hold, each a vector along the summation."""
    steps = (PackContractions(512), *CLEAN)
    product, _ = [op for op in linalg_ops(lower(linear(rows, 96, 256), *steps)) if op.name == "linalg.generic"]
    assert [operand.shape for operand in product.inputs] == [(rows, 256), (96, 256)]
    vectors = lower(linear(rows, 96, 256), *steps, TileKernels(512), *CLEAN, VectorizeKernels())
    carried = [str(loop.results[0].type) for loop in walk(vectors) if loop.name == "scf.for"]
    assert [kind for kind in carried if kind.startswith("vector")] == [partial]


def test_few_rows_keep_their_results_in_registers_while_rows_of_b_pass() -> None:
    vectors = lower(matmul(4, 256, 64), PackContractions(512), *CLEAN, TileKernels(512), *CLEAN, VectorizeKernels())
    carried = [str(loop.results[0].type) for loop in walk(vectors) if loop.name == "scf.for"]
    assert [kind for kind in carried if kind.startswith("vector")] == ["vector<4x64xf32>"]


@pytest.mark.parametrize(
    ("rows", "columns", "tile"),
    [(1, 1024, (1, 8)), (7, 1024, (7, 4)), (16, 1024, (4, 4)), (13, 333, (13, 1)), (5, 7, (1, 7))],
)
def test_tiles_of_dot_products_divide_the_result(rows: int, columns: int, tile: tuple[int, int]) -> None:
    module = lower(linear(rows, columns, 256), PackContractions(512), *CLEAN)
    loops = direct_loops(next(op for op in linalg_ops(module) if contraction(op)), 512)
    assert loops is not None and loops.dots
    assert (loops.tile_rows, loops.tile_columns) == tile
    assert columns % loops.block == 0 and loops.block % loops.tile_columns == 0


def test_the_inner_loop_is_one_contraction_over_a_register_tile() -> None:
    steps = (PackContractions(256), *CLEAN, TileKernels(256))
    tiled = lower(matmul(512, 512, 512), *steps)
    product = next(op for op in linalg_ops(tiled) if contraction(op))
    assert sorted(size for size in product.shape if size > 1) == [4, 16]
    vectors = lower(matmul(512, 512, 512), *steps, VectorizeKernels())
    (contract,) = [op for op in walk(vectors) if op.name == "vector.contract"]
    assert str(contract.operands[2].type) in ("vector<4x16xf32>", "vector<4x1x16xf32>")
    loop = contract.parent
    assert loop.name == "scf.for" and loop.results[0].type == contract.results[0].type, "accumulators are loop variables"


def test_the_epilogue_runs_block_by_block() -> None:
    packed = "tensor<64x512x16xf32>"
    result, bias = "tensor<256x4x64x16xf32>", "tensor<64x16xf32>"
    maps = "affine_map<(mo, mi, no, ni) -> (mo, mi, no, ni)>", "affine_map<(mo, mi, no, ni) -> (no, ni)>"
    module = lower(
        f"""
    func.func @main(%a: tensor<256x4x512xf32>, %b: {packed}, %bias: {bias}, %init: {result}) -> {result}
        attributes {{mlirstack.kernel = "contraction"}} {{
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : {result}
      %f = linalg.fill ins(%zero : f32) outs(%e : {result}) -> {result}
      %r = linalg.generic {{indexing_maps = [affine_map<(mo, mi, no, ni, k) -> (mo, mi, k)>,
                                             affine_map<(mo, mi, no, ni, k) -> (no, k, ni)>,
                                             affine_map<(mo, mi, no, ni, k) -> (mo, mi, no, ni)>],
                            iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}}
          ins(%a, %b : tensor<256x4x512xf32>, {packed}) outs(%f : {result}) {{
        ^bb0(%x: f32, %y: f32, %out: f32):
          %p = arith.mulf %x, %y : f32
          %q = arith.addf %out, %p : f32
          linalg.yield %q : f32 }} -> {result}
      %s = linalg.generic {{indexing_maps = [{maps[0]}, {maps[1]}, {maps[0]}],
                            iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
          ins(%r, %bias : {result}, {bias}) outs(%init : {result}) {{
        ^bb0(%x: f32, %y: f32, %out: f32):
          %t = arith.addf %x, %y : f32
          linalg.yield %t : f32 }} -> {result}
      return %s : {result}
    }}""",
        TileKernels(256),
    )
    function = module.body.operations[0]
    (rows,) = [op for op in function.regions[0].blocks[0].operations if op.operation.name == "scf.for"]
    (columns,) = [op for op in rows.regions[0].blocks[0].operations if op.operation.name == "scf.for"]
    assert len(linalg_ops(columns)) == len(linalg_ops(module)) == 3, "fill, product and epilogue of one block"
    nests = [op for op in columns.regions[0].blocks[0].operations if op.operation.name == "scf.for"]
    assert len(nests) == 3


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_ends_in_the_same_inner_loop(stride: int) -> None:
    steps = (PackContractions(256), *CLEAN, TileKernels(256), DropUnitLoops(), *CLEAN, VectorizeKernels())
    module = lower(convolution(stride), *steps)
    (contract,) = [op for op in walk(module) if op.name == "vector.contract"]
    assert str(contract.operands[2].type) == "vector<4x16xf32>"
    assert not [op for op in walk(module) if op.name.startswith("linalg.conv")]
    slices = [op for op in walk(module) if op.name == "tensor.extract_slice"]
    assert max(step for op in slices for step in op.attributes["static_strides"]) == stride
