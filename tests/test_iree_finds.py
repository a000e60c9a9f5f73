"""What random graphs have found on target iree-cpu, as tests of its kind."""

from __future__ import annotations

import pytest
import torch
from several import assert_as_eager
from torch import Tensor, nn
from torch.nn import functional as F

import mlirstack as ms
from mlirstack.bindings import ir, new_context
from mlirstack.passes.iree.destinations import own_written_values
from mlirstack.passes.iree.readings import hold_shared_results

pytestmark = pytest.mark.target


def test_a_window_at_a_single_position_may_leave_the_end_of_the_image() -> None:
    """IREE folds unit dimensions as well, and failed, or read the wrong elements."""
    programs = {
        "1-d": lambda x, y: F.max_pool1d(x[0], 3, 3, 0, 2),
        "2-d": lambda x, y: F.max_pool2d(x[..., :1], (1, 2), (1, 3), (0, 1)),
        "3-d": lambda x, y: F.max_pool3d(y, (3, 1, 2), (3, 2, 1), (0, 0, 1), (1, 2, 1)),
        "mean": lambda x, y: F.avg_pool2d(x, (3, 1), 9),
        "convolution": lambda x, y: F.conv2d(x, torch.ones(2, 1, 3, 1).to(x), stride=(9, 1)),
    }
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(1, 1, 8, 6, generator=generator), torch.randn(1, 1, 4, 8, 5, generator=generator)
    assert_as_eager(programs, *images, route="linalg", target="iree-cpu")


def _with_transpose(y: Tensor) -> Tensor:
    return y - 2 * y.transpose(1, 2)


def test_an_op_may_read_a_reduction_in_two_ways() -> None:
    """IREE computed both readings from the tile of one."""
    programs = {
        "maximum": lambda x: _with_transpose(x.amax(-1, keepdim=True)),
        "softmax": lambda x: _with_transpose(x[:, :, :7].softmax(-1)),
        "behind relu": lambda x: _with_transpose(x.sum(-1, keepdim=True).relu()),
        "product": lambda x: _with_transpose((x @ x.transpose(1, 2)).relu()),
        "distances": lambda x: (x * x).sum(-1)[:, :, None] + (x * x).sum(-1)[:, None, :] - 2 * x @ x.transpose(1, 2),
        "pooling": lambda x: _with_transpose(F.max_pool1d(x, 33)),
        "a scalar that had dimensions": lambda x: (x.sum().reshape(1, 1) * 2).reshape(()).exp() + x,
        "a scalar that gets some": lambda x: (x.amax() * 2).reshape(1, 1, 1).exp() + (x.amax() * 2).reshape(1),
    }
    assert_as_eager(programs, torch.randn(3, 7, 33, generator=torch.Generator().manual_seed(0)), target="iree-cpu")


def test_what_is_gathered_may_be_a_factor_of_several_products() -> None:
    """IREE packed it for the product in the code of the gather, which was right in the first matrix alone."""
    places = torch.tensor([0, 0, 1, 1, 2, 3, 3])
    programs = {
        "rows": lambda x, k: x[:, :, places] @ k.transpose(-1, -2),
        "columns, on the right": lambda x, k: k @ x[:, :, :, places[:5]].transpose(-1, -2),
        "behind relu": lambda x, k: (x[:, :, :, places[:5]] * 2).relu() @ k.transpose(-1, -2),
        "bilinear": lambda x, k: F.interpolate(x, size=(7, 5), mode="bilinear").softmax(-1) @ k.transpose(-1, -2),
        "attention": lambda x, k: F.scaled_dot_product_attention(F.interpolate(x, size=(7, 5), mode="bilinear"), k, k),
        "one matrix": lambda x, k: x[0, 0, places] @ k[0, 0].T,
    }
    generator = torch.Generator().manual_seed(0)
    operands = torch.randn(2, 3, 4, 5, generator=generator), torch.randn(2, 3, 8, 5, generator=generator)
    assert_as_eager(programs, *operands, target="iree-cpu")


def test_others_may_read_all_of_what_an_op_reads_with_steps() -> None:
    """IREE computed what the op with the steps needs."""
    programs = {
        "unfolded": lambda x, i: x[i, i].unfold(-1, 1, 2) * 2,
        "transposed": lambda x, i: x[i, i].transpose(2, 0).contiguous(),
        "windows": lambda x, i: x.relu().unfold(-1, 3, 2) + 1,
        "whole": lambda x, i: x.relu(),
        "behind another": lambda x, i: (3.0 * i[0] - x).unfold(1, 1, 2),
        "what that reads": lambda x, i: (-x)[2:4],
        "what that reads is read": lambda x, i: ((-x) + 2.5).unfold(-3, 1, 2),
        "pooled at single positions": lambda x, i: F.max_pool1d(x[:, i].flatten(0, 1), 1, 2).isnan(),
        "picked": lambda x, i: x[:, i].flatten(0, 1),
    }
    generator = torch.Generator().manual_seed(0)
    x, places = torch.randn(5, 7, 5, 13, generator=generator), torch.randint(5, (5,), generator=generator)
    assert_as_eager(programs, x, places, target="iree-cpu")


def test_elements_are_picked_from_slices_and_from_constants() -> None:
    """IREE's vector code for slices with steps could not be translated; places and values, both constant, were one to it."""
    programs = {
        "column": lambda x, i: x[:, :, 0][i],
        "mirrored column": lambda x, i: x[:, :, 2].flip(0, 1),
        "every other": lambda x, i: x[:, :, ::2].flip(1),
        "every third row": lambda x, i: x[:, ::3][:, i.clamp(max=1)],
        "end": lambda x, i: x[:, 1:, 3:].flip(2),
        "behind padding": lambda x, i: F.pad(x, (0, 1))[:, :, :1].flip(1),
        "computed": lambda x, i: (x + 1).relu()[:, :, 0].flip(0),
        "place that is constant": lambda x, i: x[0, 0, :1].scatter(0, i[:1] % 1, 1.0),
        "pooled at one position": lambda x, i: F.max_pool1d(x, 1, 9)[i],
        "pooled at single positions": lambda x, i: F.avg_pool1d(x, 1, 2)[:, i],
        "computed from a column": lambda x, i: x[:, :, 1].abs()[i],
        "one pixel": lambda x, i: F.interpolate(x[None], size=(1, 1))[:, i],
        "transposed convolution": lambda x, i: F.conv_transpose2d(
            x[None, :2], x[:2, None, :3, :1], stride=(1, 3), dilation=(1, 2), groups=2
        ),
    }
    generator = torch.Generator().manual_seed(0)
    x, places = torch.randn(5, 6, 7, generator=generator), torch.randint(5, (4,), generator=generator)
    assert_as_eager(programs, x, places, target="iree-cpu")


def _first_row_is(x: Tensor, number: float) -> Tensor:
    x = x.clone()
    x[0] = number
    return x


def test_sums_of_what_turns_out_to_be_constant() -> None:
    """IREE's vector code added a number once where it is to be added for every element."""
    programs = {
        "x % 1": lambda i, x: (i % 1 + 2).sum((1, 3)),
        "times zero": lambda i, x: (i * 0 + 3).float().sum(3),
        "product": lambda i, x: ((i & 0) | 3).prod(3),
        "difference": lambda i, x: (i - i + 5).sum((1, 3)),
        "the only row": lambda i, x: _first_row_is(x.relu(), 7.0).sum((1, 3)),
        "known": lambda i, x: (torch.full((3, 4, 2), 7.0) * 2).sum((0, 2)),
    }
    x = torch.randn(1, 3, 4, 2, generator=torch.Generator().manual_seed(0))
    assert_as_eager(programs, torch.arange(24).reshape(1, 3, 4, 2), x, route="linalg", target="iree-cpu")


def _scattered(x: Tensor) -> Tensor:
    return torch.cat([x * 2, x.scatter_add(0, torch.zeros_like(x, dtype=torch.int64), x), x])


def test_scatters_write_to_slices_of_arguments() -> None:
    """IREE refused its own code.  Arguments stay as they are."""
    programs = {
        "rows": lambda x, i: x[1:7].index_copy(0, i, x[:2] + 1),
        "column": lambda x, i: x[:, 2].index_fill(0, i, 3.0),
        "added": lambda x, i: x[1:7].index_add(0, i, x[:2]),
        "rolled there and back": lambda x, i: x.roll(1, 0).roll(-3, 0),
        "rolled by nothing": lambda x, i: x[:1].roll((1, 5), (0, 1)) + x.roll(8, 0),
        "the argument itself": lambda x, i: x.reshape(8, 5),
        "read before and after": lambda x, i: _scattered(F.max_pool1d(x[None], 2)[0]),
    }
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    assert_as_eager(programs, x, torch.tensor([4, 1]), target="iree-cpu")
    assert torch.equal(x, before)


def test_what_is_computed_from_nothing_is_written_to_by_several() -> None:
    """IREE kept one computation of the places for two sorts, and for whoever else reads them."""

    def counted(kind: torch.dtype) -> Tensor:
        return torch.arange(20).reshape(4, 5).to(kind)

    programs = {
        "up": lambda x, i: x.argsort(0),
        "down": lambda x, i: x.argsort(0, descending=True),
        "places": lambda x, i: torch.arange(4)[:, None].expand(4, 5) + 0,
        "greatest": lambda x, i: x.topk(2, 0).indices,
        "written": lambda x, i: counted(torch.int64).index_fill(1, i, 7),
        "written again": lambda x, i: counted(torch.int64).index_fill(1, i, 9),
        "unwritten": lambda x, i: counted(torch.int64),
        "half": lambda x, i: counted(torch.bfloat16).index_fill(1, i, 0.5) + counted(torch.bfloat16).index_fill(0, i, 2.5),
    }
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    assert_as_eager(programs, x, torch.tensor([3, 1]), target="iree-cpu")


def test_a_sort_may_write_into_a_larger_tensor() -> None:
    """IREE refused its own code."""
    programs = {
        "padded": lambda x: F.pad(x.argsort(1), (2, 2), value=-3),
        "in zeros": lambda x: torch.zeros(3, 5, 7, dtype=torch.int64).slice_scatter(x.argsort(1), 2, 2, 5),
    }
    x = torch.randint(99, (3, 5, 3), generator=torch.Generator().manual_seed(0)).half()
    assert_as_eager(programs, x, route="linalg", target="iree-cpu")


def _but_first_rows(weights: Tensor, scores: Tensor) -> Tensor:
    return torch.where(scores.amax(-1, keepdim=True) <= 0.0, 0.0, weights)


def test_a_mask_may_have_one_column() -> None:
    """IREE's vector code read single bits of truth values in the wrong places."""
    programs = {
        "attention": lambda q, k: _but_first_rows((q @ k.mT).softmax(-1), q @ k.mT) @ k,
        "masked": lambda q, k: (q @ k.mT).masked_fill((q.sum(-1, keepdim=True) > 0), -1.0).exp(),
    }
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 6, 9, generator=generator), torch.randn(2, 2, 9, generator=generator)
    assert_as_eager(programs, q, k, target="iree-cpu")


def _in_range(x: Tensor, y: Tensor) -> Tensor:
    largest = torch.maximum(x, x)
    return torch.maximum(x * (largest - y), torch.remainder(y, largest))


def test_scalars_are_checked() -> None:
    """IREE fused the check with what else is computed there, and mistook one result for another."""
    programs = {
        "remainder": _in_range,
        "floored": lambda x, y: torch.div(y, x, rounding_mode="floor") + x,
        "both": lambda x, y: (y // x + x % y).to(torch.int16),
    }
    assert_as_eager(programs, torch.tensor(7, dtype=torch.uint8), torch.tensor(17, dtype=torch.uint8), target="iree-cpu")


def test_truth_values_may_turn_out_to_be_the_same() -> None:
    """IREE found it too late, and refused its own code."""
    programs = {
        "twice itself": lambda x, y: (x * x) & (x | x * x),
        "or": lambda x, y: (x | (x * x)) & (x | (x * x)),
        "other comparisons": lambda x, y: ((y < 0.0) | (y > 0.0)) & ~(y == 1.0),
        "transposed": lambda x, y: (x & x.mT) | (x.mT & x.mT),
        "row": lambda x, y: (x & x[:, :1]) ^ (x[:, :1] & x[:, :1]),
    }
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(9, 16, 16, generator=generator) < 0.4, torch.randint(-1, 2, (9, 16, 16), generator=generator) * 1.0
    assert_as_eager(programs, x, y, target="iree-cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_nan_may_be_known(dtype: torch.dtype) -> None:
    """Of a NaN that was known IREE's exponentials made a number."""
    programs = {
        "mean of nothing": lambda x: F.logsigmoid(x[:0].mean(0, keepdim=True) + x),
        "written": lambda x: (x * float("nan")).exp(),
        "alone": lambda x: torch.full_like(x, float("nan")).exp() + x,
    }
    x = torch.randn(3, 7, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert_as_eager(programs, x, target="iree-cpu")


class Accumulated(nn.Module):
    """Rows of a table that is computed from weights, some of them added to others."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(6, 6, 6, generator=torch.Generator().manual_seed(0)))

    def forward(self, places: Tensor) -> Tensor:
        """(6, 6) → (6, 6)."""
        table = (self.weight @ self.weight)[..., 4]
        return table.scatter_add(0, places, table)


def test_what_is_computed_from_weights_is_not_written_to() -> None:
    """Behind a barrier IREE does not know that it is constant, and the second call went on from the first's result."""
    places = torch.arange(36).reshape(6, 6) % 4
    function = ms.compile(Accumulated(), (places,), target="iree-cpu")
    for _ in range(3):
        torch.testing.assert_close(function(places), Accumulated()(places))


class Distances(nn.Module):
    """Squared distances between all pairs of rows."""

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width) → (rows, rows)."""
        squares = (x * x).sum(-1)
        return squares[:, None] + squares[None, :] - 2 * x @ x.T


def test_distances_of_any_number_of_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    function = ms.compile(
        Distances(), (torch.randn(9, 5),), target="iree-cpu", dynamic_shapes=({0: torch.export.Dim("rows", max=99)},)
    )
    for rows in (1, 2, 33):
        x = torch.randn(rows, 5, generator=generator)
        torch.testing.assert_close(function(x), Distances()(x), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (nn.Softmax(-1), 0),
        (nn.LayerNorm(5), 0),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), 0),
        (Distances(), 1),
    ],
)
def test_only_what_is_read_in_several_ways_is_held(model: nn.Module, count: int) -> None:
    """What is held is not fused with what reads it: that costs time."""
    x = torch.randn(2, 3, 8) if isinstance(model, nn.TransformerEncoderLayer) else torch.randn(7, 5)
    text = ms.lower(model, (x,), target="iree-cpu", to="prepared")["prepared"].text
    with new_context():
        module = ir.Module.parse(text)
        hold_shared_results(module)
        assert str(module).count("util.optimization_barrier") == count


READ_AND_WRITTEN = """
func.func @main(%x: tensor<4x3xf32>, %v: tensor<2x3xf32>, %i: tensor<2x1xi32>) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %empty = tensor.empty() : tensor<4x3xf32>
  %y = linalg.exp ins(%x : tensor<4x3xf32>) outs(%empty : tensor<4x3xf32>) -> tensor<4x3xf32>
  %written = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false)
      ins(%v, %i : tensor<2x3xf32>, tensor<2x1xi32>) outs(TARGET : tensor<4x3xf32>) {
    ^bb0(%new: f32, %old: f32):
      tm_tensor.yield %new : f32
  } -> tensor<4x3xf32>
  OTHERS
}
"""


@pytest.mark.parametrize(
    ("target", "returned", "count"), [("%y", "%x", 0), ("%y", "%y", 1), ("%x", "%y", 1), ("%x", "%x", 1)]
)
def test_what_others_read_is_copied_before_it_is_written(target: str, returned: str, count: int) -> None:
    """IREE may let the op that writes go first: a scatter came before a mean of what it changed, in a graph of 18 ops."""
    others = f"return %written, {returned} : tensor<4x3xf32>, tensor<4x3xf32>"
    with new_context():
        module = ir.Module.parse(READ_AND_WRITTEN.replace("OTHERS", others).replace("TARGET", target))
        own_written_values(module)
        assert str(module).count("util.optimization_barrier") == count
