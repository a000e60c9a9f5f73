"""Functions of float64 on target iree-cpu, whose code has no mathematical library: written out.

Angles and remainders may be of any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

import mlirstack as ms

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
    "log1p": lambda x, y: torch.log1p(x),
    "expm1": lambda x, y: torch.expm1(x),
}
POWERS = 2.0 ** torch.arange(-1000, 1001, 100, dtype=torch.float64)


class All(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: function(x, y) for name, function in FUNCTIONS.items()}


class Angle(nn.Module):
    def forward(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.atan2(y, x)


class Waves(nn.Module):
    def forward(self, angles: dict[str, torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        return {name: [torch.sin(x), torch.cos(x), torch.tan(x)] for name, x in angles.items()}


class Remainder(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.fmod(x, y)


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


def test_angles_of_any_size() -> None:
    """Multiples of an eighth of a turn, powers of two up to the largest, the f64 that is nearest to a quarter turn."""
    turns = torch.arange(-200, 201, dtype=torch.float64) * math.pi / 4
    odd = torch.tensor([6381956970095103 * 2.0**797, -0.0, math.nan, math.inf, -math.inf], dtype=torch.float64)
    sizes = 1.7 * 2.0 ** torch.arange(-20, 1000, dtype=torch.float64)
    doubles = torch.cat([turns, sizes, -sizes, odd])
    angles = {
        "f64": doubles,
        "f32": doubles.float(),
        "bf16": doubles.bfloat16(),
        "i32": doubles[doubles.abs() < 2**31].int(),
    }
    got = ms.compile(Waves(), (angles,), target="iree-cpu")(angles)
    exact = Waves()({name: (x if x.is_floating_point() else x.float()).double() for name, x in angles.items()})
    for name, values in got.items():
        for value, expected in zip(values, exact[name], strict=True):
            rounding = 2 * torch.finfo(value.dtype).eps
            torch.testing.assert_close(value.double(), expected, rtol=rounding, atol=0, equal_nan=True)


def test_remainders_whatever_the_quotient_is() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = 1.0 + torch.rand(2, 400, dtype=torch.float64, generator=generator)
    x, y = sizes * 2.0 ** torch.randint(-500, 500, (2, 400), generator=generator)
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0, -3.0, 2.0**53 - 1], dtype=torch.float64)
    pairs = torch.cartesian_prod(odd, odd)
    x, y = torch.cat([x, -x, pairs[:, 0]]), torch.cat([y, y, pairs[:, 1]])
    got = ms.compile(Remainder(), (x, y), target="iree-cpu")(x, y)
    exact = [
        math.fmod(a, b) if math.isfinite(a) and b and not math.isnan(b) else math.nan
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    torch.testing.assert_close(got, torch.tensor(exact, dtype=torch.float64), rtol=0, atol=0, equal_nan=True)


class Powers(nn.Module):
    def forward(self, pairs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: torch.pow(x, y) for name, (x, y) in pairs.items()}


def test_powers_of_what_has_no_logarithm() -> None:
    odd = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -2.5, 2.0**24, 4e9]
    every = torch.cartesian_prod(*[torch.tensor(odd, dtype=torch.float64)] * 2).T.contiguous()
    pairs = {"f64": every, "f32": every.float(), "bf16": every.bfloat16()}
    got = ms.compile(Powers(), (pairs,), target="iree-cpu", route="linalg")(pairs)
    for name, expected in Powers()(pairs).items():
        rounding = 64 * torch.finfo(expected.dtype).eps  # of the exponent, as large as it may be
        torch.testing.assert_close(got[name], expected, rtol=rounding, atol=0, equal_nan=True)
        known = ~expected.isnan()
        assert torch.equal(torch.signbit(got[name])[known], torch.signbit(expected)[known]), name


class Curves(nn.Module):
    def forward(self, numbers: dict[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
        return {name: {key: curve(x) for key, curve in CURVES.items()} for name, x in numbers.items()}


CURVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: getattr(torch, name) for name in ("sinh", "cosh", "asinh", "acosh", "atanh", "exp2", "log10", "atan")},
    "power": lambda x: torch.pow(x.abs(), x),
    **{f"x**{exponent}": lambda x, n=exponent: torch.pow(x, n) for exponent in (2.0, 3.0, -1.0)},  # type: ignore[misc]
}


@pytest.mark.parametrize("route", ["linalg", "auto"])
def test_every_number_of_a_curve_is_right_to_its_last_bits(route: str) -> None:
    """Small numbers by their relative error, the last ones before the overflow, and those that have no finite answer."""
    sizes = 1.3 * 2.0 ** torch.arange(-100, 100, dtype=torch.float64)
    edges = [0.0, 1.0, math.inf, 88.8, 89.3, 128.0, 127.9, 1023.5, 0.999, 1.001]
    both = torch.cat([sizes, torch.linspace(0, 12, 301, dtype=torch.float64), torch.tensor(edges, dtype=torch.float64)])
    doubles = torch.cat([both, -both, torch.tensor([math.nan], dtype=torch.float64)])
    numbers = {"f64": doubles, "f32": doubles.float(), "f16": doubles.half(), "bf16": doubles.bfloat16()}
    got = ms.compile(Curves(), (numbers,), target="iree-cpu", route=route)(numbers)
    exact = Curves()({name: x.double() for name, x in numbers.items()})
    for name, curves in got.items():
        for key, value in curves.items():
            info, expected = torch.finfo(value.dtype), exact[name][key]
            steps = 256 if key == "power" and name == "f64" else 2  # of the exponent, as large as it may be
            rounded = expected.to(value.dtype).double()
            torch.testing.assert_close(
                value.double(), rounded, rtol=steps * 2 * info.eps, atol=info.tiny, equal_nan=True,
                msg=lambda m, n=name, k=key: f"{n} {k}: {m}",
            )  # fmt: skip
            known = ~expected.isnan()
            assert torch.equal(torch.signbit(value)[known], torch.signbit(expected)[known]), (name, key)


class Tails(nn.Module):
    def forward(self, single: torch.Tensor, double: torch.Tensor) -> list[torch.Tensor]:
        return [torch.sinh(single), torch.cosh(single), torch.sinh(double), torch.cosh(double)]


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
def test_hyperbolic_functions_are_finite_where_the_exponential_is_not(target: str) -> None:
    """Eager's own code for long tensors is infinite there, so that the answers are those of Python."""
    single = torch.tensor([88.8, 89.3, -89.3] * 20)
    double = torch.tensor([709.9, 710.4, -710.4] * 20, dtype=torch.float64)
    got = ms.compile(Tails(), (single, double), target=target, route="linalg")(single, double)
    for value, function, x in zip(got, [math.sinh, math.cosh] * 2, [single, single, double, double], strict=True):
        expected = torch.tensor([function(number) for number in x.tolist()], dtype=torch.float64)
        rounding = 4 * torch.finfo(value.dtype).eps
        torch.testing.assert_close(value.double(), expected, rtol=rounding, atol=0)


class Slopes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.atan(x)


@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_arc_tangents_keep_their_last_bits_on_the_route_that_is_taken(target: str, dtype: torch.dtype) -> None:
    x = torch.cat([torch.linspace(-3, 3, 1001), 2.0 ** torch.arange(-14.0, 15.0)]).to(dtype)
    got = ms.compile(Slopes(), (x,), target=target)(x)
    torch.testing.assert_close(got.double(), torch.atan(x.double()), rtol=2 * torch.finfo(dtype).eps, atol=0)
