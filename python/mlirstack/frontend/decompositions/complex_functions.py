"""Functions, powers, products and truth values of complex numbers, as real arithmetic on their two parts.

The conversion to linalg takes complex numbers for real ones in these operations: it fails, or ends the process
(torch-mlir 20261001).  Formulas are W. Kahan's where the usual ones lose digits, or the sign of a zero on a branch cut.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.complex_numbers import if_complex, magnitude, parts, sides
from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.decompositions.powers import MAX_EXPONENT, whole_power

aten = torch.ops.aten

_FAR = 20.0  # from here on the hyperbolic tangent is one, to all digits of float64


def add_complex_function_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for real tensors."""
    rules: dict[Any, Decomposition] = {
        aten.isnan.default: lambda a: a.real.isnan() | a.imag.isnan(),
        aten.isinf.default: lambda a: a.real.isinf() | a.imag.isinf(),
        aten.nan_to_num.default: _nan_to_num,
        aten.eq.Tensor: _equal,
        aten.eq.Scalar: _equal,
        aten.ne.Tensor: lambda a, b: ~_equal(a, b),
        aten.ne.Scalar: lambda a, b: ~_equal(a, b),
        aten.all.default: lambda a: _truth(a).all(),
        aten.all.dim: lambda a, *dim, **options: _truth(a).all(*dim, **options),
        aten.logical_not.default: lambda a: ~_truth(a),
        aten.logical_and.default: lambda a, b: _truth(a) & _truth(b),
        aten.logical_or.default: lambda a, b: _truth(a) | _truth(b),
        aten.logical_xor.default: lambda a, b: _truth(a) ^ _truth(b),
        aten.expm1.default: _expm1,
        aten.exp2.default: lambda a: torch.exp(_times(a, math.log(2.0))),
        aten.log.default: _log,
        aten.log1p.default: _log1p,
        aten.log2.default: lambda a: _times(_log(a), 1.0 / math.log(2.0)),
        aten.log10.default: lambda a: _times(_log(a), 1.0 / math.log(10.0)),
        aten.sqrt.default: _sqrt,
        aten.rsqrt.default: lambda a: 1.0 / _sqrt(a),
        aten.sin.default: lambda a: torch.complex(a.real.sin() * a.imag.cosh(), a.real.cos() * a.imag.sinh()),
        aten.cos.default: lambda a: torch.complex(a.real.cos() * a.imag.cosh(), -a.real.sin() * a.imag.sinh()),
        aten.sinh.default: lambda a: torch.complex(a.real.sinh() * a.imag.cos(), a.real.cosh() * a.imag.sin()),
        aten.cosh.default: lambda a: torch.complex(a.real.cosh() * a.imag.cos(), a.real.sinh() * a.imag.sin()),
        aten.tan.default: functools.partial(_turned, _tanh),
        aten.tanh.default: _tanh,
        aten.asin.default: _asin,
        aten.acos.default: _acos,
        aten.atan.default: functools.partial(_turned, _atanh),
        aten.asinh.default: functools.partial(_turned, _asin),
        aten.acosh.default: _acosh,
        aten.atanh.default: _atanh,
        aten.sigmoid.default: _sigmoid,
        aten.silu.default: lambda a: a * _sigmoid(a),
        aten.cumsum.default: _cumsum,
        aten.full_like.default: _full_like,
        aten.pow.Tensor_Scalar: _power,
        aten.pow.Tensor_Tensor: _power,
        aten.pow.Scalar: _power,
    }
    for op, rule in rules.items():
        extend(table, op, functools.partial(if_complex, rule))
    extend(table, aten.prod.default, _prod)
    extend(table, aten.prod.dim_int, _prod)
    extend(table, aten.scalar_tensor.default, _scalar_tensor)


# ---------------------------------------------------------------------------------------------------------- truth values


def _truth(a: Tensor) -> Tensor:
    return (a.real != 0) | (a.imag != 0) if a.is_complex() else a != 0


def _equal(a: Any, b: Any) -> Tensor:
    dtype = torch.result_type(a, b).to_real()
    (ar, ai), (br, bi) = (_in_dtype(part, dtype) for part in (parts(a), parts(b)))
    return (ar == br) & (ai == bi)


def _in_dtype(pair: tuple[Any, Any], dtype: torch.dtype) -> tuple[Any, Any]:
    real, imaginary = (part.to(dtype) if isinstance(part, Tensor) else torch.full((), part, dtype=dtype) for part in pair)
    return real, imaginary


def _nan_to_num(a: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    return torch.complex(*(torch.nan_to_num(part, nan, posinf, neginf) for part in (a.real, a.imag)))


# ------------------------------------------------------------------------------------------------- exponents, logarithms


def _times(a: Tensor, number: float) -> Tensor:
    return torch.complex(a.real * number, a.imag * number)


def _turned(rule: Callable[[Tensor], Tensor], a: Tensor) -> Tensor:
    """``-i · rule(i · a)``."""
    found = rule(torch.complex(-a.imag, a.real))
    return torch.complex(found.imag, -found.real)


def _expm1(a: Tensor) -> Tensor:
    half = (a.imag * 0.5).sin()
    return torch.complex(a.real.expm1() * a.imag.cos() - 2.0 * half * half, a.real.exp() * a.imag.sin())


def _log(a: Tensor) -> Tensor:
    """Next to the circle of radius one, where the logarithm is small, from the distance to it."""
    large, small, ratio = sides(a.real, a.imag)
    near = (large > 0.5) & (large < 2.0)  # where squares lose nothing
    squares = torch.where(near, (large - 1.0) * (large + 1.0) + small * small, 0.0)
    length = torch.where(near, 0.5 * torch.log1p(squares), torch.log(large) + 0.5 * torch.log1p(ratio * ratio))
    return torch.complex(length, torch.atan2(a.imag, a.real))


def _log1p(a: Tensor) -> Tensor:
    x, y = a.real, a.imag
    whole = _log(torch.complex(1.0 + x, y))
    near = torch.maximum(x.abs(), y.abs()) < 0.5
    squares = torch.where(near, x * (2.0 + x) + y * y, 0.0)
    return torch.complex(torch.where(near, 0.5 * torch.log1p(squares), whole.real), whole.imag)


def _sqrt(a: Tensor) -> Tensor:
    """The root in the right half, from a sum that cancels nothing."""
    x, y = a.real, a.imag
    long = torch.sqrt(0.5 * magnitude(a) + 0.5 * x.abs())
    short = torch.where(long == 0, y.abs(), 0.5 * y.abs() / long)
    right = x >= 0
    return torch.complex(torch.where(right, long, short), torch.copysign(torch.where(right, short, long), y))


def _power(a: Any, b: Any) -> Any:
    """Small whole numbers as exponents are multiplications; all else is an exponential of the logarithm."""
    if not isinstance(b, Tensor) and b == int(b.real) and abs(b) <= MAX_EXPONENT:
        whole = _whole_power(a, int(b.real))
        return whole.to(torch.result_type(a, b))
    dtype = torch.result_type(a, b)
    ar, ai, br, bi = (*_in_dtype(parts(a), dtype.to_real()), *_in_dtype(parts(b), dtype.to_real()))
    ar, ai, br, bi = torch.broadcast_tensors(ar, ai, br, bi)  # type: ignore[no-untyped-call]
    logarithm = _log(torch.complex(ar, ai))
    found = torch.exp(torch.complex(br, bi) * logarithm)
    zero = (ar == 0) & (ai == 0)
    none = zero & (br > 0)
    one = (br == 0) & (bi == 0)
    real = torch.where(one, 1.0, torch.where(none, 0.0, found.real))
    return torch.complex(real, torch.where(one | none, 0.0, found.imag))


def _whole_power(a: Tensor, exponent: int) -> Tensor:
    return torch.reciprocal(whole_power(a, -exponent)) if exponent < 0 else whole_power(a, exponent)


def _sigmoid(a: Tensor) -> Tensor:
    """From the exponential that does not overflow."""
    left = a.real < 0
    small = torch.exp(torch.complex(-a.real.abs(), torch.where(left, a.imag, -a.imag)))
    above = torch.complex(torch.where(left, small.real, 1.0), torch.where(left, small.imag, 0.0))
    return above / torch.complex(1.0 + small.real, small.imag)


# ---------------------------------------------------------------------------------------- circular, hyperbolic functions


def _tanh(a: Tensor) -> Tensor:
    x, y = a.real, a.imag
    near = x.abs() < _FAR
    slope, sine = torch.tan(y), torch.sinh(torch.where(near, x, 0.0))
    square = 1.0 + slope * slope
    below = 1.0 + square * sine * sine
    real = torch.where(near, square * torch.sqrt(1.0 + sine * sine) * sine / below, torch.sign(x))
    far = 4.0 * torch.sin(y) * torch.cos(y) * torch.exp(-2.0 * x.abs())
    return torch.complex(real, torch.where(near, slope / below, far))


def _asin(a: Tensor) -> Tensor:
    below, above = _sqrt(torch.complex(1.0 - a.real, -a.imag)), _sqrt(torch.complex(1.0 + a.real, a.imag))
    real = torch.atan2(a.real, below.real * above.real - below.imag * above.imag)
    return torch.complex(real, torch.asinh(below.real * above.imag - below.imag * above.real))


def _acos(a: Tensor) -> Tensor:
    below, above = _sqrt(torch.complex(1.0 - a.real, -a.imag)), _sqrt(torch.complex(1.0 + a.real, a.imag))
    imaginary = torch.asinh(above.real * below.imag - above.imag * below.real)
    return torch.complex(2.0 * torch.atan2(below.real, above.real), imaginary)


def _acosh(a: Tensor) -> Tensor:
    below, above = _sqrt(torch.complex(a.real - 1.0, a.imag)), _sqrt(torch.complex(a.real + 1.0, a.imag))
    real = torch.asinh(below.real * above.real + below.imag * above.imag)
    return torch.complex(real, 2.0 * torch.atan2(below.imag, above.real))


def _atanh(a: Tensor) -> Tensor:
    x, y = a.real.abs(), a.imag
    distance = (1.0 - x) * (1.0 - x) + y * y
    real = torch.copysign(0.25 * torch.log1p(4.0 * x / distance), a.real)
    return torch.complex(real, 0.5 * torch.atan2(2.0 * y, (1.0 - x) * (1.0 + x) - y * y))


# --------------------------------------------------------------------------------------------------- products, constants


def _prod(a: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Products of halves, until one factor is left."""
    wanted = dtype or a.dtype
    if not wanted.is_complex:
        return NotImplemented
    a = a.to(wanted)
    axis = 0 if dim is None else dim % max(a.dim(), 1)
    rest = a.reshape(-1) if dim is None or not a.dim() else a
    count = rest.shape[axis]
    if not isinstance(count, int):
        return NotImplemented
    if not count:
        return torch.ones([size for i, size in enumerate(rest.shape) if i != axis or keepdim], dtype=wanted)
    while count > 1:
        half = count // 2
        product = rest.narrow(axis, 0, half) * rest.narrow(axis, half, half)
        rest = torch.cat([product, rest.narrow(axis, 2 * half, 1)], axis) if count % 2 else product
        count -= half
    return rest.reshape(()) if dim is None or not a.dim() else rest if keepdim else rest.squeeze(axis)


def _cumsum(a: Tensor, *args: Any, **kwargs: Any) -> Any:
    dtype = kwargs.pop("dtype", None) or a.dtype
    if not dtype.is_complex:
        return NotImplemented
    wide = a.to(dtype)
    return torch.complex(wide.real.cumsum(*args, **kwargs), wide.imag.cumsum(*args, **kwargs))


def _full_like(a: Tensor, number: complex, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return torch.full(a.shape, number, dtype=dtype or a.dtype, device=options.get("device") or a.device)


def _scalar_tensor(number: complex, **options: Any) -> Any:
    return torch.full((), number, **options) if isinstance(number, complex) else NotImplemented
