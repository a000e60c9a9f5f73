"""Elementary functions on f32 vectors as polynomials: builders of arith and math.fma ops, no calls, no tables.

Functions of a vector math library keep no register across a call; these are inlined and scheduled among the ops around
them.  Coefficients are minimax fits of the relative error (iteratively reweighted least squares after Lawson, 1961), of a
polynomial for exp, of x·P(x²)/Q(x²) for erf and tanh; the tests measure the errors against float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlirstack.bindings import dialect, ir

# e^r on |r| ≤ ln(2)/2, relative error 3e-9.
_EXP = (
    1.0, 1.0, 0.4999999343195902, 0.16666520397386753, 0.04166839081735692, 0.00836874526279278, 0.0013814538575814728,
)  # fmt: skip
_LN2_HIGH, _LN2_LOW, _LOG2_E = 0.693359375, -2.12194440e-4, 1.44269504088896341
_ROUNDING = 12582912.0  # 1.5 · 2^23: adding it leaves the nearest integer in the low bits of an f32

# |x| > 3.925 gives ±1 in f32.
_ERF_P = (
    1.1283791458042378, 0.19059046673247337, 0.05276888139912707, 0.0037724163893317216, 0.0002848417332583702,
    2.0460664380474527e-06,
)  # fmt: skip
_ERF_Q = (
    1.0, 0.5022391342852093, 0.11418137919322299, 0.014982926133920604, 0.0011638278056934667, 3.8048090485912565e-05,
)  # fmt: skip
_ERF_LIMIT = 3.925

_TANH_P = (0.9999999795091646, 0.13381023325402366, 0.0034955853638225553, 2.0609037665908118e-05, 1.3354601830725463e-08)
_TANH_Q = (1.0, 0.46714338933274185, 0.025876971691127182, 0.00032856303256985125, 7.776533406744838e-07)
_TANH_LIMIT = 9.0


class _Vectors:
    """Short names for ops on vectors of one f32 type, built at the current insertion point."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.integers = ir.VectorType.get(kind.shape, ir.IntegerType.get_signless(32))
        self.arith, self.math = dialect("arith"), dialect("math")

    def constant(self, value: float) -> Any:
        element = ir.FloatAttr.get(ir.F32Type.get(), value)
        return self.arith.constant(self.kind, ir.DenseElementsAttr.get_splat(self.kind, element))

    def integer(self, value: int) -> Any:
        element = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)
        return self.arith.constant(self.integers, ir.DenseElementsAttr.get_splat(self.integers, element))

    def polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        """Horner's scheme, lowest coefficient first."""
        result = self.constant(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.math.fma(result, x, self.constant(coefficient))
        return result

    def at_most(self, x: Any, limit: float) -> Any:
        """min(x, limit); NaN stays NaN (the comparison is false for it)."""
        return self._select("OGT", x, limit)

    def at_least(self, x: Any, limit: float) -> Any:
        """max(x, limit); NaN stays NaN."""
        return self._select("OLT", x, limit)

    def _select(self, predicate: str, x: Any, limit: float) -> Any:
        bound = self.constant(limit)
        condition = self.arith.cmpf(getattr(self.arith.CmpFPredicate, predicate), x, bound)
        return self.arith.select(condition, bound, x)

    def clamp(self, x: Any, limit: float) -> Any:
        return self.at_least(self.at_most(x, limit), -limit)

    def rational(self, x: Any, p: Sequence[float], q: Sequence[float], limit: float) -> Any:
        """x·P(x²)/Q(x²) for |x| up to ``limit``, constant beyond, never outside of [-1, 1]."""
        x = self.clamp(x, limit)
        square = self.arith.mulf(x, x)
        numerator = self.arith.mulf(x, self.polynomial(square, p))
        return self.clamp(self.arith.divf(numerator, self.polynomial(square, q)), 1.0)


def exp(x: Any) -> Any:
    """e^x: x = n·ln 2 + r, e^r by polynomial, 2^n in two factors so that subnormal results and overflow come out right."""
    v = _Vectors(x.type)
    a = v.arith
    x = v.clamp(x, 105.0)
    shifted = v.math.fma(x, v.constant(_LOG2_E), v.constant(_ROUNDING))
    n = a.subf(shifted, v.constant(_ROUNDING))
    r = v.math.fma(n, v.constant(-_LN2_HIGH), x)
    r = v.math.fma(n, v.constant(-_LN2_LOW), r)
    power = v.polynomial(r, _EXP)
    bits = a.subi(a.bitcast(v.integers, shifted), a.bitcast(v.integers, v.constant(_ROUNDING)))
    half = a.shrsi(bits, v.integer(1))
    for part in (half, a.subi(bits, half)):
        scale = a.shli(a.addi(part, v.integer(127)), v.integer(23))
        power = a.mulf(power, a.bitcast(v.kind, scale))
    return power


def erf(x: Any) -> Any:
    """The error function."""
    return _Vectors(x.type).rational(x, _ERF_P, _ERF_Q, _ERF_LIMIT)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return _Vectors(x.type).rational(x, _TANH_P, _TANH_Q, _TANH_LIMIT)


POLYNOMIALS: dict[str, Callable[[Any], Any]] = {"math.exp": exp, "math.erf": erf, "math.tanh": tanh}
