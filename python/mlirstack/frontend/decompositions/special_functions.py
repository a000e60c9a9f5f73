"""Functions of statistics that torch-mlir does not know, by formulas of elementary ones; all are computed in float64.

The complementary error function is a Gaussian times a series in Chebyshev polynomials; the logarithm of the gamma function
and its derivative are Stirling's series behind a shift, and a power series around 1 and 2, where the first has its zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend

aten = torch.ops.aten

# exp(x²)·erfc(x)·(1 + x / 2) in Chebyshev polynomials of 4 / (2 + x) - 1, x not negative.
_SCALED_ERFC = (
    0.5770337386164697, 0.3554369212704985, 0.06509515882878653, 0.003671142395836639, -0.0011128447433526325,
    -0.0001607582991537808, 3.278031574173137e-05, 5.442441645505016e-06, -1.5154665553171482e-06,
    -1.4297608181169865e-07, 8.234608827419493e-08, -1.2962846852306563e-09, -4.154721631015199e-09,
    6.347058278362811e-10, 1.4320822712256225e-10, -6.160390105204585e-11, 2.0612138554721698e-12,
    3.5714931488477042e-12, -8.586422843251796e-13, -6.14560021379063e-14, 7.418725748596617e-14,
    -1.2895042755032325e-14, -2.358726385710632e-15, 1.5729349381685912e-15, -2.2782966239546465e-16,
    -6.31233045075643e-17, 3.5916763531814925e-17,
)  # fmt: skip
# (-1)ᵏ (ζ(k) - 1) / k from k = 2 on: log Γ(1 + z) + log(1 + z) is z less Euler's constant times z, and these times zᵏ.
_ZETA = (
    0.3224670334241132, -0.0673523010531981, 0.020580808427784546, -0.007385551028673986, 0.0028905103307415234,
    -0.001192753911703261, 0.0005096695247430425, -0.00022315475845357939, 9.945751278180853e-05,
    -4.492623673813314e-05, 2.050721277567069e-05, -9.439488275268397e-06, 4.374866789907488e-06,
    -2.039215753801366e-06, 9.55141213040742e-07, -4.492469198764566e-07, 2.1207184805554665e-07,
    -1.0043224823968099e-07, 4.7698101693639804e-08, -2.2711094608943164e-08, 1.0838659214896955e-08,
    -5.183475041970047e-09, 2.4836745438024785e-09, -1.1921401405860912e-09, 5.731367241678862e-10,
    -2.7595228851242334e-10, 1.330476437424449e-10,
)  # fmt: skip
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)  # of 1 / x, 1 / x³, …
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)  # of 1 / x², 1 / x⁴, …
_EULER = 0.57721566490153286
_SHIFT = 10  # from where on the series hold


def add_special_function_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; integers become float32, half precision is rounded once."""
    for op, function in (
        (aten.erfc.default, _erfc),
        (aten.special_erfcx.default, _erfcx),
        (aten.erfinv.default, _erfinv),
        (aten.special_ndtr.default, lambda x: 0.5 * _erfc(x * -math.sqrt(0.5))),
        (aten.special_log_ndtr.default, _log_ndtr),
        (aten.lgamma.default, _lgamma),
        (aten.digamma.default, _digamma),
    ):
        table[op] = _in_float64(function)
    extend(table, aten.sinc.default, _sinc)


def _in_float64(function: Callable[[Tensor], Tensor]) -> Decomposition:
    def decomposition(x: Tensor) -> Tensor:
        return function(x.to(torch.float64)).to(x.dtype if x.is_floating_point() else torch.get_default_dtype())

    return decomposition


def _sinc(x: Tensor) -> Any:
    """Of what is so small that its square counts for nothing 1: a subnormal number has no reciprocal."""
    if not x.is_floating_point():
        return NotImplemented
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    angle = torch.where(wide.abs() < 1e-20, 1.0, wide * math.pi)
    return torch.where(wide.abs() < 1e-20, 1.0, torch.sin(angle) / angle).to(x.dtype)


# ----------------------------------------------------------------------------------------------------- complementary error


def _erfc(x: Tensor) -> Tensor:
    gauss = _gauss(x)
    # Where the Gaussian is zero, or NaN, so is the tail.
    tail = torch.where(gauss == 0, gauss, gauss * _scaled_tail(x.abs()))
    return torch.where(x < 0, 2.0 - tail, tail)


def _erfcx(x: Tensor) -> Tensor:
    tail = _scaled_tail(x.abs())
    return torch.where(x < 0, 2.0 / _gauss(x) - tail, tail)


def _log_ndtr(x: Tensor) -> Tensor:
    """The logarithm of the normal distribution; of its tail without the exponential."""
    scaled = x * -math.sqrt(0.5)
    low = torch.clamp(scaled, min=0.0)
    tail = torch.log(0.5 * _scaled_tail(low)) - low * low
    return torch.where(scaled > 0.5, tail, torch.log1p(-0.5 * _erfc(-scaled)))


def _gauss(x: Tensor) -> Tensor:
    """``exp(-x²)``: the square of the leading bits is exact, and only what is left of it is rounded."""
    size = torch.clamp(x.abs(), max=30.0)
    leading = size.to(torch.float32).to(torch.float64)
    return torch.exp(-(leading * leading)) * torch.exp((leading - size) * (leading + size))


def _scaled_tail(x: Tensor) -> Tensor:
    """``exp(x²)·erfc(x)`` where ``x`` is not negative."""
    t = 2.0 / (2.0 + x)
    return t * _chebyshev(2.0 * t - 1.0, _SCALED_ERFC)


def _chebyshev(u: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The sum of Chebyshev polynomials of ``u`` by Clenshaw's recurrence."""
    double = 2.0 * u
    one, two = double * coefficients[-1] + coefficients[-2], torch.full((), coefficients[-1], dtype=u.dtype)
    for coefficient in reversed(coefficients[1:-2]):
        one, two = double * one - two + coefficient, one
    return u * one - two + coefficients[0]


def _erfinv(y: Tensor) -> Tensor:
    """Winitzki's approximation, made exact by two of Halley's steps on ``erfc`` of the tail, which loses nothing near 1."""
    size = y.abs()
    tail = 1.0 - size
    log = torch.log(tail) + torch.log1p(size)
    half = 2.0 / (math.pi * 0.147) + 0.5 * log
    x = torch.sqrt(torch.clamp(torch.sqrt(half * half - log / 0.147) - half, min=0.0))
    for _ in range(2):
        error = torch.where(size < 0.5, size - torch.erf(x), _erfc(x) - tail)
        step = error * (math.sqrt(math.pi) / 2.0) / _gauss(x)
        x = x + step / (1.0 - x * step)
    x = torch.where(size < 1e-150, size * (math.sqrt(math.pi) / 2.0), x)
    x = torch.where(size == 1.0, math.inf, torch.where(size > 1.0, math.nan, x))
    return torch.where(y < 0, -x, torch.where(y == 0, y, x))


# ------------------------------------------------------------------------------------------------------------------ gamma


def _lgamma(x: Tensor) -> Tensor:
    size = x.abs()
    positive = torch.where(torch.logical_and(size >= 0.5, size <= 2.5), _lgamma_near_zeros(size), _lgamma_far(size))
    reflected = math.log(math.pi) - torch.log(size) - torch.log(_sine_of_turns(size)) - positive
    # All numbers so large are whole.
    reflected = torch.where(size >= 2.0**52, math.inf, reflected)
    return torch.where(x < 0, reflected, positive)


def _lgamma_near_zeros(x: Tensor) -> Tensor:
    first = x < 1.5
    z = torch.where(first, x - 1.0, x - 2.0)
    z = torch.clamp(z, -0.5, 0.5)
    series = z * ((1.0 - _EULER) + z * _polynomial(z, _ZETA))
    return torch.where(first, series - torch.log1p(z), series)


def _lgamma_far(x: Tensor) -> Tensor:
    """Of numbers that are not negative; a product of what is below the shift takes small ones there."""
    low = torch.clamp(x, max=float(_SHIFT))
    product = low
    for step in range(1, _SHIFT):
        product = product * (low + float(step))
    shifted = torch.where(x < _SHIFT, x + float(_SHIFT), x)
    inverse = 1.0 / shifted
    series = inverse * _polynomial(inverse * inverse, _STIRLING)
    stirling = (shifted - 0.5) * (torch.log(shifted) - 1.0) + (0.5 * math.log(2.0 * math.pi) - 0.5) + series
    # A zero of either sign has the logarithm of its magnitude.
    return torch.where(x < _SHIFT, stirling - torch.log(product.abs()), stirling)


def _digamma(x: Tensor) -> Tensor:
    size = torch.where(x < 0, 1.0 - x, x)
    low = torch.clamp(size, max=float(_SHIFT))
    shift: Tensor | float = 0.0
    for step in range(_SHIFT):
        shift = 1.0 / (low + float(step)) + shift
    shifted = torch.where(size < _SHIFT, size + float(_SHIFT), size)
    inverse = 1.0 / shifted
    square = inverse * inverse
    series = torch.log(shifted) - 0.5 * inverse - square * _polynomial(square, _DIGAMMA)
    positive = torch.where(size < _SHIFT, series - shift, series)
    rest = x - torch.trunc(x)
    reflected = positive - math.pi * torch.cos(math.pi * rest) / torch.sin(math.pi * rest)
    # At whole numbers below zero it has no limit, at zero one of the other sign.
    reflected = torch.where(torch.logical_or(rest == 0, x == -math.inf), math.nan, reflected)
    # Not by the sign's bit: of a float64 that was one bfloat16, LLVM's code generator fails on it.
    return torch.where(x == 0, -1.0 / x, torch.where(x < 0, reflected, positive))


def _sine_of_turns(x: Tensor) -> Tensor:
    """The magnitude of ``sin(πx)`` where ``x`` is not negative, exact at whole numbers."""
    rest = x - torch.floor(x)
    return torch.sin(math.pi * torch.where(rest > 0.5, 1.0 - rest, rest))


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Horner's scheme, lowest coefficient first."""
    result: Tensor | float = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        result = x * result + coefficient
    assert isinstance(result, Tensor)
    return result
