"""Views of tensors with more than one dynamic dimension: which are merged and split, and the numbers through both routes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy
import torch
from torch import nn

import mlirstack as ms
from mlirstack.frontend.dynamic_views import matched_groups

A, B = sympy.symbols("a b", integer=True, positive=True)


@pytest.mark.parametrize(
    ("before", "after", "groups"),
    [
        ([A, B, 16], [A * B, 16], [((0, 1), (0,)), ((2,), (1,))]),
        ([A * B, 16], [A, B, 16], [((0,), (0, 1)), ((1,), (2,))]),
        ([2 * A, B, 8], [A, 2, B, 8], [((0,), (0, 1)), ((1,), (2,)), ((2,), (3,))]),
        ([A, 6], [A, 2, 3], [((0,), (0,)), ((1,), (1, 2))]),
        ([2 * A, 3], [A, 6], [((0, 1), (0, 1))]),
        ([A, B], [B, A], [((0, 1), (0, 1))]),
        ([1, A], [A], [((0, 1), (0,))]),
        ([A], [A, 1], [((0,), (0,)), ((), (1,))]),
        ([A + B, 3], [3 * A + 3 * B], [((0, 1), (0,))]),
    ],
)
def test_groups_of_equal_product(before: list[object], after: list[object], groups: list[object]) -> None:
    assert [(group.before, group.after) for group in matched_groups(before, after)] == groups


class Reshaped(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x * 2)


@pytest.mark.portable
@pytest.mark.parametrize("route", ["auto", "linalg"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.flatten(0, 1) + 1,
        lambda x: x.reshape(x.shape[0] * x.shape[1], 6).sum(0),
        lambda x: x.flatten().reshape(x.shape[0], x.shape[1], 6) + x,
        lambda x: x.reshape(x.shape[0], x.shape[1] * 2, 3) - 1,
        lambda x: x.transpose(0, 1).reshape(x.shape[1], -1),
        lambda x: x.reshape(x.shape[0], 1, x.shape[1], 6).expand(-1, 3, -1, -1).reshape(x.shape[0] * 3, -1, 6) + 1,
    ],
    ids=["merge", "merge_and_sum", "split", "mixed", "turned", "repeated"],
)
def test_two_dynamic_dimensions(function: Callable[[torch.Tensor], torch.Tensor], route: str) -> None:
    """torch-mlir alone turns the first of these into a tensor of ``batch`` rows instead of ``batch * length``."""
    sizes = {0: torch.export.Dim("batch", min=2, max=64), 1: torch.export.Dim("length", min=2, max=64)}
    compiled = ms.compile(Reshaped(function), (torch.randn(3, 5, 6),), dynamic_shapes=(sizes,), route=route)
    for batch, length in ((3, 5), (2, 7), (8, 2)):
        x = torch.randn(batch, length, 6)
        torch.testing.assert_close(compiled(x), function(x * 2))
