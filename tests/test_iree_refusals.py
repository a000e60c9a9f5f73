"""Programs that IREE's compiler refused, or died of, on target iree-cpu: found by random graphs, as tests of their kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from several import Several, assert_as_eager
from torch import Tensor, nn
from torch.nn import functional as F

import mlirstack as ms
from mlirstack.bindings import ir, new_context
from mlirstack.frontend.mlir_source import load_mlir
from mlirstack.passes.iree.joins import hold_joined_elements
from mlirstack.passes.iree.stretched import hold_stretched_factors
from mlirstack.passes.iree.transposes import hold_transposed_results

pytestmark = pytest.mark.target


def test_a_factor_may_be_stretched_along_a_loop_that_the_other_has_not() -> None:
    """IREE's compiler died where one product stands in the result several times over: a class token, latent vectors."""
    programs = {
        "row": lambda x, y, z, w: x.expand(5, 8) @ y,
        "computed": lambda x, y, z, w: (x * 2).repeat(5, 1) @ y,
        "column": lambda x, y, z, w: y.T @ x.expand(5, 8).T,
        "both": lambda x, y, z, w: x.expand(5, 8) @ x.expand(3, 8).T,
        "class token": lambda x, y, z, w: F.linear(x.expand(5, 1, 8), y.T).relu(),
        "latent vectors": lambda x, y, z, w: F.linear(w[0].T.expand(5, 7, 8), y.T),
        "of each matrix": lambda x, y, z, w: z.expand(3, 5, 8) @ w,
        "joined": lambda x, y, z, w: z.expand(3, 5, 8).reshape(15, 8) @ y,
        "split": lambda x, y, z, w: x.expand(6, 8).reshape(3, 2, 8) @ w,
        "both batches": lambda x, y, z, w: (y.T.expand(5, 9, 8) @ y.expand(5, 8, 9)).sum(-1),
        "converted": lambda x, y, z, w: x.half().expand(5, 8).to(x.dtype) @ y,
        "pixels": lambda x, y, z, w: F.conv2d(x[None, :, None, None].expand(1, 8, 3, 5), y.T[:, :, None, None]),
        "with windows": lambda x, y, z, w: F.conv1d(x[None, :, None].expand(2, 8, 5), w, padding=2),
    }
    generator = torch.Generator().manual_seed(0)
    shapes = (8,), (8, 9), (3, 1, 8), (3, 8, 7)
    operands = [torch.randn(shape, generator=generator) for shape in shapes]
    for route in ("tosa", "linalg"):
        assert_as_eager(programs, *operands, route=route, target="iree-cpu")


class ClassToken(nn.Module):
    """A query of the model's own for each of the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8, generator=torch.Generator().manual_seed(0)))
        self.query = nn.Linear(8, 12)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, 12) → (batch, 1, 12)."""
        return F.scaled_dot_product_attention(self.query(self.token.expand(x.shape[0], -1, -1)), x, x)


def test_a_class_token_is_stretched_to_any_batch() -> None:
    model = ClassToken().eval()
    x = torch.randn(5, 4, 12, generator=torch.Generator().manual_seed(1))
    for shapes in (None, ({0: torch.export.Dim("batch", max=99)},)):
        function = ms.compile(model, (x,), target="iree-cpu", dynamic_shapes=shapes)
        for batch in (5,) if shapes is None else (1, 2, 5):
            torch.testing.assert_close(function(x[:batch]), model(x[:batch]))


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (lambda x, y: x.expand(5, 8) @ y[0], 1),
        (lambda x, y: y[0].T.expand(5, 7, 8) @ y[0].expand(5, 8, 7), 1),
        (lambda x, y: y[0].T.expand(3, 7, 8) @ y, 0),  # it is read where it lies
        (lambda x, y: x.expand(1, 8) @ y[0], 0),
        (lambda x, y: F.linear(y.mT + x, y[0].T), 0),
        (lambda x, y: F.scaled_dot_product_attention(y.mT[:1].expand(3, 7, 8), y.mT, y.mT), 0),
        (lambda x, y: (y > 0).max(1).indices.T.contiguous(), 1),
        (lambda x, y: (y > 0).max(1).indices + 1, 0),
        (lambda x, y: torch.stack((x[1], x[2])) + 1, 0),
        (lambda x, y: torch.stack((x[1], x[2]))[:, None] * y[0, :2], 2),
    ],
)
def test_only_what_was_refused_is_held(program: Callable[..., Tensor], count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    operands = torch.randn(8, generator=generator), torch.randn(3, 8, 7, generator=generator)
    text = ms.lower(Several({"": program}), operands, target="iree-cpu", route="linalg", to="prepared")["prepared"].text
    with new_context():
        module = ir.Module.parse(text)
        hold_stretched_factors(module)
        hold_joined_elements(module)
        hold_transposed_results(module)
        assert str(module).count("util.optimization_barrier") == count


def test_single_elements_are_joined() -> None:
    """IREE made a slice without dimensions of them, which it could not join."""
    programs = {
        "column": lambda x, y: torch.cat((x[1:2, None], x[3:4, None])) + 1,
        "with others": lambda x, y: torch.cat((y[:, :1], x[1:2, None], x[3:6, None])),
        "more dimensions": lambda x, y: torch.cat((x[1:2, None, None], x[3:4, None, None])) * 2,
        "beside": lambda x, y: torch.cat((x[1:2, None], x[3:4, None]), 1) + 1,
        "of a row": lambda x, y: torch.cat((y[1, :1][:, None], y[2, 1:2][:, None])).cumsum(0),
        "computed": lambda x, y: torch.cat(((x * 2)[1:2, None], (x * 2)[3:4, None])) + 1,
        "stretched": lambda x, y: torch.stack((x[1:2], x[1:2])).add(x[1:2]).cumsum(0),
        "rows": lambda x, y: torch.cat((y[1:2, None, None], y[2:3, None, None])) + 1,
    }
    generator = torch.Generator().manual_seed(0)
    operands = torch.randn(8, generator=generator), torch.randn(4, 3, generator=generator)
    assert_as_eager(programs, *operands, route="linalg", target="iree-cpu")


PLACES = """
#all = affine_map<(i, j, k) -> (i, j, k)>
#kept = affine_map<(i, j, k) -> (i, k)>
#element = affine_map<(i, j) -> (i, j)>
func.func @main(%x: tensor<4x5x6xi32>) -> tensor<6x4xi32> {
  %least = arith.constant -2147483648 : i32
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<4x6xi32>
  %transposed = tensor.empty() : tensor<6x4xi32>
  %from = linalg.fill ins(%zero : i32) outs(%empty : tensor<4x6xi32>) -> tensor<4x6xi32>
  %lowest = linalg.fill ins(%least : i32) outs(%empty : tensor<4x6xi32>) -> tensor<4x6xi32>
  %found:2 = linalg.generic {indexing_maps = [#all, #kept, #kept], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<4x5x6xi32>) outs(%from, %lowest : tensor<4x6xi32>, tensor<4x6xi32>) {
  ^bb0(%new: i32, %place: i32, %largest: i32):
    %index = linalg.index 1 : index
    %here = arith.index_cast %index : index to i32
    %is_larger = arith.cmpi sgt, %new, %largest : i32
    %next = arith.select %is_larger, %here, %place : i32
    %maximum = arith.maxsi %new, %largest : i32
    linalg.yield %next, %maximum : i32, i32
  } -> (tensor<4x6xi32>, tensor<4x6xi32>)
  %places = linalg.transpose ins(%found#0 : tensor<4x6xi32>) outs(%transposed : tensor<6x4xi32>) permutation = [1, 0]
  %values = linalg.transpose ins(%found#OTHER : tensor<4x6xi32>) outs(%transposed : tensor<6x4xi32>) permutation = [1, 0]
  %y = linalg.generic {indexing_maps = [#element, #element, #element], iterator_types = ["parallel", "parallel"]}
      ins(%places, %values : tensor<6x4xi32>, tensor<6x4xi32>) outs(%transposed : tensor<6x4xi32>) {
  ^bb0(%a: i32, %b: i32, %out: i32):
    %sum = arith.addi %a, %b : i32
    linalg.yield %sum : i32
  } -> tensor<6x4xi32>
  return %y : tensor<6x4xi32>
}
"""


@pytest.mark.parametrize("other", ["0", "1"])
def test_results_of_one_op_are_transposed(other: str, tmp_path: Path) -> None:
    """IREE transposed one of them, and forgot the others."""
    path = tmp_path / "places.mlir"
    path.write_text(PLACES.replace("OTHER", other))
    x = torch.randint(99, (4, 5, 6), generator=torch.Generator().manual_seed(0)).int()
    values, places = x.max(1)
    expected = places.int().T + (places.int() if other == "0" else values).T
    assert torch.equal(ms.compile(load_mlir(path), target="iree-cpu")(x), expected)
