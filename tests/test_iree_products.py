"""Products of weights as kernels of our own inside IREE's modules for processors: which are ours, and are they right?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import mlirstack as ms
from mlirstack.bindings import ir, new_context
from mlirstack.ir.ops import function
from mlirstack.passes import abi
from mlirstack.passes.grouping import dependences
from mlirstack.passes.iree.embedded_kernels import kernels_of
from mlirstack.passes.iree.products import product_groups
from mlirstack.schedules.cpu.blocks import blocks_of, product_block
from mlirstack.schedules.cpu.register_tile import Registers


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Products(nn.Module):
    """Weights as layers have them and the other way round, one for each matrix of a batch; odd sizes, one row, no rows;
    left-hand sides turned; elementwise ops behind, over other axes than those of the product; a sum that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(77, 65)
        self.plain = nn.Parameter(random(65, 150, seed=1))
        self.batch = nn.Parameter(random(2, 40, 50, seed=2))
        self.square = nn.Parameter(random(200, 200, seed=3))
        self.large = nn.Parameter(random(1025, 33, seed=4))

    def forward(self, x: Tensor, y: Tensor, z: Tensor, v: Tensor, t: Tensor) -> tuple[Tensor, ...]:
        hidden = functional.gelu(self.layer(x))
        total = hidden @ self.plain + y
        matrices = torch.bmm(z, self.batch).relu()
        row = functional.linear(v, self.square)
        return total, total.softmax(-1), matrices, row, t.t() @ self.large, self.layer(x[:0])


INPUTS = (
    random(3, 7, 77),
    random(3, 7, 150, seed=5),
    random(2, 33, 40, seed=6),
    random(200, seed=7),
    random(1025, 17, seed=8),
)


@pytest.mark.target
def test_products_of_every_kind() -> None:
    model = Products()
    compiled = ms.compile(model, INPUTS, target="iree-cpu:x86-64-v3", threads=2)

    results = compiled(*INPUTS)

    with torch.no_grad():
        expected = model.double()(*(value.double() for value in INPUTS))
    for result, exact in zip(results, expected, strict=True):
        assert result.shape == exact.shape
        assert float((result.double() - exact).norm()) <= 1e-6 * float(exact.norm())
    names = [name for described in kernels_of(compiled.lowering.payload) or [] for name in described["exports"]]
    assert sorted(names) == [*(f"kernel_contraction_{n}" for n in range(5)), "kernel_reduction_0"]


@pytest.mark.target
def test_sixteen_bits_are_multiplied_as_f32() -> None:
    model = nn.Sequential(nn.Linear(70, 130), nn.GELU()).bfloat16()
    x = random(33, 70, dtype=torch.bfloat16)
    compiled = ms.compile(model, (x,), target="iree-cpu:x86-64-v4")

    result = compiled(x)

    with torch.no_grad():
        expected = model.double()(x.double())
    assert float((result.double() - expected).norm()) < 4e-3 * float(expected.norm())
    [kernels] = kernels_of(compiled.lowering.payload) or []
    assert kernels["exports"] == {"kernel_contraction_0": {"bindings": 4, "constants": 0}}
    assert set(kernels["code"]) == {"kernel_contraction_0", "mlirstack_kernel_contraction_0"}
    assert "zmm" in compiled.lowering["asm"].text


@pytest.mark.parametrize(
    ("rows", "columns", "sums", "bits", "ours"),
    [
        ("1", 256, 256, 256, True),
        ("1", 256, 256, 512, True),
        ("8", 1024, 4096, 256, False),  # few rows of a weight from memory
        ("8", 512, 512, 256, True),
        ("12", 1024, 4096, 256, True),
        ("16", 1024, 4096, 256, False),
        ("8", 1024, 4096, 512, True),
        ("512", 1024, 256, 256, True),
        ("512", 1024, 256, 512, False),  # a large result of short sums
        ("512", 1024, 1024, 512, True),
        ("33", 12, 1000, 512, False),  # fewer columns than a register has
        ("33", 12, 1000, 256, True),
        ("8", 16, 16, 256, False),  # hardly any work
        ("?", 256, 256, 256, False),
    ],
)
def test_sizes_that_are_ours(rows: str, columns: int, sums: int, bits: int, ours: bool) -> None:
    assert len(groups(rows, columns, sums, bits)) == ours
    # What comes with the call is packed in it, which enough rows pay for.
    assert len(groups(rows, columns, sums, bits, weight="")) == (ours and int(rows) >= 128)


def groups(rows: str, columns: int, sums: int, bits: int, weight: str = '{mlirstack.parameter = "w"}') -> list[Any]:
    """What is ours of a product of a weight."""
    x, w, y = f"tensor<{rows}x{sums}xf32>", f"tensor<{sums}x{columns}xf32>", f"tensor<{rows}x{columns}xf32>"
    text = f"""
func.func @main(%x: {x}, %w: {w} {weight}, %empty: {y}) -> {y} {{
  %zero = arith.constant 0.0 : f32
  %init = linalg.fill ins(%zero : f32) outs(%empty : {y}) -> {y}
  %y = linalg.matmul ins(%x, %w : {x}, {w}) outs(%init : {y}) -> {y}
  return %y : {y}
}}"""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        main = function(module, abi.MAIN)
        ops = [op.operation for op in main.regions[0].blocks[0].operations][:-1]
        return product_groups(main, dependences(ops), bits)


@pytest.mark.parametrize("bits", [256, 512])
def test_blocks_are_whole_and_cover_the_result(bits: int) -> None:
    registers = Registers.of(bits, 32)
    for rows in (1, 2, 7, 8, 33, 171, 512, 1025):
        for columns in (16, 33, 96, 130, 1025, 4096):
            block = product_block(rows, columns, 512, registers, row_bytes=2048, batch=1)
            assert block is not None
            assert block.rows <= rows
            assert block.columns <= columns
            assert block.rows % block.tile_rows == block.columns % block.tile_columns == 0
            computed = blocks_of(rows, block.rows) * block.rows * blocks_of(columns, block.columns) * block.columns
            assert rows * columns <= computed <= 2 * rows * columns
            # Accumulators, a row of the right-hand side, and an element of the left-hand side.
            vectors = block.tile_columns // registers.lanes
            assert (block.tile_rows + 1) * vectors < registers.count
    assert product_block(64, registers.lanes - 1, 512, registers, row_bytes=2048, batch=1) is None


def test_large_products_have_blocks_for_threads() -> None:
    for rows, columns, sums, batch in ((128, 128, 4096, 1), (8, 2048, 2048, 1), (64, 64, 1024, 16), (512, 2048, 2048, 1)):
        block = product_block(rows, columns, sums, Registers.of(256, 32), row_bytes=4 * sums, batch=batch)
        assert block is not None
        assert batch * blocks_of(rows, block.rows) * blocks_of(columns, block.columns) >= 16
