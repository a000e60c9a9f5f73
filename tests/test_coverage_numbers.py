"""Numbers beside tensors of truth values and integers: powers of them, comparisons, bounds, shifts by any number of bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from several import assert_as_eager
from torch import Tensor

pytestmark = pytest.mark.portable

TRUTHS = torch.tensor([[True], [False], [True]])
INTEGERS = (
    torch.tensor([[0, 3, -2, 7, 127, -128]], dtype=torch.int8),
    torch.tensor([[0, 1, 128, 200, 255, 7]], dtype=torch.uint8),
    torch.tensor([[0, 1, -1, 5, 31, -7]], dtype=torch.int32),
    torch.tensor([[0, 1, -1, 5, 63, -(2**40)]]),
)
INF, NAN = math.inf, math.nan


def test_powers_of_numbers() -> None:
    programs: dict[str, Callable[..., Any]] = {}
    for number in (2, 10, 0, -1, -2, 300, 0.5, 2.0):
        programs[f"{number} to truth values"] = lambda x, *rest, n=number: n**x
        programs[f"{number} to int32"] = lambda x, a, b, c, d, n=number: n**c
        programs[f"{number} to uint8"] = lambda x, a, b, c, d, n=number: n**b
    assert_as_eager(programs, TRUTHS, *INTEGERS)


def test_powers_of_bytes() -> None:
    programs = {
        "large exponents": lambda x: torch.pow(x, x.mT),
        "scaled": lambda x: torch.ldexp(x.float(), x[:, [0, 1, 5]].mT),
        "bytes that are scaled": lambda x: torch.ldexp(x, torch.tensor(3)),
    }
    assert_as_eager(programs, INTEGERS[1])


def test_truth_values_and_numbers() -> None:
    programs: dict[str, Callable[..., Any]] = {
        "no less than another": lambda x: torch.clamp(x, min=~x),
        "no more than another": lambda x: torch.clamp(x, max=x.mT),
    }
    for number in (-200, -1, 0, 1, 2, 300, 0.5, NAN, INF):
        for name in ("lt", "le", "gt", "ge", "eq", "ne"):
            programs[f"{name} {number}"] = lambda x, name=name, n=number: getattr(torch, name)(x, n)
        programs[f"at least {number}"] = lambda x, n=number: torch.clamp(x, min=n)
        programs[f"at most {number}"] = lambda x, n=number: torch.clamp(x, max=n)
    assert_as_eager(programs, TRUTHS)


def test_a_bound_that_is_nan_leaves_nothing_else() -> None:
    programs = {"below": lambda x: torch.clamp(x, min=NAN), "above": lambda x: torch.clamp(x, max=NAN)}
    assert_as_eager(programs, torch.tensor([1.5, -2.0, INF, 0.0]))


@pytest.mark.parametrize("x", INTEGERS, ids=lambda x: str(x.dtype))
def test_shifts_by_any_number_of_bits(x: Tensor) -> None:
    programs: dict[str, Callable[..., Any]] = {
        "to the left by a tensor": lambda x, counts: x << counts,
        "to the right by a tensor": lambda x, counts: x >> counts,
        "to the left by its own": lambda x, counts: x << x.mT,
        "to the right by its own": lambda x, counts: x >> x.mT,
        "without dimensions": lambda x, counts: (x[0, 3] << counts[0, 0]) + (x[0, 5] >> counts[1, 0]),
    }
    for number in (0, 3, 7, 8, 31, 32, 63, 64, 100, *((-1,) if x.dtype.is_signed else ())):
        programs[f"to the left by {number}"] = lambda x, counts, n=number: x << n
        programs[f"to the right by {number}"] = lambda x, counts, n=number: x >> n
    counts = torch.tensor([[1], [-1], [8], [31], [32], [64], [0]], dtype=torch.int32)
    assert_as_eager(programs, x, counts)
