"""Decompositions of backward operations, against eager's."""

from __future__ import annotations

import itertools

import pytest
import torch

from mlirstack.frontend.decompositions.table import decomposition_table

aten = torch.ops.aten


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolution_backward(dimensions: int, transposed: bool, groups: int) -> None:
    """Gradients of input, weight and bias, over strides, paddings, dilations and sizes that a stride does not divide."""
    decomposition = decomposition_table()[aten.convolution_backward.default]
    x = torch.randn(3, 4, *[9, 8, 7][:dimensions], dtype=torch.float64)
    outer = (4, 8 // groups) if transposed else (8, 4 // groups)
    weight = torch.randn(*outer, *[3, 2, 3][:dimensions], dtype=torch.float64)
    for stride, padding, dilation, extra in itertools.product((1, 2), (0, 1), (1, 2), (0, 1)):
        if extra and not (transposed and stride > 1):
            continue
        how = [[number] * dimensions for number in (stride, padding, dilation)]
        rest = (transposed, [extra] * dimensions, groups)
        gradient = torch.randn_like(aten.convolution(x, weight, None, *how, *rest))
        found = decomposition(gradient, x, weight, [8], *how, *rest, [True] * 3)
        if groups == 1 and not transposed:
            assert found is NotImplemented  # torch-mlir lowers these
            continue
        for result, wanted in zip(
            found, aten.convolution_backward(gradient, x, weight, [8], *how, *rest, [True] * 3), strict=True
        ):
            torch.testing.assert_close(result, wanted)


AVERAGES = {
    aten.avg_pool2d_backward.default: ((9, 8), aten.avg_pool2d.default),
    aten.avg_pool3d_backward.default: ((5, 6, 7), aten.avg_pool3d.default),
}


@pytest.mark.parametrize("op", AVERAGES, ids=str)
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("include_pad", "divisor"), [(True, None), (False, None), (True, 5)])
def test_average_pooling_backward(op, ceil_mode: bool, include_pad: bool, divisor: int | None) -> None:
    """Over windows that overlap, leave elements out, and reach beyond the padding."""
    spatial, forward = AVERAGES[op]
    x = torch.randn(2, 3, *spatial, dtype=torch.float64)
    for window, stride, padding in ((3, [2], 1), (2, [3], 0), (2, [], 1)):
        how = ([window], stride, [padding], ceil_mode, include_pad, divisor)
        gradient = torch.randn_like(forward(x, *how))
        torch.testing.assert_close(decomposition_table()[op](gradient, x, *how), op(gradient, x, *how))


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_adaptive_pooling_backward(kind: str, rank: int) -> None:
    """Windows of several sizes, which may overlap."""
    x = torch.randn(2, 3, *(9, 8, 7)[:rank], dtype=torch.float64, requires_grad=True)
    given = getattr(torch.nn.functional, f"adaptive_{kind}_pool{rank}d")(
        x, (4, 5, 3)[:rank], **({"return_indices": True} if kind == "max" else {})
    )
    output, indices = given if kind == "max" else (given, ())
    gradient = torch.randn_like(output)
    name = f"_adaptive_avg_pool{rank}d_backward" if kind == "avg" else f"adaptive_max_pool{rank}d_backward"
    found = decomposition_table()[getattr(aten, name).default](gradient, x, *([indices] if kind == "max" else []))
    torch.testing.assert_close(found, torch.autograd.grad(output, x, gradient)[0])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_replication_padding_backward(rank: int) -> None:
    """On both sides of each axis, by different numbers; a negative one cuts."""
    x = torch.randn(2, 3, *(4, 5, 6)[:rank], dtype=torch.float64, requires_grad=True)
    padding = (2, 1, 0, 3, 1, -1)[: 2 * rank]
    output = torch.nn.functional.pad(x, padding, mode="replicate")
    gradient = torch.randn_like(output)
    found = decomposition_table()[getattr(aten, f"replication_pad{rank}d_backward").default](gradient, x, padding)
    torch.testing.assert_close(found, torch.autograd.grad(output, x, gradient)[0])


@pytest.mark.parametrize("op", [aten._softmax_backward_data.default, aten._log_softmax_backward_data.default], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_softmax_backward_rounds_once(op, dtype: torch.dtype) -> None:
    """Within one rounding of the gradient in float64."""
    output = torch.softmax(torch.randn(4, 64, dtype=torch.float64), -1)
    output = (output.log() if "log" in str(op) else output).to(dtype)
    gradient = torch.randn(4, 64).to(dtype)
    exact = op(gradient.double(), output.double(), -1, torch.float64)
    found = decomposition_table()[op](gradient, output, -1, dtype)
    assert found.dtype is dtype
    tiny = torch.finfo(dtype).tiny
    torch.testing.assert_close(found.double(), exact, rtol=torch.finfo(dtype).eps, atol=tiny)


@pytest.mark.parametrize("offset", [0, 2, -1, -3])
@pytest.mark.parametrize("dims", [(0, 1), (2, 0), (-1, -2)])
def test_diagonal_scatter(dims: tuple[int, int], offset: int) -> None:
    """Diagonals of matrices that are no squares, along any two axes."""
    op, x = aten.diagonal_scatter.default, torch.randn(4, 3, 6)
    diagonal = torch.randn_like(x.diagonal(offset, *dims))
    assert torch.equal(decomposition_table()[op](x, diagonal, offset, *dims), op(x, diagonal, offset, *dims))


def test_three_dimensional_max_pooling_backward() -> None:
    """An element that is the greatest of several windows gets all of their gradients."""
    x = torch.randn(2, 3, 5, 6, 7, dtype=torch.float64)
    how = ([3], [2], [1], [1], True)
    output, indices = aten.max_pool3d_with_indices(x, *how)
    gradient = torch.randn_like(output)
    op = aten.max_pool3d_with_indices_backward.default
    torch.testing.assert_close(decomposition_table()[op](gradient, x, *how, indices), op(gradient, x, *how, indices))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padding", [-1, 2])
def test_embedding_backward(dtype: torch.dtype, padding: int) -> None:
    decomposition = decomposition_table()[aten.embedding_dense_backward.default]
    indices = torch.tensor([[0, 2, 2], [4, 0, 2]])
    gradient = torch.randn(2, 3, 5).to(dtype)
    found = decomposition(gradient, indices, 7, padding, False)
    wanted = aten.embedding_dense_backward(gradient.float(), indices, 7, padding, False).to(dtype)
    torch.testing.assert_close(found, wanted)
