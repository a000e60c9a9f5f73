"""Sine, cosine and tangent written out in f64, for angles of any size.

An angle is multiplied by 2/π in pieces, of which whole turns are taken off before they are added: nothing is lost, however
large it is.  The polynomials on an eighth of a turn are those of fdlibm (Sun Microsystems).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from mlirstack.bindings import dialect
from mlirstack.passes.iree.double_values import constant, i64, integer, polynomial, select, select_integer

# sin(r) = r + r³·P(r²), cos(r) = 1 - r²/2 + r⁴·P(r²) on |r| ≤ π/4; lowest coefficient first.
_SIN = (
    -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04, 2.75573137070700676789e-06,
    -2.50507602534068634195e-08, 1.58969099521155010221e-10,
)  # fmt: skip
_COS = (
    4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05, -2.75573143513906633035e-07,
    2.08757232129817482790e-09, -1.13596475577881948265e-11,
)  # fmt: skip
_HALF_PI = (math.pi / 2, 6.123233995736766e-17)  # and what is missing

# Products of a 24-bit factor and 29 bits of 2/π are exact, as are those of half an f64's 53 bits and 26 bits.
_SHORT_BITS, _LONG_BITS = 29, 26
_SHORT_PIECES = 7  # for 24 bits below 2^128: what is left out is less than 2^-74
_LONG_PIECES = 12
_RANGE = 4 * _LONG_BITS  # exponents that take the same pieces of 2/π
_RANGES = -(-1024 // _RANGE)
_FIRST_HALF = -(1 << _LONG_BITS)  # mask of the upper 27 bits of an f64's significand

_Sum = tuple[Any, Any]  # a number and a small correction


def sine(x: Any, *, short: bool) -> Any:
    """sin(x) for an f64; ``short``: it has at most 24 bits and is below 2^128, as what was an f32."""
    m, a = dialect("math"), dialect("arith")
    quarters, r = _reduced(m.absf(x), short=short)
    value = _by_quarter(quarters, (_sin, _cos), r)
    negative = select_integer("ne", a.andi(quarters, integer(2)), integer(0), a.negf(value), value)
    # An angle's sign is its sine's, that of zero included.
    return a.mulf(negative, m.copysign(constant(1.0), x))


def cosine(x: Any, *, short: bool) -> Any:
    """cos(x), as :func:`sine`."""
    a = dialect("arith")
    quarters, r = _reduced(dialect("math").absf(x), short=short)
    value = _by_quarter(quarters, (_cos, _sin), r)
    turned = a.andi(a.addi(quarters, integer(1)), integer(2))
    return select_integer("ne", turned, integer(0), a.negf(value), value)


def tangent(x: Any, *, short: bool) -> Any:
    """tan(x), as :func:`sine`."""
    m, a = dialect("math"), dialect("arith")
    quarters, r = _reduced(m.absf(x), short=short)
    sin, cos = _sin(r), _cos(r)
    is_odd = _is_odd(quarters)
    value = a.divf(a.select(is_odd, a.negf(cos), sin), a.select(is_odd, sin, cos))
    return a.mulf(value, m.copysign(constant(1.0), x))


def _is_odd(quarters: Any) -> Any:
    a = dialect("arith")
    return a.cmpi(a.CmpIPredicate.ne, a.andi(quarters, integer(1)), integer(0))


def _by_quarter(quarters: Any, functions: tuple[Callable[[_Sum], Any], Callable[[_Sum], Any]], r: _Sum) -> Any:
    even, odd = (function(r) for function in functions)
    return dialect("arith").select(_is_odd(quarters), odd, even)


def _sin(r: _Sum) -> Any:
    a = dialect("arith")
    x, y = r
    z = a.mulf(x, x)
    cube = a.mulf(z, x)
    inner = a.subf(a.mulf(constant(0.5), y), a.mulf(cube, polynomial(z, _SIN[1:])))
    return a.subf(x, a.subf(a.subf(a.mulf(z, inner), y), a.mulf(cube, constant(_SIN[0]))))


def _cos(r: _Sum) -> Any:
    a = dialect("arith")
    x, y = r
    z = a.mulf(x, x)
    half, one = a.mulf(constant(0.5), z), constant(1.0)
    near = a.subf(one, half)
    rest = a.subf(a.mulf(a.mulf(z, z), polynomial(z, _COS)), a.mulf(x, y))
    return a.addf(near, a.addf(a.subf(a.subf(one, near), half), rest))


# ------------------------------------------------------------------------------------------------------------- reduction


def _reduced(x: Any, *, short: bool) -> tuple[Any, _Sum]:
    """For x ≥ 0: quarters of a turn (i64) and the rest, of at most π/4 in size; NaN for NaN and infinity."""
    a = dialect("arith")
    quarters, rest = _in_quarters(_short_products(x) if short else _long_products(x))
    small = a.cmpf(a.CmpFPredicate.OLE, x, constant(math.pi / 4))
    high = a.mulf(rest[0], constant(_HALF_PI[0]))
    low = a.addf(
        _error_of_product(rest[0], high),
        a.addf(a.mulf(rest[0], constant(_HALF_PI[1])), a.mulf(rest[1], constant(_HALF_PI[0]))),
    )
    zero = constant(0.0)
    return a.select(small, integer(0), quarters), (a.select(small, x, high), a.select(small, zero, low))


def _error_of_product(x: Any, product: Any) -> Any:
    """x·π/2 less its rounded ``product``, from products of halves, which are exact."""
    a = dialect("arith")
    upper, lower = _halves(x)
    first = math.ldexp(round(math.ldexp(math.pi / 2, 25)), -25)
    second = math.pi / 2 - first
    error = a.subf(a.mulf(upper, constant(first)), product)
    for factor, number in ((upper, second), (lower, first), (lower, second)):
        error = a.addf(error, a.mulf(factor, constant(number)))
    return error


def _halves(x: Any) -> _Sum:
    """The upper 27 bits of an f64 and the rest."""
    a = dialect("arith")
    upper = a.bitcast(x.type, a.andi(a.bitcast(i64(), x), integer(_FIRST_HALF)))
    return upper, a.subf(x, upper)


def _short_products(x: Any) -> list[list[Any]]:
    return [[dialect("arith").mulf(x, constant(piece))] for piece in _pieces(_SHORT_BITS, 0, _SHORT_PIECES)]


def _long_products(x: Any) -> list[list[Any]]:
    """Products of the parts of ``x`` and the pieces of 2/π that matter for its exponent, both scaled; the largest first."""
    a = dialect("arith")
    exponent = a.subi(a.shrsi(a.bitcast(i64(), x), integer(52)), integer(1023))
    # Three pieces before the first whose product may be less than a turn: those before them give whole turns.
    tables = [_pieces(_LONG_BITS, 4 * number - 3, _LONG_PIECES, 4 * number) for number in range(_RANGES)]
    scale = [2.0 ** (-_RANGE * number) for number in range(_RANGES)]
    scaled = a.mulf(x, _chosen(exponent, scale))
    halves = _halves(scaled)
    pieces = [_chosen(exponent, column) for column in zip(*tables, strict=True)]
    return [[a.mulf(half, piece) for half in halves] for piece in pieces]


def _chosen(exponent: Any, numbers: Sequence[float]) -> Any:
    """Of ``numbers`` the one for the range that ``exponent`` lies in."""
    value = constant(numbers[0])
    for place, number in enumerate(numbers[1:], 1):
        if number != numbers[place - 1]:
            value = select_integer("sge", exponent, integer(_RANGE * place), constant(number), value)
    return value


def _pieces(bits: int, first: int, count: int, scaled: int = 0) -> list[float]:
    """``count`` pieces of 2/π of ``bits`` bits from number ``first`` on, times 2 to the power of ``bits``·``scaled``; zero
    before its first."""
    digits = _two_over_pi(bits * max(first + count, 0))
    pieces = []
    for number in range(first, first + count):
        piece = digits >> bits * (first + count - 1 - number) & ((1 << bits) - 1) if number >= 0 else 0
        pieces.append(math.ldexp(piece, bits * (scaled - number - 1)))
    return pieces


@functools.cache
def _two_over_pi(bits: int) -> int:
    """2/π times 2 to the power of ``bits``, cut off; π is found by Machin's formula."""
    guard = 64
    one = 1 << (bits + guard)

    def inverse_tangent(divisor: int) -> int:
        total = power = one // divisor
        for odd in range(3, bits + guard, 2):
            power //= -divisor * divisor
            total += power // odd
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    return (one * one * 2 // pi) >> guard


def _in_quarters(products: Sequence[Sequence[Any]]) -> tuple[Any, _Sum]:
    """The sum of ``products``, less the nearest whole number: that number modulo 4 (i64), and the rest."""
    a, m = dialect("arith"), dialect("math")
    high, low, quarters = constant(0.0), constant(0.0), constant(0.0)
    for group in products:
        for product in group:
            turns = m.floor(a.mulf(product, constant(0.25)))
            high, error = _two_sum(high, a.subf(product, a.mulf(turns, constant(4.0))))
            low = a.addf(low, error)
        high, low = _two_sum(high, low)
        whole = m.floor(a.addf(high, constant(0.5)))
        high, quarters = a.subf(high, whole), a.addf(quarters, whole)
        high, low = _two_sum(high, low)
    known = select("ORD", quarters, quarters, quarters, constant(0.0))
    return a.fptosi(i64(), known), (high, low)


def _two_sum(x: Any, y: Any) -> _Sum:
    """x + y, rounded, and the error of it."""
    a = dialect("arith")
    total = a.addf(x, y)
    part = a.subf(total, x)
    return total, a.addf(a.subf(x, a.subf(total, part)), a.subf(y, part))
