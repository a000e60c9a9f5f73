"""Hyperbolic functions, their inverses and powers of two, written out in f64.

None is a difference of nearly equal numbers, and none overflows before its result does.
"""

from __future__ import annotations

import math
from typing import Any

from mlirstack.bindings import dialect
from mlirstack.passes.iree.double_values import at_most, constant, i64, integer, select
from mlirstack.passes.iree.powers import expm1, log1p

_ALONE = 22.0  # from here on exp(-x) is nothing next to exp(x)
_SQUARED = 2.0**28  # from here on one is nothing next to the square
_SHORT = 1e-3  # below, two terms of the series of sinh are right to 48 bits
_EXPONENTS = 1100.0  # beyond: 2 to the power of it is zero or infinity


def sinh(x: Any) -> Any:
    """sinh(x) for an f64."""
    a, m = dialect("arith"), dialect("math")
    size = m.absf(x)
    growth = expm1(at_most(size, _ALONE))
    both = a.addf(growth, a.divf(growth, a.addf(growth, constant(1.0))))
    small = a.mulf(constant(0.5), both)
    return m.copysign(select("OLT", size, constant(_ALONE), small, _half_exp(size)), x)


def cosh(x: Any) -> Any:
    """cosh(x) for an f64."""
    a, m = dialect("arith"), dialect("math")
    size = m.absf(x)
    growth = m.exp(at_most(size, _ALONE))
    small = a.mulf(constant(0.5), a.addf(growth, a.divf(constant(1.0), growth)))
    return select("OLT", size, constant(_ALONE), small, _half_exp(size))


def _half_exp(x: Any) -> Any:
    """exp(x)/2, finite where exp(x) is no longer."""
    a = dialect("arith")
    root = dialect("math").exp(a.mulf(x, constant(0.5)))
    return a.mulf(a.mulf(root, constant(0.5)), root)


def short_sinh(x: Any) -> Any:
    """sinh(x) for an f64 that was an f32 or less, right to 40 bits and more: its exponential does not overflow too early."""
    a, m = dialect("arith"), dialect("math")
    size = m.absf(x)
    growth = m.exp(size)
    large = a.mulf(constant(0.5), a.subf(growth, a.divf(constant(1.0), growth)))
    series = a.addf(size, a.mulf(a.mulf(a.mulf(size, size), size), constant(1 / 6)))
    return m.copysign(select("OLT", size, constant(_SHORT), series, large), x)


def short_cosh(x: Any) -> Any:
    """cosh(x), as :func:`short_sinh`."""
    a, m = dialect("arith"), dialect("math")
    growth = m.exp(m.absf(x))
    return a.mulf(constant(0.5), a.addf(growth, a.divf(constant(1.0), growth)))


def asinh(x: Any) -> Any:
    """asinh(x) for an f64."""
    a, m = dialect("arith"), dialect("math")
    one, size = constant(1.0), m.absf(x)
    low = at_most(size, _SQUARED)
    square = a.mulf(low, low)
    small = log1p(a.addf(low, a.divf(square, a.addf(one, m.sqrt(a.addf(square, one))))))
    return m.copysign(select("OLT", size, constant(_SQUARED), small, _log_of_double(size)), x)


def acosh(x: Any) -> Any:
    """acosh(x) for an f64; NaN below one."""
    a, m = dialect("arith"), dialect("math")
    one = constant(1.0)
    above = a.subf(at_most(x, _SQUARED), one)
    small = log1p(a.addf(above, m.sqrt(a.mulf(above, a.addf(above, constant(2.0))))))
    value = select("OLT", x, constant(_SQUARED), small, _log_of_double(x))
    return select("OLT", x, one, constant(math.nan), value)


def _log_of_double(x: Any) -> Any:
    return dialect("arith").addf(dialect("math").log(x), constant(math.log(2)))


def atanh(x: Any) -> Any:
    """atanh(x) for an f64; NaN beyond one, infinity at it."""
    a, m = dialect("arith"), dialect("math")
    size = m.absf(x)
    value = a.mulf(constant(0.5), log1p(a.divf(a.addf(size, size), a.subf(constant(1.0), size))))
    return m.copysign(value, x)


def exp2(x: Any) -> Any:
    """2 to the power of an f64: the nearest whole number makes the exponent, exactly, in two steps that do not overflow."""
    a, m = dialect("arith"), dialect("math")
    bounded = a.maximumf(at_most(x, _EXPONENTS), constant(-_EXPONENTS))
    whole = m.roundeven(bounded)
    rest = m.exp(a.mulf(a.subf(bounded, whole), constant(math.log(2))))
    known = a.fptosi(i64(), select("ORD", whole, whole, whole, constant(0.0)))
    half = a.shrsi(known, integer(1))
    for part in (half, a.subi(known, half)):
        bits = a.shli(a.addi(part, integer(1023)), integer(52))
        rest = a.mulf(rest, a.bitcast(x.type, bits))
    return rest


def short_exp2(x: Any) -> Any:
    """2 to the power of an f64 that was an f32 or less: exponents up to 2^8 leave 44 bits right."""
    return dialect("math").exp(dialect("arith").mulf(x, constant(math.log(2))))
