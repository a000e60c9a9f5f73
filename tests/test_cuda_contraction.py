"""Matrix products found in kernel graphs: sizes, strides, batches, what comes after; and graphs that are something else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cuda_products import Product, graph_of

from mlirstack.bindings import ir, new_context
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.product.access import Digit
from mlirstack.schedules.cuda.product.contraction import PRODUCT, Contraction, Result, match_contraction

pytestmark = pytest.mark.portable


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context(), ir.Location.unknown():
        yield


def matched(text: str) -> Contraction | None:
    module = ir.Module.parse(text)
    return match_contraction(graph_of(module))


def product(*arguments: Any, **options: Any) -> Contraction:
    found = matched(Product(*arguments, **options).text())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("a", "b", "strides_a", "strides_b"),
    [
        ("mk", "nk", (5, 1), (5, 1)),
        ("mk", "kn", (5, 1), (1, 4)),
        ("km", "nk", (1, 3), (5, 1)),
        ("km", "kn", (1, 3), (1, 4)),
    ],
)
def test_layouts(a: str, b: str, strides_a: tuple[int, int], strides_b: tuple[int, int]) -> None:
    found = product(3, 4, 5, a=a, b=b)
    assert (found.m, found.n, found.k, found.batches) == (3, 4, 5, ())
    assert (found.a.row_stride, found.a.k_stride) == strides_a
    assert (found.b.row_stride, found.b.k_stride) == strides_b
    assert (found.a.k_major, found.b.k_major) == (a == "mk", b == "nk")


def test_batches_that_both_factors_have_are_one_axis() -> None:
    found = product(3, 4, 5, batch=(2, 7))
    assert found.batches == (14,)
    assert (found.a.batch_strides, found.b.batch_strides) == ((15,), (20,))


def test_batch_of_a_shared_factor_is_more_rows() -> None:
    found = product(3, 4, 5, batch=(2, 7), shared=True)
    assert (found.m, found.batches) == (42, ())


def test_rows_that_are_no_single_loop_become_a_batch() -> None:
    found = product(3, 4, 5, a="km", batch=(2,), shared=True)
    assert (found.m, found.batches, found.a.batch_strides, found.b.batch_strides) == (3, (2,), (15,), (0,))


def test_epilogue_operands_are_places_in_the_result() -> None:
    found = product(3, 4, 5, bias=True, residual=True, activation="relu")
    (step,) = found.steps
    product_of, bias, residual, _ = step.sources
    assert product_of == PRODUCT
    assert (bias.row_stride(3), bias.column_stride(4)) == (0, 1)
    assert (residual.row_stride(3), residual.column_stride(4)) == (4, 1)
    assert [output.value for output in found.outputs] == [Result(0)]


def test_flops_count_all_batches() -> None:
    assert product(3, 4, 5, batch=(2,)).flops == 2 * 2 * 3 * 4 * 5


TEMPLATE = """
  module {{ func.func @main(%a: {a}, %b: {b}, %c: {c}) {{
    %zero = arith.constant 0.0 : f32
    %scale = arith.constant 0.5 : f32
    linalg.fill ins(%zero : f32) outs(%c : {c})
    linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} ins(%a, %b : {a}, {b}) outs(%c : {c}) {{
    ^bb0(%x: f32, %y: f32, %old: f32):
      {body}
      linalg.yield %sum : f32
    }}
    return }} }}"""
MULTIPLY_ADD = "%p = arith.mulf %x, %y : f32\n%sum = arith.addf %old, %p : f32"


def generic(a: str, b: str, c: str, maps: str, kinds: str, body: str = MULTIPLY_ADD) -> str:
    dims = ", ".join(f"d{i}" for i in range(len(kinds)))
    written = ", ".join(f"affine_map<({dims}) -> ({m})>" for m in maps.split(";"))
    names = ", ".join('"reduction"' if kind == "r" else '"parallel"' for kind in kinds)
    return TEMPLATE.format(
        a=f"memref<{a}xf32>", b=f"memref<{b}xf32>", c=f"memref<{c}xf32>", maps=written, kinds=names, body=body
    )


def test_factor_whose_rows_are_innermost_in_the_result_is_b() -> None:
    found = matched(generic("4x5", "3x5", "3x4", "d1, d2;d0, d2;d0, d1", "ppr"))
    assert found is not None
    assert (found.a.rows, found.b.rows) == (3, 4)


def test_several_loops_of_k_that_lie_one_in_the_other() -> None:
    found = matched(generic("3x2x5", "4x2x5", "3x4", "d0, d2, d3;d1, d2, d3;d0, d1", "pprr"))
    assert found is not None
    assert (found.k, found.a.row_stride, found.b.row_stride) == (10, 10, 10)


def test_heads_within_rows_are_a_batch_axis_of_their_own() -> None:
    # q[b, s, h, d] · k[b, t, h, d] → scores[b, h, s, t]
    found = matched(generic("2x6x3x8", "2x7x3x8", "2x3x6x7", "d0, d2, d1, d4;d0, d3, d1, d4;d0, d1, d2, d3", "ppppr"))
    assert found is not None
    assert (found.m, found.n, found.k, found.batches) == (6, 7, 8, (2, 3))
    assert (found.a.row_stride, found.a.batch_strides) == (24, (144, 8))


def test_constant_factor_is_taken_out_of_the_sum() -> None:
    body = "%s = arith.mulf %x, %scale : f32\n%p = arith.mulf %s, %y : f32\n%sum = arith.addf %p, %old : f32"
    found = matched(generic("3x5", "4x5", "3x4", "d0, d2;d1, d2;d0, d1", "ppr", body))
    assert found is not None
    assert found.scale == 0.5


def test_rows_in_two_pieces_are_digits() -> None:
    # rows (d0, d1) are one loop in a and c; the residual-like operand of the test below has them in another order
    text = """
      module { func.func @main(%a: memref<2x3x5xf32>, %b: memref<4x5xf32>, %r: memref<3x2x4xf32>, %c: memref<2x3x4xf32>) {
        %zero = arith.constant 0.0 : f32
        %t = memref.alloc() : memref<2x3x4xf32>
        linalg.fill ins(%zero : f32) outs(%t : memref<2x3x4xf32>)
        linalg.generic {indexing_maps = [affine_map<(i, j, n, k) -> (i, j, k)>, affine_map<(i, j, n, k) -> (n, k)>,
                                         affine_map<(i, j, n, k) -> (i, j, n)>],
                        iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
          ins(%a, %b : memref<2x3x5xf32>, memref<4x5xf32>) outs(%t : memref<2x3x4xf32>) {
        ^bb0(%x: f32, %y: f32, %old: f32):
          %p = arith.mulf %x, %y : f32
          %s = arith.addf %old, %p : f32
          linalg.yield %s : f32
        }
        linalg.generic {indexing_maps = [affine_map<(i, j, n) -> (i, j, n)>, affine_map<(i, j, n) -> (j, i, n)>,
                                         affine_map<(i, j, n) -> (i, j, n)>],
                        iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%t, %r : memref<2x3x4xf32>, memref<3x2x4xf32>) outs(%c : memref<2x3x4xf32>) {
        ^bb0(%x: f32, %y: f32, %old: f32):
          %s = arith.addf %x, %y : f32
          linalg.yield %s : f32
        }
        return } }"""
    found = matched(text)
    assert found is not None
    residual = found.steps[0].sources[1]
    assert residual.rows == (Digit(3, 2, 4), Digit(1, 3, 8))
    assert residual.row_stride(found.m) is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            generic("3x5", "4x5", "3x4", "d0, d2;d1, d2;d0, d1", "ppr", MULTIPLY_ADD.replace("mulf", "subf")), id="sub"
        ),
        pytest.param(
            generic("3x5", "4x5", "4x3", "d0, d2;d1, d2;d1, d0", "ppr", MULTIPLY_ADD.replace("%y", "%x")), id="square"
        ),
        pytest.param(generic("3x11", "4x5", "3x4", "d0, d2 + 2 * d1;d1, d2;d0, d1", "ppr"), id="window"),
        pytest.param(generic("3x2x5", "4x5x2", "3x4", "d0, d2, d3;d1, d3, d2;d0, d1", "pprr"), id="K in another order"),
        pytest.param(generic("3x0", "4x0", "3x4", "d0, d2;d1, d2;d0, d1", "ppr"), id="empty"),
    ],
)
def test_what_is_no_matrix_product(text: str) -> None:
    assert matched(text) is None


def test_two_products_are_not_one() -> None:
    module = ir.Module.parse(Product(3, 4, 5).text())
    graph = graph_of(module)
    assert match_contraction(KernelGraph([node.op for node in graph.nodes] * 2)) is None
