"""Complex numbers on target cpu: functions, powers, products and truth values of both dtypes, on their branch cuts as well,
against eager in complex128."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import mlirstack as ms

F = torch.nn.functional

# One of each formula: the others are made of these.
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in ("expm1", "log1p", "rsqrt", "cos", "tan", "acos", "asinh", "atan")},
    "silu": F.silu,
    "whole power": lambda z: z**-5,
    "power of a tensor": lambda z: z**z,
    "product of rows": lambda z: z.reshape(4, -1).prod(1, keepdim=True),
    "running sum": lambda z: z.cumsum(0),
    "filled like": lambda z: z + torch.full_like(z, 2j),
}
BRANCHED = ("sqrt", "log", "acos", "acosh", "atanh")  # those with cuts along an axis
TRUTHS: dict[str, Callable[[Tensor], Tensor]] = {
    "equal": lambda z: z == z.flip(0),
    "not equal to a number": lambda z: z != 3j,
    "equal to a real number": lambda z: z == 2,
    "not": torch.logical_not,
    "and": lambda z: torch.logical_and(z, z.flip(0)),
    "all": torch.all,
    "all of a row": lambda z: z.reshape(2, -1).all(1),
    "no number": torch.isnan,
    "infinite": torch.isinf,
    "filled": lambda z: z.masked_fill(z == 0, 1 + 2j),
    "finite instead": torch.nan_to_num,
    "length": torch.abs,
    "wider": lambda z: z.to(torch.complex128),
    "joined": lambda z: torch.cat([z, torch.ones(2, dtype=torch.float64)]),
}


class Each(torch.nn.Module):
    def __init__(self, functions: dict[str, Callable[[Tensor], Any]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, z: Tensor) -> dict[str, Any]:
        return {name: function(z) for name, function in self.functions.items()}


@pytest.mark.parametrize(
    ("dtype", "names"), [(torch.complex64, list(FUNCTIONS)), (torch.complex128, ["log1p", "tan", "silu", "whole power"])]
)
def test_functions(dtype: torch.dtype, names: list[str]) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([1e-3, 0.1, 1.0, 1.0, 3.0, 5.0]).repeat_interleave(6)
    z = (torch.randn(36, generator=generator, dtype=torch.complex128) * sizes).to(dtype)
    found = ms.compile(Each({name: FUNCTIONS[name] for name in names}), (z,))(z)
    for name in names:
        wanted = FUNCTIONS[name](z.to(torch.complex128))
        assert found[name].dtype == dtype, name
        error = (found[name] - wanted).abs() / wanted.abs()
        assert error.max() < 2**10 * torch.finfo(dtype).eps, name


def test_branch_cuts() -> None:
    along = [complex(x, y) for x in (-2.0, -0.5, 0.5, 2.0) for y in (0.0, -0.0)]
    z = torch.tensor([*along, *(complex(z.imag, z.real) for z in along)], dtype=torch.complex64)
    found = ms.compile(Each({name: getattr(torch, name) for name in BRANCHED}), (z,))(z)
    for name in BRANCHED:
        torch.testing.assert_close(found[name], getattr(torch, name)(z.to(torch.complex128)).to(z.dtype), msg=name)


def test_truth_values() -> None:
    nan, inf = math.nan, math.inf
    z = torch.tensor([0, 1j, 2, 3j, complex(nan, 1), complex(0, inf), complex(inf, inf), 0, 3j, 2 + 1j])
    found = ms.compile(Each(TRUTHS), (z,))(z)
    for name, function in TRUTHS.items():
        torch.testing.assert_close(found[name], function(z), equal_nan=True, msg=name)
