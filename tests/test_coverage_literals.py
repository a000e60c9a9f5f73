"""Numbers of a model beyond the largest one of a dtype: infinite as in eager, or refused with eager's error."""

from __future__ import annotations

import pytest
import torch
from several import Several, assert_as_eager
from torch import Tensor
from torch.nn import functional as F

import mlirstack as ms
from mlirstack.errors import UnsupportedError
from mlirstack.frontend.literals import rounded, wrapped

pytestmark = pytest.mark.portable

X = torch.tensor([1.5, -2.0, 0.0, -0.0, 3.25e4, float("nan"), float("inf"), -float("inf")])


def test_numbers_beyond_float32_are_infinite() -> None:
    programs = {
        "floored quotient": lambda x, h: x // 1e300,
        "floored quotient of a number": lambda x, h: -1e300 // x,
        "quotient of a number": lambda x, h: 2.5 // x,
        "fmod": lambda x, h: torch.fmod(x, 1e300),
        "remainder": lambda x, h: x % -1e300,
        "remainder of a number": lambda x, h: torch.remainder(2.5, x),
        "sum": lambda x, h: x + 1e300,
        "product": lambda x, h: x * -1e300,
        "comparison": lambda x, h: x >= 1e300,
        "power": lambda x, h: x**1e300,
        "x log y": lambda x, h: torch.xlogy(x, 1e300),
    }
    assert_as_eager(programs, X, X.half())


def test_half_precision_meets_numbers_of_float32_in_products() -> None:
    programs = {
        "product": lambda x, h: h * 70000.0,
        "quotient": lambda x, h: h / 70000.0,
        "quotient of a number": lambda x, h: 70000.0 / h,
        "quotient cut off": lambda x, h: torch.div(h, 70000.0, rounding_mode="trunc"),
        "slope": lambda x, h: F.leaky_relu(h, 70000.0),
        "sum": lambda x, h: h + 70000.0,
        "comparison": lambda x, h: h < 70000.0,
    }
    assert_as_eager(programs, X, X.half())


def test_integers_are_compared_with_numbers_modulo_their_size() -> None:
    programs = {
        "greater": lambda x: x > 300, "less": lambda x: x < -129, "equal": lambda x: x == 300,
        "at least": lambda x: x >= 2**40, "unsigned": lambda x: x.to(torch.uint8) > 300,
        "of 32 bits": lambda x: x.int() < 2**31, "real": lambda x: x < 300.5,
    }  # fmt: skip
    assert_as_eager(programs, torch.tensor([1, -2, 0, 100, -128, 127, 44], dtype=torch.int8))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.clamp(x, max=1e300),
        lambda x: torch.where(x > 0, x, -1e300),
        lambda x: x.masked_fill(x > 0, 1e300),
        lambda x: torch.full((3,), 1e300) + x[:3],
        lambda x: torch.add(x, x, alpha=1e300),
        lambda x: F.pad(x, (1, 1), value=1e300),
        lambda x: F.threshold(x, 0.0, 1e300),
    ],
    ids=["clamp", "where", "masked_fill", "full", "alpha", "pad", "threshold"],
)
def test_numbers_that_eager_refuses_are_refused_in_its_words(program: object) -> None:
    with pytest.raises(RuntimeError, match="without overflow"):
        program(X)  # type: ignore[operator]
    with pytest.raises(UnsupportedError, match="cannot be converted to type float without overflow"):
        ms.lower(Several({"program": program}), (X,))  # type: ignore[dict-item]


def test_rounding_to_the_largest_number_or_to_infinity() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        limits = torch.finfo(dtype)
        step = limits.max * limits.eps / (2 - limits.eps)
        for number in (limits.max, limits.max + 0.49 * step, limits.max + 0.51 * step, -1e300, float("inf"), 1e-300):
            expected = torch.tensor(number, dtype=torch.float64).to(dtype)
            assert torch.tensor(rounded(number, dtype), dtype=torch.float64).to(dtype) == expected
    small: Tensor = torch.arange(-300, 300)
    assert [wrapped(int(n), torch.int8) for n in small] == small.to(torch.int8).tolist()
