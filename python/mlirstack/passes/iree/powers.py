"""Powers, and logarithms and exponentials next to zero, with eager's answers at the edges.

IREE's code takes a power apart into the exponential of a multiple of a logarithm: it knows no negative base, and is NaN for
whatever to the power of zero.  It has ``log(1 + x)`` and ``exp(x) - 1`` in f64 only as they are written here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes.iree.double_values import constant, select

_PRODUCTS: dict[float, Callable[[Any], Any]] = {
    2.0: lambda x: dialect("arith").mulf(x, x),
    3.0: lambda x: dialect("arith").mulf(dialect("arith").mulf(x, x), x),
    -1.0: lambda x: dialect("arith").divf(_number(x, 1.0), x),
}


def as_product(exponent: Any) -> Callable[[Any, Any], Any] | None:
    """What raises to a constant ``exponent`` by products, as eager does; None where it takes more."""
    product = _PRODUCTS.get(number_of(exponent) or 0.0)
    return None if product is None else lambda x, _: product(x)


def number_of(value: Any) -> float | None:
    """The number that ``value``, a float or an operand's element in a body of linalg, is known to be."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        place, inputs = ir.BlockArgument(value).arg_number, owner.owner.operands
        if not owner.owner.name.startswith("linalg.") or place >= len(inputs):
            return None
        owner = inputs[place].owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    attribute = owner.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        attribute = attribute.get_splat_value() if attribute.is_splat else None
    return float(attribute.value) if isinstance(attribute, ir.FloatAttr) else None


def power(x: Any, y: Any) -> Any:
    """x to the power of y for f32 and f64, that of the size of x with what its sign makes of it."""
    a, m = dialect("arith"), dialect("math")
    zero, one, infinite = (_number(x, value) for value in (0.0, 1.0, math.inf))
    size = m.absf(x)
    value = m.powf(size, y)
    is_unit = a.andi(a.cmpf(a.CmpFPredicate.OEQ, size, one), a.cmpf(a.CmpFPredicate.ORD, y, y))
    value = a.select(is_unit, one, value)
    is_whole = a.cmpf(a.CmpFPredicate.OEQ, m.floor(y), y)
    half = a.mulf(y, _number(x, 0.5))
    is_odd = a.andi(is_whole, a.cmpf(a.CmpFPredicate.UNE, m.floor(half), half))
    is_negative = a.cmpf(a.CmpFPredicate.OLT, m.copysign(one, x), zero)
    value = a.select(a.andi(is_odd, is_negative), a.negf(value), value)
    # Roots of negative numbers are none, but for negative infinity.
    is_root = a.andi(a.cmpf(a.CmpFPredicate.OLT, x, zero), a.cmpf(a.CmpFPredicate.OLT, size, infinite))
    is_broken = a.andi(is_root, a.cmpf(a.CmpFPredicate.UNE, m.floor(y), y))
    value = a.select(is_broken, _number(x, math.nan), value)
    is_one = a.ori(a.cmpf(a.CmpFPredicate.OEQ, x, one), a.cmpf(a.CmpFPredicate.OEQ, y, zero))
    return a.select(is_one, one, value)


def _number(like: Any, value: float) -> Any:
    return dialect("arith").constant(like.type, value)


def log1p(x: Any) -> Any:
    """log(1 + x) for f64, corrected by what the sum has lost (Kahan)."""
    a, m = dialect("arith"), dialect("math")
    one = constant(1.0)
    total = a.addf(one, x)
    corrected = a.mulf(m.log(total), a.divf(x, a.subf(total, one)))
    value = select("OEQ", total, one, x, corrected)
    return select("OEQ", x, constant(math.inf), x, value)


def expm1(x: Any) -> Any:
    """exp(x) - 1 for f64, corrected by what the exponential has lost (Kahan)."""
    a, m = dialect("arith"), dialect("math")
    one = constant(1.0)
    growth = m.exp(x)
    rest = a.subf(growth, one)
    corrected = a.mulf(rest, a.divf(x, m.log(growth)))
    value = select("OEQ", growth, one, x, corrected)
    value = select("OEQ", rest, constant(-1.0), rest, value)
    return select("OEQ", growth, constant(math.inf), growth, value)
