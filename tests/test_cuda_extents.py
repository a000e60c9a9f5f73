"""Kernels whose number of rows is known at run time only: which graphs have such a size, what it can be, and, on the
emulator, what kernels compute for several sizes inside of IREE's modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from iree_on_simt import run_program
from torch import Tensor, nn

import mlirstack as ms
from mlirstack.bindings import ir, new_context
from mlirstack.ir.ops import function, walk
from mlirstack.ir.text import parse_module
from mlirstack.lowering import Lowering
from mlirstack.passes.iree.program import hide_program, left_alone, packed_program
from mlirstack.passes.iree.results import RESULT_SIZES
from mlirstack.passes.sizes import MOST, most_of, origin
from mlirstack.schedules.cuda.device import DEVICES
from mlirstack.schedules.cuda.emitter import choose
from mlirstack.schedules.cuda.extent import Extent, ceil_div, is_multiple, times
from mlirstack.schedules.cuda.graph import KernelGraph

# ------------------------------------------------------------------------------------------------------------------ sizes

_SIZES = f"""func.func @main(%x: tensor<?x8xf32> {{{MOST} = array<i64: 100, 8>}}, %y: tensor<?xf32>)
    -> (index, index, index) {{
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %flat = tensor.collapse_shape %x [[0, 1]] : tensor<?x8xf32> into tensor<?xf32>
  %elements = tensor.dim %flat, %c0 : tensor<?xf32>
  %rows = arith.divsi %elements, %c8 : index
  %made = tensor.empty(%rows) : tensor<?x3xf32>
  %again = tensor.dim %made, %c0 : tensor<?x3xf32>
  %other = tensor.dim %y, %c0 : tensor<?xf32>
  %counted = arith.muli %n, %c8 : index
  %back = arith.divsi %counted, %c8 : index
  return %again, %other, %back : index, index, index
}}"""


_KEPT: list[Any] = []  # modules whose ops tests refer to


def main_of(text: str) -> Any:
    _KEPT.append(parse_module(text, new_context()))
    return function(_KEPT[-1], "main")


_SCALED = """func.func @main(%x: tensor<SIZEx8xf32>, %n: i64, %out: tensor<SIZEx8xf32>) -> tensor<SIZEx8xf32> {
  %c2 = arith.constant 2.0 : f32
  %number = arith.sitofp %n : i64 to f32
  %y = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<SIZEx8xf32>) outs(%out : tensor<SIZEx8xf32>) {
    ^bb0(%in: f32, %old: f32):
      %r = arith.mulf %in, FACTOR : f32
      linalg.yield %r : f32
  } -> tensor<SIZEx8xf32>
  return %y : tensor<SIZEx8xf32>
}"""


@pytest.mark.parametrize("size", ["?", "64"])
def test_kernels_are_given_no_numbers_that_the_program_reads(size: str) -> None:
    """The general mapping takes them; it failed in the middle of a lowering before."""
    scaled = _SCALED.replace("SIZE", size)
    for factor, taken in (("%number", False), ("%c2", True)):
        main = main_of(scaled.replace("FACTOR", factor))
        with main.context:
            assert (choose(KernelGraph.of(main), DEVICES["sm_90a"]) is not None) == taken


def test_the_most_that_a_size_can_be_is_followed_through_reshapes() -> None:
    main = main_of(_SIZES)
    by_name = {op.name: op for op in walk(main)}
    made = by_name["tensor.empty"].results[0]
    x, y = main.arguments
    assert most_of(by_name["tensor.collapse_shape"].results[0], 0) == 800
    assert (most_of(made, 0), most_of(made, 1), most_of(x, 0), most_of(y, 0)) == (100, 3, 100, None)


def test_sizes_of_one_origin_are_the_same() -> None:
    main = main_of(_SIZES)
    again, other, back = next(op for op in walk(main) if op.name == "func.return").operands
    x, y = main.arguments
    assert (origin(back), origin(other)) == ((x, 0), (y, 0))
    assert origin(again) != origin(other)


def test_arithmetic_on_extents() -> None:
    n = Extent(main_of(_SIZES).arguments[0], 0)
    assert ceil_div(times(n, 64), 4) == times(n, 16)
    assert is_multiple(times(n, 64), 32) and not is_multiple(n, 2)
    blocks = times(ceil_div(n, 128), 3)
    assert (blocks, is_multiple(blocks, 3)) == (Extent(n.value, 0, unit=128, count=3), True)
    assert (ceil_div(130, 128), times(2, 3)) == (2, 6)


# ----------------------------------------------------------------------------------------------------------------- graphs


def graph(kinds: Sequence[str], maps: Sequence[str]) -> KernelGraph:
    """A sum of two tensors."""
    main = main_of(
        f"""func.func @main(%x: {kinds[0]}, %y: {kinds[1]}, %z: {kinds[2]}) -> {kinds[2]} {{
          %0 = linalg.generic {{indexing_maps = [{", ".join(f"affine_map<(a, b) -> ({m})>" for m in maps)}],
            iterator_types = ["parallel", "parallel"]}} ins(%x, %y : {kinds[0]}, {kinds[1]}) outs(%z : {kinds[2]}) {{
          ^bb0(%p: f32, %q: f32, %o: f32):
            %s = arith.addf %p, %q : f32
            linalg.yield %s : f32
          }} -> {kinds[2]}
          return %0 : {kinds[2]} }}"""
    )
    return KernelGraph.of(main)


def test_rows_are_taken_where_their_number_varies() -> None:
    found = graph(["tensor<?x8xf32>", "tensor<8xf32>", "tensor<?x8xf32>"], ["a, b", "b", "a, b"])
    bounded = found.bounded()
    assert bounded is not None and bounded.extent is not None and bounded.extent.axis == 0
    with _KEPT[-1].context:
        choice = choose(found, DEVICES["sm_90a"])
    assert choice is not None and choice.name == "elementwise"


@pytest.mark.parametrize(
    ("kinds", "maps"),
    [
        (["tensor<8x?xf32>", "tensor<8xf32>", "tensor<8x?xf32>"], ["a, b", "a", "a, b"]),  # not the outermost
        (["tensor<?x?xf32>", "tensor<?xf32>", "tensor<?x?xf32>"], ["a, b", "b", "a, b"]),  # two of them
        (["tensor<?x8xf32>", "tensor<?x8xf32>", "tensor<8x?xf32>"], ["a, b", "a, b", "b, a"]),  # transposed
    ],
)
def test_what_needs_a_stride_that_varies_is_left_alone(kinds: Sequence[str], maps: Sequence[str]) -> None:
    found = graph(kinds, maps)
    assert found.bounded() is None and choose(found, DEVICES["sm_90a"]) is None


# --------------------------------------------------------------------------------------------------- programs, by emulator


class Block(nn.Module):
    """A layer with ReLU, a norm and a softmax: a product, its epilogue, rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(64, 96), nn.LayerNorm(96)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.norm(torch.relu(self.layer(x))), -1)


class Gate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) * x


def random(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[0])).to(dtype)


def lower(model: nn.Module, x: Tensor, *, most: int | None) -> Lowering:
    batch = torch.export.Dim("batch", min=1, max=most)
    return ms.lower(model.eval(), (x,), dynamic_shapes=({0: batch},), target="iree-cuda:sm_90", to="program")


def check(lowering: Lowering, exact: Callable[[Tensor], Tensor], inputs: Sequence[Tensor], tolerance: float) -> None:
    assert not any(op.name.startswith("linalg.") for op in walk(lowering.payload)), "nothing is left for IREE"
    for x in inputs:
        (result,), expected = run_program(lowering, (x,)), exact(x.double())
        error = float((result.double() - expected).norm() / expected.norm())
        assert error < tolerance, f"batch {len(x)}: relative error {error:.1e}"


@pytest.mark.target
@pytest.mark.parametrize(
    ("dtype", "emitter", "tolerance"),
    [
        (torch.float16, "gemm_wgmma", 2e-3),  # tensor maps that the device makes, over the rows that there are
        (torch.float32, "gemm_fma", 2e-6),
    ],
)
@torch.no_grad()
def test_one_compilation_for_all_sizes_of_a_batch(dtype: torch.dtype, emitter: str, tolerance: float) -> None:
    torch.manual_seed(0)
    model = Block().to(dtype)
    lowering = lower(model, random(4, 64, dtype=dtype), most=70)
    chosen = re.findall(r'name = "(\w+)"', lowering["dispatches"].text)
    assert chosen == [emitter, "rows"]
    exact = Block().double()
    exact.load_state_dict(model.state_dict())
    check(lowering, exact, [random(size, 64, dtype=dtype) for size in (1, 7, 33, 70)], tolerance)


@pytest.mark.target
def test_a_batch_without_a_limit_has_indices_of_64_bits() -> None:
    lowering = lower(Gate(), random(4, 3, 5, dtype=torch.float32), most=None)
    sizes = ir.StringAttr(function(lowering.payload, "main").attributes[RESULT_SIZES]).value
    assert sizes == "[[[0, 0], 3, 5]]", "the caller knows how large the result is, and has memory for it"
    (export,) = [op for op in walk(lowering.payload) if op.name == "hal.executable.export"]
    assert "constants = 2" in str(export.attributes["layout"])  # the words of one number
    check(lowering, Gate(), [random(size, 3, 5, dtype=torch.float32) for size in (1, 33)], 1e-6)


def test_what_is_left_to_iree_is_named() -> None:
    module = main_of(
        """func.func @main(%x: tensor<4x?xf32>, %n: index) -> tensor<4x?xf32> {
          %0 = tensor.empty(%n) : tensor<4x?xf32>
          %1 = linalg.copy ins(%x : tensor<4x?xf32>) outs(%0 : tensor<4x?xf32>) -> tensor<4x?xf32>
          %2 = linalg.copy ins(%1 : tensor<4x?xf32>) outs(%0 : tensor<4x?xf32>) -> tensor<4x?xf32>
          return %2 : tensor<4x?xf32> }"""
    ).parent.opview
    with module.context:
        hide_program(module)
        assert left_alone(packed_program(module)) == "linalg.copy tensor<4x?xf32> (2)"
    assert left_alone("") == ""
