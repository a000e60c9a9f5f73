"""Meanings of the ops on numbers: arith, math, index, affine and the arithmetic of the LLVM dialect."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .build import Op, Step, apply, elementwise, meaning
from .faults import Unsupported
from .kinds import Kind, constant, unsigned, zero

Function = Callable[..., Any]


# ------------------------------------------------------------------------------------------------------------------ integers


def on_unsigned(function: Function) -> Callable[[Op], Function]:
    """A function of unsigned integers, applied to the bits of signed ones."""

    def choose(op: Op) -> Function:
        signed = op.kind.dtype
        if signed.kind == "b":
            return lambda a, b: function(a, b).astype(bool)
        bits = unsigned(signed)
        return lambda a, b: function(a.view(bits), b.view(bits)).view(signed)

    return choose


def divide(a: Any, b: Any) -> Any:
    """Signed division, rounded towards zero."""
    quotient = a // b
    return quotient + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def _plain(function: Function, on_bool: Function | None = None) -> Callable[[Op], Function]:
    return lambda op: on_bool if on_bool is not None and op.kind.dtype.kind == "b" else function


def _shift(function: Function) -> Function:
    """A shift by the width or more gives zero (the ops leave it open, hardware clamps)."""

    def shift(a: Any, b: Any) -> Any:
        width = a.dtype.itemsize * 8
        return np.where(b < width, function(a, b % a.dtype.type(width)), a.dtype.type(0))[()]

    return shift


def _shift_signed(a: Any, b: Any) -> Any:
    return a >> np.minimum(b.view(unsigned(b.dtype)), a.dtype.itemsize * 8 - 1).astype(a.dtype)


_INTEGER_OPS: dict[str, Callable[[Op], Function]] = {
    "addi": _plain(operator.add, operator.xor),
    "subi": _plain(operator.sub, operator.xor),
    "muli": _plain(operator.mul, operator.and_),
    "andi": _plain(operator.and_),
    "ori": _plain(operator.or_),
    "xori": _plain(operator.xor),
    "divui": on_unsigned(operator.floordiv),
    "remui": on_unsigned(operator.mod),
    "ceildivui": on_unsigned(lambda a, b: (a // b) + (a % b != 0).astype(a.dtype)),
    "divsi": _plain(divide),
    "remsi": _plain(np.fmod),
    "floordivsi": _plain(operator.floordiv),
    "ceildivsi": _plain(lambda a, b: -((-a) // b)),
    "shli": on_unsigned(_shift(operator.lshift)),
    "shrui": on_unsigned(_shift(operator.rshift)),
    "shrsi": _plain(_shift_signed),
    "minui": on_unsigned(np.minimum),
    "maxui": on_unsigned(np.maximum),
    "minsi": _plain(np.minimum),
    "maxsi": _plain(np.maximum),
}
_LLVM_INTEGER_OPS = {
    **{"add": "addi", "sub": "subi", "mul": "muli", "and": "andi", "or": "ori", "xor": "xori", "udiv": "divui"},
    **{"urem": "remui", "sdiv": "divsi", "srem": "remsi", "shl": "shli", "lshr": "shrui", "ashr": "shrsi"},
    **{"intr.umin": "minui", "intr.umax": "maxui", "intr.smin": "minsi", "intr.smax": "maxsi"},
}
_INDEX_OPS = {
    **{"add": "addi", "sub": "subi", "mul": "muli", "divs": "divsi", "divu": "divui", "ceildivs": "ceildivsi"},
    **{"ceildivu": "ceildivui", "floordivs": "floordivsi", "rems": "remsi", "remu": "remui", "maxs": "maxsi"},
    **{"maxu": "maxui", "mins": "minsi", "minu": "minui", "shl": "shli", "shrs": "shrsi", "shru": "shrui"},
    **{"and": "andi", "or": "ori", "xor": "xori"},
}
for _name, _choose in _INTEGER_OPS.items():
    elementwise(f"arith.{_name}", _choose)
for _prefix, _table in (("llvm", _LLVM_INTEGER_OPS), ("index", _INDEX_OPS)):
    for _name, _same in _table.items():
        elementwise(f"{_prefix}.{_name}", _INTEGER_OPS[_same])

_COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def integer_compare(predicate: str, dtype: Any) -> Function:
    """The comparison ``eq``, ``ne``, ``slt`` … of integers held as ``dtype``."""
    function = _COMPARE[predicate[-2:]]
    if predicate[0] == "u" or dtype.kind == "b":
        bits = unsigned(dtype)
        return lambda a, b: function(a.view(bits), b.view(bits))
    return function


elementwise("arith.cmpi", lambda op: integer_compare(_PREDICATES[op.attribute("predicate")], op.operand_kinds[0].dtype))
elementwise("llvm.icmp", lambda op: integer_compare(_PREDICATES[op.attribute("predicate")], op.operand_kinds[0].dtype))
elementwise(
    "index.cmp",
    lambda op: integer_compare(op.text("pred").split()[-1].rstrip(">)").split("<")[-1], op.operand_kinds[0].dtype),
)


def _extend_unsigned(op: Op) -> Function:
    source, target = op.operand_kinds[0].dtype, op.kind.dtype
    return lambda a: a.view(unsigned(source)).astype(target)


def _extend_signed(op: Op) -> Function:
    if op.operand_kinds[0].dtype.kind == "b":
        return lambda a: -a.astype(op.kind.dtype)
    return _cast(op)


def _cast(op: Op) -> Function:
    target = op.kind.dtype
    if target.kind == "b":
        return lambda a: (a & 1).astype(bool)
    return lambda a: a.astype(target)


for _name in ("arith.extui", "arith.index_castui", "llvm.zext", "index.castu"):
    elementwise(_name, _extend_unsigned)
for _name in ("arith.extsi", "arith.index_cast", "llvm.sext", "index.casts"):
    elementwise(_name, _extend_signed)
for _name in ("arith.trunci", "llvm.trunc"):
    elementwise(_name, _cast)


def _count_bits(function: Callable[[int, int], int]) -> Callable[[Op], Function]:
    def choose(op: Op) -> Function:
        dtype, width = op.kind.dtype, op.kind.dtype.itemsize * 8
        return np.vectorize(lambda a: function(int(a) & ((1 << width) - 1), width), otypes=[dtype])

    return choose


for _name, _function in {
    "math.ctlz": lambda bits, width: width - bits.bit_length(),
    "math.cttz": lambda bits, width: (bits & -bits).bit_length() - 1 if bits else width,
    "math.ctpop": lambda bits, width: bits.bit_count(),
}.items():
    elementwise(_name, _count_bits(_function))


@meaning("arith.addui_extended")
def _(op: Op) -> Step:
    a, b, bits = *op.operands, unsigned(op.kind.dtype)

    def step(frame: Any) -> None:
        total = frame.env[a] + frame.env[b]
        frame.env[op.results[0]], frame.env[op.results[1]] = total, total.view(bits) < frame.env[a].view(bits)

    return step


@meaning("arith.mului_extended", "arith.mulsi_extended")
def _(op: Op) -> Step:
    a, b, dtype = *op.operands, op.kind.dtype
    width, mask = dtype.itemsize * 8, (1 << dtype.itemsize * 8) - 1
    signed = op.operation.name == "arith.mulsi_extended"

    def wide(x: Any) -> Any:
        return x.astype(object) if signed else x.view(unsigned(dtype)).astype(object)

    def step(frame: Any) -> None:
        product = np.asarray(wide(np.asarray(frame.env[a])) * wide(np.asarray(frame.env[b])), object)
        low, high = product & mask, (product >> width) & mask
        for result, part in zip(op.results, (low, high), strict=True):
            frame.env[result] = np.asarray(part, object).astype(unsigned(dtype)).view(dtype)

    return step


# -------------------------------------------------------------------------------------------------------------------- floats


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
    function = _COMPARE[predicate[1:]]
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
    elementwise(_name, _cast)


def reinterpret(value: Any, source: Kind, target: Kind) -> Any:
    """The same bits as another type of the same size."""
    uniform = value.ndim == len(source.shape)
    raw = np.ascontiguousarray(value).reshape((1 if uniform else len(value), source.count)).view(target.dtype)
    shaped = raw.reshape((-1, *target.shape))
    return shaped[0] if uniform else shaped


@meaning("arith.bitcast", "llvm.bitcast", "vector.bitcast")
def _(op: Op) -> Step:
    (source,), target = op.operand_kinds, op.kind
    if not source.shape and not target.shape and source.dtype.kind != "b":
        return apply(op, lambda a: a.view(target.dtype))
    return apply(op, lambda a: reinterpret(a, source, target))


def choose_between(condition: Any, yes: Any, no: Any, rank: Any) -> Any:
    """``yes`` where the condition holds, else ``no``; the condition is one per thread or one per element."""
    if isinstance(rank, tuple):
        return tuple(choose_between(condition, *parts) for parts in zip(yes, no, rank, strict=True))
    if condition.ndim == 0:
        return yes if condition else no
    if condition.ndim == 1 and rank:  # one per thread, or one per element of a uniform vector: the threads come first
        condition = condition.reshape(-1, *(1,) * rank)
    return np.where(condition, yes, no)


@meaning("arith.select", "llvm.select")
def _(op: Op) -> Step:
    rank = op.kind.rank
    by_element = bool(op.operand_kinds[0].shape)
    if by_element:
        return apply(op, np.where)
    return apply(op, lambda c, a, b: choose_between(c, a, b, rank))


@meaning("arith.constant", "llvm.mlir.constant", "index.constant", "index.bool.constant")
def _(op: Op) -> Step:
    value, (result,) = constant(op.operation.attributes["value"]), op.results
    if value.dtype != op.kind.dtype:
        value = value.astype(op.kind.dtype)

    def step(frame: Any) -> None:
        frame.env[result] = value

    return step


@meaning("ub.poison", "llvm.mlir.undef", "llvm.mlir.poison", "llvm.mlir.zero", "llvm.mlir.null")
def _(op: Op) -> Step:
    value, (result,) = zero(op.kind), op.results

    def step(frame: Any) -> None:
        frame.env[result] = value

    return step


# ---------------------------------------------------------------------------------------------------------------------- math

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


# -------------------------------------------------------------------------------------------------------------------- affine


def affine_function(expression: Any, dimensions: int) -> Callable[[list[Any]], Any]:
    """An affine expression as a function of its operands (dimensions, then symbols)."""
    name = type(expression).__name__
    if name == "AffineConstantExpr":
        value = np.int64(expression.value)
        return lambda operands: value
    if name in ("AffineDimExpr", "AffineSymbolExpr"):
        position = expression.position + (dimensions if name == "AffineSymbolExpr" else 0)
        return lambda operands: operands[position]
    left, right = affine_function(expression.lhs, dimensions), affine_function(expression.rhs, dimensions)
    combine = {
        "AffineAddExpr": operator.add,
        "AffineMulExpr": operator.mul,
        "AffineModExpr": operator.mod,
        "AffineFloorDivExpr": operator.floordiv,
        "AffineCeilDivExpr": lambda a, b: -((-a) // b),
    }[name]
    return lambda operands: combine(left(operands), right(operands))


@meaning("affine.apply", "affine.min", "affine.max")
def _(op: Op) -> Step:
    affine_map = op.attribute("map")
    functions = [affine_function(e, affine_map.n_dims) for e in affine_map.results]
    fold = {"affine.apply": None, "affine.min": np.minimum, "affine.max": np.maximum}[op.operation.name]

    def compute(*operands: Any) -> Any:
        values = [function(list(operands)) for function in functions]
        result = values[0]
        for value in values[1:]:
            result = fold(result, value)
        return result

    if len(op.operands) == 0:
        raise Unsupported("affine ops without operands")
    return apply(op, compute)


@meaning("affine.linearize_index")
def _(op: Op) -> Step:
    count = op.attribute("operandSegmentSizes")[0]
    static = op.attribute("static_basis")
    dynamic = iter(op.operands[count:])
    basis = [next(dynamic) if size < 0 else None for size in static]

    def step(frame: Any) -> None:
        sizes = [np.int64(s) if n is None else frame.env[n] for s, n in zip(static, basis, strict=True)]
        total = frame.env[op.operands[0]]
        for number, size in zip(op.operands[1:count], sizes[len(sizes) - count + 1 :], strict=True):
            total = total * size + frame.env[number]
        frame.env[op.results[0]] = total

    return step


@meaning("affine.delinearize_index")
def _(op: Op) -> Step:
    static = op.attribute("static_basis")
    dynamic = iter(op.operands[1:])
    basis = [next(dynamic) if size < 0 else None for size in static]

    def step(frame: Any) -> None:
        sizes = [np.int64(s) if n is None else frame.env[n] for s, n in zip(static, basis, strict=True)]
        rest = frame.env[op.operands[0]]
        inner = sizes[len(sizes) - len(op.results) + 1 :]
        for result, size in zip(reversed(op.results[1:]), reversed(inner), strict=True):
            frame.env[result] = rest % size
            rest = rest // size
        frame.env[op.results[0]] = rest

    return step
