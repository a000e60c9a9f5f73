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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padding", [-1, 2])
def test_embedding_backward(dtype: torch.dtype, padding: int) -> None:
    decomposition = decomposition_table()[aten.embedding_dense_backward.default]
    indices = torch.tensor([[0, 2, 2], [4, 0, 2]])
    gradient = torch.randn(2, 3, 5).to(dtype)
    found = decomposition(gradient, indices, 7, padding, False)
    wanted = aten.embedding_dense_backward(gradient.float(), indices, 7, padding, False).to(dtype)
    torch.testing.assert_close(found, wanted)
