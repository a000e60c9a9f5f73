"""Functions of f64 that IREE's code for processors calls from a mathematical library it is not linked with, written out.

Expansions are accurate to a few roundings over the whole range.  Coefficients of erf and tanh are those of Cephes (S. L.
Moshier), those of the arc tangent of fdlibm (Sun Microsystems).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.errors import UnsupportedError, UnsupportedOp
from mlirstack.ir.locations import origins
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass

# atan(r) = r - r·z·P(z), z = r², on |r| ≤ 7/16; lowest coefficient first.
_ATAN = (
    3.33333333333329318027e-01, -1.99999999998764832476e-01, 1.42857142725034663711e-01, -1.11111104054623557880e-01,
    9.09088713343650656196e-02, -7.69187620504482999495e-02, 6.66107313738753120669e-02, -5.83357013379057348645e-02,
    4.97687799461593236017e-02, -3.65315727442169155270e-02, 1.62858201153657823623e-02,
)  # fmt: skip
_TAN_PI_8 = math.sqrt(2) - 1
_PI_LOW = 1.2246467991473532e-16  # π less its nearest f64

# erf(x) = x·P(x²)/Q(x²) below 1, 1 - e^(-x²)·R(x)/S(x) from there on; nothing but 1 from 6 on.
_ERF_P = (
    5.55923013010394962768e4, 7.00332514112805075473e3, 2.23200534594684319226e3, 9.00260197203842689217e1,
    9.60497373987051638749e0,
)  # fmt: skip
_ERF_Q = (
    4.92673942608635921086e4, 2.26290000613890934246e4, 4.59432382970980127987e3, 5.21357949780152679795e2,
    3.35617141647503099647e1, 1.0,
)  # fmt: skip
_ERF_R = (
    5.57535335369399327526e2, 1.02755188689515710272e3, 9.34528527171957607540e2, 5.26445194995477358631e2,
    1.96520832956077098242e2, 4.86371970985681366614e1, 7.46321056442269912687e0, 5.64189564831068821977e-1,
    2.46196981473530512524e-10,
)  # fmt: skip
_ERF_S = (
    5.57535340817727675546e2, 1.65666309194161350182e3, 2.24633760818710981792e3, 1.82390916687909736289e3,
    9.75708501743205489753e2, 3.54937778887819891062e2, 8.67072140885989742329e1, 1.32281951154744992508e1, 1.0,
)  # fmt: skip
_ERF_LIMIT = 6.0

# tanh(x) = x + x·z·P(z)/Q(z), z = x², below 0.625; 1 - 2/(e^2x + 1) from there on.
_TANH_P = (-1.61468768441708447952e3, -9.92877231001918586564e1, -9.64399179425052238628e-1)
_TANH_Q = (4.84406305325125486048e3, 2.23548839060100448583e3, 1.12811678491632931402e2, 1.0)
_TANH_SMALL, _TANH_LIMIT = 0.625, 22.0


@dataclass(frozen=True)
class ExpandDoubles(PythonPass):
    """Before: linalg on tensors.  After: no f64 function in it is one that IREE leaves to a library on processors::

        math.tanh %x : f64      →      arith and math.exp

    Angles of smaller floats are computed in f64, too: IREE's own code for them gives NaN for two zeros or two infinities.

    :class:`UnsupportedError` names those that have no expansion (sine, cosine, remainder), with the user's lines.
    """

    name = "mlirstack-iree-doubles"

    def apply(self, module: Any) -> None:
        refused = [op for op in walk(module) if op.name in _REFUSED and _is_double(op)]
        if refused:
            raise UnsupportedError(
                f"{len(refused)} operation(s) on float64 cannot be compiled by IREE for processors",
                tuple(_unsupported(op) for op in refused),
                hint="compute them in float32, or take target cpu",
            )
        for op in list(walk(module)):
            expand = (EXPANSIONS if _is_double(op) else _IN_DOUBLE).get(op.name)
            if expand is not None:
                with ir.InsertionPoint(op), op.location:
                    op.results[0].replace_all_uses_with(expand(*op.operands))
                op.erase()


_REFUSED = {
    "math.sin": "sin",
    "math.cos": "cos",
    "math.tan": "tan",
    "arith.remf": "fmod",
}


def _is_double(op: Any) -> bool:
    return bool(op.results) and isinstance(op.results[0].type, ir.F64Type)


def _unsupported(op: Any) -> UnsupportedOp:
    places = origins(op.location)
    reason = f"IREE leaves it to a library function '{_REFUSED[op.name]}' that its code is not linked with"
    return UnsupportedOp(f"{op.name}(float64)", reason, places[0].line if places else None)


# ------------------------------------------------------------------------------------------------------------- functions


def _constant(value: float) -> Any:
    return dialect("arith").constant(ir.F64Type.get(), value)


def _in_double(function: Callable[..., Any], *operands: Any) -> Any:
    """``function`` of ``operands`` as f64, rounded to their type."""
    arith, double = dialect("arith"), ir.F64Type.get()
    return arith.truncf(operands[0].type, function(*(arith.extf(double, operand) for operand in operands)))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Horner's scheme, lowest coefficient first."""
    arith = dialect("arith")
    result = _constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = arith.addf(arith.mulf(result, x), _constant(coefficient))
    return result


def _ratio(x: Any, p: Sequence[float], q: Sequence[float]) -> Any:
    return dialect("arith").divf(_polynomial(x, p), _polynomial(x, q))


def _at_most(x: Any, limit: float) -> Any:
    """The lesser of the two; NaN stays NaN."""
    return dialect("arith").minimumf(x, _constant(limit))


def _select(predicate: str, x: Any, y: Any, then: Any, otherwise: Any) -> Any:
    arith = dialect("arith")
    return arith.select(arith.cmpf(getattr(arith.CmpFPredicate, predicate), x, y), then, otherwise)


def _erf(x: Any) -> Any:
    a, m = dialect("arith"), dialect("math")
    size = _at_most(m.absf(x), _ERF_LIMIT)
    low = _at_most(size, 1.0)
    small = a.mulf(low, _ratio(a.mulf(low, low), _ERF_P, _ERF_Q))
    rest = a.mulf(m.exp(a.negf(a.mulf(size, size))), _ratio(size, _ERF_R, _ERF_S))
    result = _select("OLT", size, _constant(1.0), small, a.subf(_constant(1.0), rest))
    return m.copysign(result, x)


def _tanh(x: Any) -> Any:
    a, m = dialect("arith"), dialect("math")
    size = m.absf(x)
    low = _at_most(size, _TANH_SMALL)
    square = a.mulf(low, low)
    small = a.addf(low, a.mulf(a.mulf(low, square), _ratio(square, _TANH_P, _TANH_Q)))
    bounded = _at_most(size, _TANH_LIMIT)
    growth = a.addf(m.exp(a.addf(bounded, bounded)), _constant(1.0))
    large = a.subf(_constant(1.0), a.divf(_constant(2.0), growth))
    return m.copysign(_select("OLT", size, _constant(_TANH_SMALL), small, large), x)


def _atan2(y: Any, x: Any) -> Any:
    """The angle of the lesser of both sizes over the greater one, then the right octant."""
    a, m = dialect("arith"), dialect("math")
    zero, one = _constant(0.0), _constant(1.0)
    height, width = m.absf(y), m.absf(x)
    low, high = a.minimumf(height, width), a.maximumf(height, width)
    # Of two zeros the angle is that of zero, of two infinities that of one.
    equal = _select("OEQ", high, zero, zero, one)
    slope = _select("OEQ", low, high, equal, a.divf(low, high))
    angle = _arc(slope)
    angle = _select("OGT", height, width, _from(0.5, angle), angle)
    angle = _select("OLT", m.copysign(one, x), zero, _from(1.0, angle), angle)
    return m.copysign(angle, y)


def _arc(slope: Any) -> Any:
    """The arc tangent on [0, 1]."""
    a = dialect("arith")
    one, bound = _constant(1.0), _constant(_TAN_PI_8)
    turned = a.divf(a.subf(slope, one), a.addf(slope, one))
    r = _select("OGT", slope, bound, turned, slope)
    z = a.mulf(r, r)
    correction = a.mulf(r, a.mulf(z, _polynomial(z, _ATAN)))
    high = a.addf(_constant(math.pi / 4), a.subf(r, a.subf(correction, _constant(_PI_LOW / 4))))
    return _select("OGT", slope, bound, high, a.subf(r, correction))


def _from(turns: float, angle: Any) -> Any:
    """``turns``·π less ``angle``."""
    a = dialect("arith")
    return a.subf(_constant(turns * math.pi), a.subf(angle, _constant(turns * _PI_LOW)))


def _other_side(x: Any) -> Any:
    """√(1 - x²), as a product, which keeps what is left near one."""
    a = dialect("arith")
    one = _constant(1.0)
    return dialect("math").sqrt(a.mulf(a.subf(one, x), a.addf(one, x)))


def _log2(x: Any) -> Any:
    """The exponent plus the logarithm of what is between √½ and √2, so that powers of two are exact."""
    a = dialect("arith")
    bits = a.bitcast(_i64(), x)
    exponent = a.sitofp(x.type, a.subi(a.shrsi(bits, _integer(52)), _integer(1023)))
    one = _integer(1023 << 52)
    mantissa = a.bitcast(x.type, a.ori(a.andi(bits, _integer((1 << 52) - 1)), one))
    bound = _constant(math.sqrt(2))
    near_one = _select("OGT", mantissa, bound, a.mulf(mantissa, _constant(0.5)), mantissa)
    exponent = _select("OGT", mantissa, bound, a.addf(exponent, _constant(1.0)), exponent)
    parts = a.addf(exponent, _scaled_log(near_one, 2.0))
    # Zero, infinity, NaN and negative numbers have no such parts.
    smallest, whole = _constant(2.0**-1022), _scaled_log(x, 2.0)
    return _select("OGE", x, smallest, _select("OEQ", x, _constant(math.inf), whole, parts), whole)


def _scaled_log(x: Any, base: float) -> Any:
    return dialect("arith").mulf(dialect("math").log(x), _constant(1 / math.log(base)))


def _i64() -> Any:
    return ir.IntegerType.get_signless(64)


def _integer(value: int) -> Any:
    return dialect("arith").constant(_i64(), value)


EXPANSIONS: dict[str, Callable[..., Any]] = {
    "math.erf": _erf,
    "math.tanh": _tanh,
    "math.atan": lambda x: _atan2(x, _constant(1.0)),
    "math.atan2": _atan2,
    "math.asin": lambda x: _atan2(x, _other_side(x)),
    "math.acos": lambda x: _atan2(_other_side(x), x),
    "math.log2": _log2,
    "math.log10": lambda x: _scaled_log(x, 10.0),
}
_IN_DOUBLE: dict[str, Callable[..., Any]] = {"math.atan2": functools.partial(_in_double, _atan2)}
