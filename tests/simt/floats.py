"""Meanings of ops on floating-point numbers: arith, math, and the arithmetic of the LLVM dialect."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .build import Op, Step, apply, elementwise, meaning
from .integers import COMPARE, Function, cast
from .kinds import unsigned


def fused(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once (f32 and smaller: through f64, f64: through extended precision)."""
    wide = np.longdouble if a.dtype == np.float64 else np.float64
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)


_FLOAT_OPS: dict[str, Function] = {
    "addf": operator.add,
    "subf": operator.sub,
    "mulf": operator.mul,
    "divf": operator.truediv,
    "remf": np.fmod,
    "negf": operator.neg,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
}
for _name, _function in _FLOAT_OPS.items():
    elementwise(f"arith.{_name}", lambda op, f=_function: f)
for _name, _same in {
    **{"fadd": "addf", "fsub": "subf", "fmul": "mulf", "fdiv": "divf", "frem": "remf", "fneg": "negf"},
    **{"intr.maxnum": "maxnumf", "intr.minnum": "minnumf", "intr.maximum": "maximumf", "intr.minimum": "minimumf"},
}.items():
    elementwise(f"llvm.{_name}", lambda op, f=_FLOAT_OPS[_same]: f)
elementwise("llvm.intr.fma", lambda op: fused)
elementwise("math.fma", lambda op: fused)
elementwise("vector.fma", lambda op: fused)


def _is_nan(a: Any) -> Any:
    return a != a  # noqa: PLR0124 (np.isnan knows no small floats)


def float_compare(predicate: str) -> Function:
    """``oeq`` … ``uno``: ordered comparisons are false, unordered ones true where an operand is NaN."""
    if predicate in ("false", "true"):
        return lambda a, b: np.full(np.broadcast(a, b).shape, predicate == "true")[()]
    if predicate == "ord":
        return lambda a, b: ~(_is_nan(a) | _is_nan(b))
    if predicate == "uno":
        return lambda a, b: _is_nan(a) | _is_nan(b)
    function = COMPARE[predicate[1:]]
    if predicate[0] == "u":
        return lambda a, b: function(a, b) | _is_nan(a) | _is_nan(b)
    if predicate == "one":
        return lambda a, b: (a != b) & ~(_is_nan(a) | _is_nan(b))
    return function


_FLOAT_PREDICATES = [
    "false",
    "oeq",
    "ogt",
    "oge",
    "olt",
    "ole",
    "one",
    "ord",
    "ueq",
    "ugt",
    "uge",
    "ult",
    "ule",
    "une",
    "uno",
    "true",
]
elementwise("arith.cmpf", lambda op: float_compare(_FLOAT_PREDICATES[op.attribute("predicate")]))
elementwise("llvm.fcmp", lambda op: float_compare(_FLOAT_PREDICATES[op.attribute("predicate")]))


def to_integer(a: Any, dtype: Any, *, is_signed: bool) -> Any:
    """Round towards zero and clamp, as the hardware does; NaN becomes zero."""
    target = dtype if is_signed else unsigned(dtype)
    limits = np.iinfo(target)
    wide = np.nan_to_num(np.trunc(a.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    clamped = np.clip(wide, float(limits.min), float(limits.max))
    result = np.where(wide >= float(limits.max), limits.max, np.where(wide >= 2.0**63, 0, clamped).astype(target))
    return result.astype(target).view(dtype)[()]


def _bool_from_float(a: Any) -> Any:
    return np.trunc(a.astype(np.float64)) != 0


def _float_to_int(op: Op) -> Function:
    dtype, is_signed = op.kind.dtype, op.operation.name.endswith("si")
    if dtype.kind == "b":
        return _bool_from_float
    return lambda a: to_integer(a, dtype, is_signed=is_signed)


elementwise("arith.fptosi", _float_to_int)
elementwise("arith.fptoui", _float_to_int)
elementwise("llvm.fptosi", _float_to_int)
elementwise("llvm.fptoui", _float_to_int)


def _int_to_float(op: Op) -> Function:
    source, target = op.operand_kinds[0].dtype, op.kind.dtype
    if source.kind == "b":
        sign = -1 if op.operation.name.endswith("sitofp") else 1
        return lambda a: (a.astype(np.int32) * np.int32(sign)).astype(target)
    if op.operation.name.endswith("uitofp"):
        return lambda a: a.view(unsigned(source)).astype(target)
    return lambda a: a.astype(target)


for _name in ("arith.sitofp", "arith.uitofp", "llvm.sitofp", "llvm.uitofp"):
    elementwise(_name, _int_to_float)
for _name in ("arith.extf", "arith.truncf", "llvm.fpext", "llvm.fptrunc"):
    elementwise(_name, cast)


_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
MATH: dict[str, Function] = {
    **{
        name: getattr(np, name)
        for name in [
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "sin",
            "cos",
            "tan",
            "tanh",
            "sinh",
            "cosh",
        ]
    },
    **{name: getattr(np, "arc" + name[1:]) for name in ["asin", "acos", "atan", "asinh", "acosh", "atanh"]},
    **{name: getattr(np, name) for name in ("ceil", "floor", "trunc", "cbrt", "copysign")},
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "erf": _erf,
    "erfc": _erfc,
    "absf": np.abs,
    "roundeven": np.rint,
    "round": lambda a: np.copysign(np.floor(np.abs(a) + 0.5), a),
    "atan2": np.arctan2,
    "powf": np.power,
}


def _in_double(function: Function) -> Callable[[Op], Function]:
    def choose(op: Op) -> Function:
        dtype = op.kind.dtype

        def compute(*values: Any) -> Any:
            return np.asarray(function(*[value.astype(np.float64) for value in values])).astype(dtype)[()]

        return compute

    return choose


for _name, _function in MATH.items():
    elementwise(f"math.{_name}", _in_double(_function))
for _name, _same in {
    **{
        name: name
        for name in [
            "exp",
            "exp2",
            "log",
            "log2",
            "log10",
            "sqrt",
            "sin",
            "cos",
            "ceil",
            "floor",
            "trunc",
            "copysign",
            "roundeven",
            "round",
        ]
    },
    **{"fabs": "absf", "pow": "powf", "rint": "roundeven"},
}.items():
    elementwise(f"llvm.intr.{_name}", _in_double(MATH[_same]))
elementwise("math.absi", lambda op: np.abs)
for _name, _function in {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}.items():
    elementwise(f"math.{_name}", lambda op, f=_function: lambda a: f(a.astype(np.float64)))


@meaning("math.fpowi")
def _(op: Op) -> Step:
    dtype = op.kind.dtype
    return apply(op, lambda a, n: np.power(a.astype(np.float64), n.astype(np.float64)).astype(dtype))


@meaning("math.ipowi")
def _(op: Op) -> Step:
    dtype, modulus = op.kind.dtype, 1 << op.kind.dtype.itemsize * 8

    def power(a: Any, n: Any) -> int:
        if n < 0:
            return int(a) if abs(int(a)) == 1 and n % 2 else int(abs(int(a)) == 1)
        value = pow(int(a), int(n), modulus)
        return value - modulus if value >= modulus // 2 else value

    return apply(op, np.vectorize(power, otypes=[dtype]))
