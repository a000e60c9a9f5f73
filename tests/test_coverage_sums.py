"""Sums, products and scans: their dtypes, the signs of their zeros, and what they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from several import Several, assert_as_eager
from torch.nn import functional as F

import mlirstack as ms

pytestmark = pytest.mark.portable

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_running_sums_of_exponentials_stay_in_range(dtype: torch.dtype) -> None:
    large = torch.tensor([[1.0, -3.0, 200.0, 100.0, -INF, 300.0], [-200.0, -300.0, -INF, -100.0, 60000.0, 1.0]])
    special = torch.tensor([[-INF, -INF, 1.0, INF, -INF, 2.0], [INF, INF, 1.0, NAN, 3.0, -INF]])
    programs = {
        "along a row": lambda x: torch.logcumsumexp(x, -1),
        "along a column": lambda x: torch.logcumsumexp(x, 0),
        "of one number": lambda x: torch.logcumsumexp(x[0, 0], 0),
        "of none": lambda x: torch.logcumsumexp(x[:0], 1),
    }
    assert_as_eager(programs, torch.cat([large, special]).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.bfloat16])
def test_zeros_have_the_sign_that_eager_gives_them(dtype: torch.dtype) -> None:
    """Sums begin at zero, which a negative one is added to; what is cut off to zero keeps its sign."""
    programs: dict[str, Callable[..., Any]] = {
        "sum": lambda x: x.sum(1),
        "mean of one": lambda x: x[:, :1].mean(1),
        "running sum": lambda x: x.cumsum(0),
        "running sum in a dtype": lambda x: x.cumsum(-1, dtype=torch.float64),
        "running sum in its own dtype": lambda x: x.cumsum(-1, dtype=x.dtype),
        "running sum of one": lambda x: x[:1].cumsum(0),
        "running sum without dimensions": lambda x: x[0, 0].cumsum(0),
        "running product without dimensions": lambda x: x[0, 0].cumprod(-1),
        "product": lambda x: x.prod(0),
        "cut off": torch.trunc,
        "small numbers cut off": lambda x: torch.trunc(x - 0.25),
        "fmod": lambda x: torch.fmod(x, 2.0),
        "fmod of multiples": lambda x: torch.fmod(x - 4.0, 2.0),
        "floored quotient": lambda x: torch.div(x, 2.0, rounding_mode="floor"),
        "quotient cut off": lambda x: torch.div(x, 2.0, rounding_mode="trunc"),
        "mean of a window": lambda x: F.avg_pool1d(x[None], 2),
    }
    x = torch.full((3, 9), -0.0, dtype=dtype)
    got = ms.compile(Several(programs), (x,))(x)
    expected = {name: program(x) for name, program in programs.items()}
    signs = {name: (got[name].signbit().tolist(), value.signbit().tolist()) for name, value in expected.items()}
    assert not {name: both for name, both in signs.items() if both[0] != both[1]}
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_scans_of_tensors_without_dimensions() -> None:
    programs = {
        "sum of an integer": lambda x: torch.cumsum(x.int(), 0),
        "sum of truths": lambda x: torch.cumsum(x > 0, -1),
        "sum in another dtype": lambda x: torch.cumsum(x.int(), 0, dtype=torch.float32),
        "product": lambda x: torch.cumprod(x, 0),
        "logarithm": lambda x: torch.logcumsumexp(x, 0),
    }
    assert_as_eager(programs, torch.tensor(3.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
@pytest.mark.parametrize("route", ["auto", "linalg"])
def test_sums_and_products_of_what_turns_out_to_be_constant(dtype: torch.dtype, route: str) -> None:
    """A number that stands in a reduction's body was added once for a whole vector."""

    def with_row(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.select(0, 0).fill_(1)
        return y

    programs = {
        "product of matrices": lambda x, one: with_row(x) @ with_row(x).transpose(-1, -2),
        "sum": lambda x, one: with_row(x).sum(-1),
        "product": lambda x, one: (with_row(x) + 1).prod(-1),
        "largest": lambda x, one: with_row(x).amax(-1),
        "sum of a number from outside": lambda x, one: one.expand(6, 16).sum(-1),
        "scaled": lambda x, one: (x * one + with_row(x)).sum(-1),
    }
    x = torch.arange(1 * 6 * 2 * 16).reshape(1, 6, 2, 16).to(dtype) / 64
    assert_as_eager(programs, x.to(dtype), torch.tensor(3).to(dtype), route=route)


SCANNED = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float16, torch.float64)


@pytest.mark.parametrize("dtype", SCANNED, ids=str)
def test_scans_in_a_dtype_that_is_asked_for(dtype: torch.dtype) -> None:
    """Those of integers wrap at the size of that dtype, which is int64 if none is asked for."""
    wanted = (None, torch.int8, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64)
    numbers = torch.tensor([[3, -7, 5, 11, 2, 9, 13], [-2, 90, 1, 100, 0, 4, 8], [1, 1, 2, 3, 5, 8, 13]])
    programs: dict[str, Callable[..., Any]] = {}
    for scan in (torch.cumsum, torch.cumprod):
        for kind in wanted:
            programs[f"{scan.__name__} in {kind}"] = lambda x, scan=scan, kind=kind: scan(x, -1, dtype=kind)
    assert_as_eager(programs, numbers.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_product_and_what_is_added_to_it_are_rounded_once(dtype: torch.dtype) -> None:
    """As in eager: of a product that its bias nearly cancels, two roundings leave little."""
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(*size, generator=generator).to(dtype) for size in ((33, 16), (25, 16)))
    bias = -(x.float() @ w.float().mT).mean(0).to(dtype)
    batch = x.reshape(3, 11, 16)
    programs = {
        "linear": lambda x, w, b, t: F.linear(x, w, b),
        "a row": lambda x, w, b, t: F.linear(x[0], w, b),
        "a batch": lambda x, w, b, t: F.linear(t, w, b),
        "scaled": lambda x, w, b, t: torch.addmm(b, x, w.mT, beta=0.5, alpha=-2.5),
        "a column": lambda x, w, b, t: torch.addmv(x[:, 0], x, w[0]),
        "several": lambda x, w, b, t: torch.addbmm(b[:11, None], t, t.mT),
    }
    assert_as_eager(programs, x, w, bias, batch)
    module, inputs = Several(programs), (x, w, bias, batch)
    got, precise = ms.compile(module, inputs)(*inputs), module(*(value.double() for value in inputs))
    for name, value in got.items():
        half_a_step = torch.finfo(dtype).eps / 2 * precise[name].abs()
        assert ((value.double() - precise[name]).abs() <= half_a_step + 5e-6).all(), name


def test_products_of_integers_are_scaled_by_integers() -> None:
    x, w = torch.arange(-12, 12).reshape(4, 6), torch.arange(18).reshape(6, 3)
    programs = {
        "a column": lambda x, w: torch.addmv(x[:, 0], x, w[:, 0], beta=0.2, alpha=2.6),
        "several": lambda x, w: torch.addbmm(x[:, :3], x[None], w[None], beta=2, alpha=0.6),
        "matrices": lambda x, w: torch.addmm(x[:, :3], x, w, beta=3, alpha=-2),
    }
    assert_as_eager(programs, x, w)
