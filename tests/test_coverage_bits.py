"""What looks at the bits of numbers, and whole powers: compared with eager, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from several import assert_bits_of_eager
from torch import nn

import mlirstack as ms

NAN, INF = float("nan"), float("inf")
SPECIAL = torch.tensor(
    [-INF, INF, NAN, -NAN, 2.3, -2.3, 0.0, -0.0, 1e-40, 448, 463, 465, 1e-3, 0.017, -0.0019, 57000, 62000]
)
EVERY_BYTE = torch.arange(256).to(torch.uint8)
FLOATS8 = (torch.float8_e4m3fn, torch.float8_e5m2)


class Views(nn.Module):
    def forward(self, x, y, z):
        sizes = x.view(torch.int8), y.view(torch.int16), z.view(torch.int32), z.view(torch.float64)
        return *sizes, x.view(torch.int32), torch.ops.prims.squeeze(x.unsqueeze(0), dimensions=[0])


class Signs(nn.Module):
    def forward(self, x, n):
        return torch.signbit(x), torch.signbit(n), torch.copysign(torch.ones(1), x), torch.copysign(n[:1], x)


class Float8(nn.Module):
    def forward(self, x, a, b):
        coded = [x.to(dtype) for dtype in FLOATS8]
        return *coded, coded[0].float(), a.to(torch.float32), b.to(torch.bfloat16)


class ScaledProduct(nn.Module):
    def forward(self, a, b, scale):
        coded = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
        return torch._scaled_mm(*coded, scale, scale, out_dtype=torch.float32)


class Powers(nn.Module):
    def forward(self, x, y):
        return x.to(torch.int8) ** (y % 7).to(torch.int8), x.int() ** y.int()


class Shifts(nn.Module):
    def forward(self, x):
        return x << 3, x >> 2, x >> torch.tensor(1), torch.bitwise_left_shift(x, 5)


CASES = {
    "views": (Views(), (torch.randn(3, 2), torch.randn(2, 2).double(), torch.randint(-128, 127, (2, 8)).to(torch.int8))),
    "signs": (Signs(), (SPECIAL, torch.tensor([3, -4, 0]))),
    "float8": (
        Float8(),
        (
            torch.cat([SPECIAL, torch.randn(500) * torch.logspace(-7, 3, 500)]),
            *(EVERY_BYTE.view(dtype) for dtype in FLOATS8),
        ),
    ),
    "powers": (Powers(), (torch.randint(-4, 9, (60,)), torch.randint(-3, 70, (60,)))),
    "shifts": (Shifts(), (torch.randint(-1000, 1000, (9,)),)),
}


@pytest.mark.parametrize("name", CASES)
def test_bits_are_eagers(name):
    model, inputs = CASES[name]
    for found, wanted in zip(ms.compile(model, inputs)(*inputs), model(*inputs), strict=True):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        if found.is_floating_point():
            found, wanted = found.double(), wanted.double()  # noqa: PLW2901
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_products_of_scaled_float8_are_those_of_the_numbers_they_stand_for():
    a, b, scale = torch.rand(16, 16), torch.rand(16, 16), torch.tensor(0.5)
    found = ms.compile(ScaledProduct(), (a, b, scale))(a, b, scale)
    rounded = [x.to(torch.float8_e4m3fn).double() for x in (a, b)]
    torch.testing.assert_close(found.double(), rounded[0] @ rounded[1] / 4, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_neighbours_and_parts_of_numbers(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    sizes = [0.0, 1.0, 3.7, 1e-3, 0.5, info.eps, info.tiny, info.tiny / 4, info.max, math.inf, math.nan]
    x = torch.tensor([*sizes, *(-size for size in sizes)], dtype=dtype)
    programs: dict[str, Callable[..., Any]] = {
        "mantissa": lambda x: torch.frexp(x)[0],
        "exponent": lambda x: torch.frexp(x)[1],
        "sign of a number": lambda x: torch.copysign(x, -2.0),
        "sign of an integer": lambda x: torch.copysign(x, 3),
    }
    if dtype != torch.float16:  # eager has none
        programs["next"] = lambda x: torch.nextafter(x[:, None], x)
    assert_bits_of_eager(programs, x)
