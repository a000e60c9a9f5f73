"""The remainder of f64 division written out in integers, exact whatever the quotient is.

With both significands as whole numbers it is ``x·2^d mod y``; the power of two is squared and doubled modulo ``y``, bit by
bit of ``d``.
"""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes.iree.double_values import constant, i64, integer, select, select_integer

_FRACTION_BITS = 52
_DISTANCE_BITS = 11  # of the difference of two exponents
_FIRST_BITS = 5  # of these are a power of two as they are


def remainder(x: Any, y: Any) -> Any:
    """x - y·trunc(x / y) for f64, with the sign of ``x``, as C's ``fmod``."""
    a, m = dialect("arith"), dialect("math")
    size, divisor = m.absf(x), m.absf(y)
    (significand, exponent), (modulus, smallest) = _parts(size), _parts(divisor)
    modulus = select_integer("eq", modulus, integer(0), integer(1), modulus)  # NaN then, see below
    distance = a.maxsi(a.subi(exponent, smallest), integer(0))
    power = _power_of_two(distance, modulus)
    rest = _product(a.remui(significand, modulus), power, modulus)
    value = _scaled(rest, smallest)
    value = select("OLT", size, divisor, size, value)
    infinite = constant(float("inf"))
    is_number = a.andi(a.cmpf(a.CmpFPredicate.OLT, size, infinite), a.cmpf(a.CmpFPredicate.OGT, divisor, constant(0.0)))
    return m.copysign(a.select(is_number, value, constant(float("nan"))), x)


def _parts(x: Any) -> tuple[Any, Any]:
    """Significand and exponent of an f64 that is no less than zero: x = significand · 2^(exponent - 1075)."""
    a = dialect("arith")
    bits = a.bitcast(i64(), x)
    fraction, exponent = a.andi(bits, integer((1 << _FRACTION_BITS) - 1)), a.shrui(bits, integer(_FRACTION_BITS))
    normal = a.ori(fraction, integer(1 << _FRACTION_BITS))
    return select_integer("eq", exponent, integer(0), fraction, normal), a.maxsi(exponent, integer(1))


def _power_of_two(exponent: Any, modulus: Any) -> Any:
    """2^exponent mod modulus, the exponent's first bits first."""
    a = dialect("arith")
    later = _DISTANCE_BITS - _FIRST_BITS
    power = a.remui(a.shli(integer(1), a.shrui(exponent, integer(later))), modulus)
    for place in reversed(range(later)):
        power = _product(power, power, modulus)
        doubled = _at_most_once(a.addi(power, power), modulus)
        bit = a.andi(a.shrui(exponent, integer(place)), integer(1))
        power = select_integer("ne", bit, integer(0), doubled, power)
    return power


def _product(x: Any, y: Any, modulus: Any) -> Any:
    """x·y mod modulus, for numbers below 2^53.

    The quotient in f64 is off by no more than two, and what is left of a product modulo 2^64 is all of that remainder.
    """
    a = dialect("arith")
    kind = ir.F64Type.get()
    factors = a.mulf(a.sitofp(kind, x), a.sitofp(kind, y))
    quotient = a.fptosi(i64(), a.divf(factors, a.sitofp(kind, modulus)))
    rest = a.subi(a.muli(x, y), a.muli(quotient, modulus))
    for _ in range(2):
        rest = select_integer("slt", rest, integer(0), a.addi(rest, modulus), rest)
    return _at_most_once(_at_most_once(rest, modulus), modulus)


def _at_most_once(x: Any, modulus: Any) -> Any:
    """``x``, less ``modulus`` where it is not below it."""
    a = dialect("arith")
    return select_integer("sge", x, modulus, a.subi(x, modulus), x)


def _scaled(number: Any, exponent: Any) -> Any:
    """number · 2^(exponent - 1075), in two steps, for the power alone may be too small."""
    a = dialect("arith")
    value = a.sitofp(ir.F64Type.get(), number)
    half = a.shrsi(a.subi(exponent, integer(1075)), integer(1))
    for part in (half, a.subi(a.subi(exponent, integer(1075)), half)):
        value = a.mulf(value, a.bitcast(value.type, a.shli(a.addi(part, integer(1023)), integer(_FRACTION_BITS))))
    return value
