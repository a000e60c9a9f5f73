"""Functions of float64 on target iree-cpu, whose code has no mathematical library: written out, or refused by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

import mlirstack as ms
from mlirstack.errors import UnsupportedError

pytestmark = pytest.mark.target

FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "erf": lambda x, y: torch.erf(x),
    "tanh": lambda x, y: torch.tanh(x),
    "atan": lambda x, y: torch.atan(x),
    "asin": lambda x, y: torch.asin(x),
    "acos": lambda x, y: torch.acos(x),
    "log2": lambda x, y: torch.log2(x),
    "log10": lambda x, y: torch.log10(x),
    "atan2": torch.atan2,
}
POWERS = 2.0 ** torch.arange(-1000, 1001, 100, dtype=torch.float64)


class All(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: function(x, y) for name, function in FUNCTIONS.items()}


class Angle(nn.Module):
    def forward(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.atan2(y, x)


class Wave(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + torch.remainder(x, 3.0)


def test_written_out_functions_are_right_over_the_whole_range() -> None:
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.625, math.sqrt(2) - 1], dtype=torch.float64)
    pairs = torch.cartesian_prod(odd, odd)
    ramp = torch.cat([torch.linspace(-8, 8, 401, dtype=torch.float64), POWERS, -POWERS])
    x = torch.cat([ramp, pairs[:, 0]])
    y = torch.cat([ramp[torch.randperm(len(ramp), generator=torch.Generator().manual_seed(0))], pairs[:, 1]])
    got = ms.compile(All(), (x, y), target="iree-cpu")(x, y)
    for name, expected in All()(x, y).items():
        torch.testing.assert_close(got[name], expected, rtol=2e-15, atol=1e-307, equal_nan=True, msg=lambda m, n=name: n + m)
        known = ~expected.isnan()
        assert torch.equal(torch.signbit(got[name])[known], torch.signbit(expected)[known]), name
    exact = torch.isin(x, POWERS)
    assert torch.equal(got["log2"][exact], torch.log2(x[exact]))


def test_angles_of_zeros_and_infinities_in_single_precision() -> None:
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -3e-37, 2e37])
    y, x = torch.cartesian_prod(odd, odd).unbind(-1)
    got, expected = ms.compile(Angle(), (y, x), target="iree-cpu")(y, x), torch.atan2(y, x)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(got)[~expected.isnan()], torch.signbit(expected)[~expected.isnan()])


def test_what_has_no_expansion_is_refused_with_its_line() -> None:
    with pytest.raises(UnsupportedError, match="2 operation") as caught:
        ms.compile(Wave(), (torch.ones(3, dtype=torch.float64),), target="iree-cpu")
    assert [op.op for op in caught.value.ops] == ["math.sin(float64)", "arith.remf(float64)"]
    line = inspect.getsourcelines(Wave.forward)[1] + 1
    assert [op.source and op.source.line for op in caught.value.ops] == [line, line]
