"""What orders numbers, on NaN, infinities, zeros of both signs and ties; reciprocals of zero; joins of nothing: as eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from several import assert_as_eager
from torch import nan, nn

import mlirstack as ms

NUMBERS = [[1.0, nan, -2.0, 0.0, -0.0, torch.inf], [nan, nan, 3.0, -torch.inf, 2.0, 2.0]]


class Ordering(nn.Module):
    """Every result is decided: topk is asked for values only, since torch leaves the order of equal numbers open."""

    def forward(self, x):
        return (
            torch.sort(x, 1), torch.sort(x, -1, descending=True), torch.argsort(x, dim=0, stable=True),
            torch.topk(x, 4)[0], torch.topk(x, 4, largest=False)[0],
            torch.max(x, 1), torch.min(x, 0, keepdim=True), torch.argmax(x, 1), torch.argmin(x), 1 / x,
            torch.cat([x[:0], x[:0]], 1),
        )  # fmt: skip


@pytest.mark.target
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_nan_is_the_largest_number_and_zeros_are_equal(dtype):
    x = torch.tensor(NUMBERS, dtype=dtype)
    found = torch.utils._pytree.tree_leaves(ms.compile(Ordering(), (x,))(x))
    wanted = torch.utils._pytree.tree_leaves(Ordering()(x))
    for got, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.target
def test_the_place_of_a_maximum_along_a_dynamic_dimension():
    class Place(nn.Module):
        def forward(self, x):
            return x.argmax(1), x.max(0)[1], torch.sort(x, 1)[0]

    function = ms.compile(
        Place(), (torch.randn(3, 5),), dynamic_shapes={"x": {0: torch.export.Dim("n"), 1: torch.export.Dim("m")}}
    )
    for shape in ((3, 5), (1, 1), (7, 40)):
        x = torch.randn(shape)
        x[0, -1] = nan
        for got, expected in zip(function(x), Place()(x), strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.target
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("route", ["tosa", "linalg"])
def test_the_place_of_the_least_and_the_largest_integers(route, dtype):
    """TOSA's conversion took int32 for float32, and the least integer for the largest once its sign was changed."""

    class Places(nn.Module):
        def forward(self, x):
            return (
                x.argmax(1), x.argmin(1), x.argmax(), x.argmin(0, keepdim=True), x.max(1), x.min(0, keepdim=True),
                x.T.argmax(0), x[:, None].expand(6, 3, 2).argmin(-1), x[0].argmax(),
            )  # fmt: skip

    ends = torch.iinfo(dtype)
    near = min(2**24, ends.max - 2)  # float32 does not hold the number behind 2**24
    x = torch.tensor(
        [
            [ends.min + 1, ends.min],
            [ends.min, ends.min + 1],
            [3, ends.min],
            [ends.max, ends.max - 1],
            [near, near + 1],
            [0, 0],
        ],
        dtype=dtype,
    )
    found = torch.utils._pytree.tree_leaves(ms.compile(Places(), (x,), route=route)(x))
    for got, expected in zip(found, torch.utils._pytree.tree_leaves(Places()(x)), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
def test_the_kth_of_numbers_with_nan_among_them(target: str) -> None:
    x = torch.tensor([[3.0, math.nan, -math.inf, math.inf, 2.0], [math.nan, 1.0, math.nan, 0.0, -1.0]])
    programs: dict[str, Callable[..., Any]] = {}
    for k in (1, 3, 4, 5):
        programs[f"{k}"] = lambda x, k=k: torch.kthvalue(x, k)[0]
        programs[f"{k} of columns"] = lambda x, k=k: torch.kthvalue(x.mT, k, 0, keepdim=True)[0]
        programs[f"{k} of integers"] = lambda x, k=k: torch.kthvalue(x.nan_to_num(7, 5, -5).int(), k)[0]
    assert_as_eager(programs, x, target=target)
