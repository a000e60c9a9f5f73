"""Builders of f64 arithmetic that functions are written out with: constants, polynomials, selections, exact sums.

Each takes and gives values of scalars, and adds its operations at the current insertion point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlirstack.bindings import dialect, ir


def i64() -> Any:
    """The type of the bits of an f64."""
    return ir.IntegerType.get_signless(64)


def constant(value: float) -> Any:
    """An f64."""
    return dialect("arith").constant(ir.F64Type.get(), value)


def integer(value: int) -> Any:
    """An i64."""
    return dialect("arith").constant(i64(), value)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Horner's scheme, lowest coefficient first."""
    arith = dialect("arith")
    result = constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = arith.addf(arith.mulf(result, x), constant(coefficient))
    return result


def ratio(x: Any, p: Sequence[float], q: Sequence[float]) -> Any:
    """The quotient of two polynomials."""
    return dialect("arith").divf(polynomial(x, p), polynomial(x, q))


def at_most(x: Any, limit: float) -> Any:
    """The lesser of the two; NaN stays NaN."""
    return dialect("arith").minimumf(x, constant(limit))


def select(predicate: str, x: Any, y: Any, then: Any, otherwise: Any) -> Any:
    """``then`` where the comparison of ``x`` and ``y`` holds."""
    arith = dialect("arith")
    return arith.select(arith.cmpf(getattr(arith.CmpFPredicate, predicate), x, y), then, otherwise)


def select_integer(predicate: str, x: Any, y: Any, then: Any, otherwise: Any) -> Any:
    """As :func:`select`, by a comparison of integers."""
    arith = dialect("arith")
    return arith.select(arith.cmpi(getattr(arith.CmpIPredicate, predicate), x, y), then, otherwise)
