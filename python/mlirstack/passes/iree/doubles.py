"""Functions of f64 that IREE's code for processors calls from a mathematical library it is not linked with, written out.

Expansions are accurate to a few roundings over the whole range.  Coefficients of erf and tanh are those of Cephes (S. L.
Moshier), those of the arc tangent of fdlibm (Sun Microsystems).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes.iree.angles import cosine, sine, tangent
from mlirstack.passes.iree.double_values import at_most, constant, i64, integer, polynomial, ratio, select
from mlirstack.passes.iree.hyperbolics import acosh, asinh, atanh, cosh, exp2, short_cosh, short_exp2, short_sinh, sinh
from mlirstack.passes.iree.powers import as_product, expm1, log1p, number_of, power
from mlirstack.passes.iree.remainders import remainder
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

    Angles of smaller floats are computed in f64, too: IREE's own code for ``atan2`` gives NaN for two zeros or two
    infinities, and its sine and cosine are wrong from a few thousand on.  So are hyperbolic functions, their inverses and
    powers: IREE's formulas in f32 have no correct digit next to zero, or lose many to a large exponent.  Other functions of
    f16 and bf16 are computed in f32, as eager does.
    """

    name = "mlirstack-iree-doubles"

    def apply(self, module: Any) -> None:
        for op in list(walk(module)):
            expand = _expansion(op)
            if expand is not None:
                with ir.InsertionPoint(op), op.location:
                    op.results[0].replace_all_uses_with(expand(*op.operands))
                op.erase()


def _expansion(op: Any) -> Callable[..., Any] | None:
    """What takes the place of ``op``: a function of its operands; None where it may stay."""
    if op.name == "math.powf" and (product := as_product(op.operands[1])) is not None:
        is_half = isinstance(op.results[0].type, (ir.F16Type, ir.BF16Type))
        return functools.partial(_computed_in, ir.F32Type, product) if is_half else product
    if op.name == "math.powf" and number_of(op.operands[0]) == 2.0:
        return _power_of_two if _is_double(op) else functools.partial(_computed_in, ir.F64Type, _short_power_of_two)
    if _is_double(op):
        return EXPANSIONS.get(op.name)
    if op.name in _IN_DOUBLE:
        return functools.partial(_computed_in, ir.F64Type, _IN_DOUBLE[op.name])
    if op.name.startswith("math.") and op.name not in _EXACT and isinstance(op.results[0].type, (ir.F16Type, ir.BF16Type)):
        return functools.partial(_computed_in, ir.F32Type, _same_function(op.name))
    return None


def _power_of_two(_: Any, exponent: Any) -> Any:
    return exp2(exponent)


def _short_power_of_two(_: Any, exponent: Any) -> Any:
    return short_exp2(exponent)


def _is_double(op: Any) -> bool:
    return bool(op.results) and isinstance(op.results[0].type, ir.F64Type)


# ------------------------------------------------------------------------------------------------------------- functions


def _computed_in(kind: Any, function: Callable[..., Any], *operands: Any) -> Any:
    """``function`` of ``operands`` as ``kind``, rounded to their type."""
    arith, wide = dialect("arith"), kind.get()
    return arith.truncf(operands[0].type, function(*(arith.extf(wide, operand) for operand in operands)))


def _same_function(name: str) -> Callable[..., Any]:
    return lambda *operands: ir.Operation.create(name, results=[operands[0].type], operands=list(operands)).result


def _erf(x: Any) -> Any:
    a, m = dialect("arith"), dialect("math")
    size = at_most(m.absf(x), _ERF_LIMIT)
    low = at_most(size, 1.0)
    small = a.mulf(low, ratio(a.mulf(low, low), _ERF_P, _ERF_Q))
    rest = a.mulf(m.exp(a.negf(a.mulf(size, size))), ratio(size, _ERF_R, _ERF_S))
    result = select("OLT", size, constant(1.0), small, a.subf(constant(1.0), rest))
    return m.copysign(result, x)


def _tanh(x: Any) -> Any:
    a, m = dialect("arith"), dialect("math")
    size = m.absf(x)
    low = at_most(size, _TANH_SMALL)
    square = a.mulf(low, low)
    small = a.addf(low, a.mulf(a.mulf(low, square), ratio(square, _TANH_P, _TANH_Q)))
    bounded = at_most(size, _TANH_LIMIT)
    growth = a.addf(m.exp(a.addf(bounded, bounded)), constant(1.0))
    large = a.subf(constant(1.0), a.divf(constant(2.0), growth))
    return m.copysign(select("OLT", size, constant(_TANH_SMALL), small, large), x)


def _atan2(y: Any, x: Any) -> Any:
    """The angle of the lesser of both sizes over the greater one, then the right octant."""
    a, m = dialect("arith"), dialect("math")
    zero, one = constant(0.0), constant(1.0)
    height, width = m.absf(y), m.absf(x)
    low, high = a.minimumf(height, width), a.maximumf(height, width)
    # Of two zeros the angle is that of zero, of two infinities that of one.
    equal = select("OEQ", high, zero, zero, one)
    slope = select("OEQ", low, high, equal, a.divf(low, high))
    angle = _arc(slope)
    angle = select("OGT", height, width, _from(0.5, angle), angle)
    angle = select("OLT", m.copysign(one, x), zero, _from(1.0, angle), angle)
    return m.copysign(angle, y)


def _arc(slope: Any) -> Any:
    """The arc tangent on [0, 1]."""
    a = dialect("arith")
    one, bound = constant(1.0), constant(_TAN_PI_8)
    turned = a.divf(a.subf(slope, one), a.addf(slope, one))
    r = select("OGT", slope, bound, turned, slope)
    z = a.mulf(r, r)
    correction = a.mulf(r, a.mulf(z, polynomial(z, _ATAN)))
    high = a.addf(constant(math.pi / 4), a.subf(r, a.subf(correction, constant(_PI_LOW / 4))))
    return select("OGT", slope, bound, high, a.subf(r, correction))


def _from(turns: float, angle: Any) -> Any:
    """``turns``·π less ``angle``."""
    a = dialect("arith")
    return a.subf(constant(turns * math.pi), a.subf(angle, constant(turns * _PI_LOW)))


def _other_side(x: Any) -> Any:
    """√(1 - x²), as a product, which keeps what is left near one."""
    a = dialect("arith")
    one = constant(1.0)
    return dialect("math").sqrt(a.mulf(a.subf(one, x), a.addf(one, x)))


def _log2(x: Any) -> Any:
    """The exponent plus the logarithm of what is between √½ and √2, so that powers of two are exact."""
    a = dialect("arith")
    bits = a.bitcast(i64(), x)
    exponent = a.sitofp(x.type, a.subi(a.shrsi(bits, integer(52)), integer(1023)))
    one = integer(1023 << 52)
    mantissa = a.bitcast(x.type, a.ori(a.andi(bits, integer((1 << 52) - 1)), one))
    bound = constant(math.sqrt(2))
    near_one = select("OGT", mantissa, bound, a.mulf(mantissa, constant(0.5)), mantissa)
    exponent = select("OGT", mantissa, bound, a.addf(exponent, constant(1.0)), exponent)
    parts = a.addf(exponent, _scaled_log(near_one, 2.0))
    # Zero, infinity, NaN and negative numbers have no such parts.
    smallest, whole = constant(2.0**-1022), _scaled_log(x, 2.0)
    return select("OGE", x, smallest, select("OEQ", x, constant(math.inf), whole, parts), whole)


def _scaled_log(x: Any, base: float) -> Any:
    return dialect("arith").mulf(dialect("math").log(x), constant(1 / math.log(base)))


EXPANSIONS: dict[str, Callable[..., Any]] = {
    "math.erf": _erf,
    "math.tanh": _tanh,
    "math.atan": lambda x: _atan2(x, constant(1.0)),
    "math.atan2": _atan2,
    "math.asin": lambda x: _atan2(x, _other_side(x)),
    "math.acos": lambda x: _atan2(_other_side(x), x),
    "math.log2": _log2,
    "math.log10": lambda x: _scaled_log(x, 10.0),
    "math.sin": functools.partial(sine, short=False),
    "math.cos": functools.partial(cosine, short=False),
    "math.tan": functools.partial(tangent, short=False),
    "arith.remf": remainder,
    "math.powf": power,
    "math.log1p": log1p,
    "math.expm1": expm1,
    "math.sinh": sinh,
    "math.cosh": cosh,
    "math.asinh": asinh,
    "math.acosh": acosh,
    "math.atanh": atanh,
    "math.exp2": exp2,
}
_IN_DOUBLE: dict[str, Callable[..., Any]] = {
    "math.atan2": _atan2,
    "math.sin": functools.partial(sine, short=True),
    "math.cos": functools.partial(cosine, short=True),
    "math.tan": functools.partial(tangent, short=True),
    **{name: EXPANSIONS[name] for name in ("math.atan", "math.log10", "math.powf")},
    **{f"math.{name}": EXPANSIONS[f"math.{name}"] for name in ("asinh", "acosh", "atanh")},
    "math.exp2": short_exp2,
    "math.sinh": short_sinh,
    "math.cosh": short_cosh,
}
# These need no more bits than they are given; the exponent of the last is a whole number.
_EXACT = frozenset(
    {"math.absf", "math.ceil", "math.copysign", "math.floor", "math.round", "math.roundeven", "math.trunc", "math.fpowi"}
    | {"math.isnan", "math.isinf", "math.isfinite", "math.isnormal"}
)
