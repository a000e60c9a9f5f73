"""Operations that work element by element: arithmetic with broadcasting, functions, comparisons, selections, casts.

Domains are kept by the functions themselves (a logarithm takes an absolute value), so that no graph is all NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from mlirstack.fuzz.operations import FLOATS, INTEGERS, Arguments, Operation, Picker, Rounding, Value
from mlirstack.fuzz.values import dtype_of

_SCALARS = (2.0, 0.5, -1.0, 0.1, 3.0, -2.5, 1e-3, 100.0)


def compatible(left: Value, right: Value) -> bool:
    """Whether the two broadcast, to a result that is not too large."""
    sizes = zip(reversed(left.shape), reversed(right.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in sizes)


def any_float(pick: Picker) -> Arguments:
    """One value of real numbers."""
    return Arguments((pick.floats(),))


def pair(pick: Picker, first: Value) -> Value:
    """A second operand that broadcasts with ``first``, a new one if there is none."""
    other = pick.value(lambda value: compatible(first, value) and value.dtype != "bool" and value.name != first.name)
    if other is not None and pick.chance(80):
        return other
    keep = pick.integer(0, first.rank)  # leading dimensions may be missing, others may be 1
    shape = [1 if pick.chance(20) else size for size in first.shape[first.rank - keep :]]
    return pick.fresh(shape, first.dtype if first.dtype != "bool" and pick.chance(80) else pick.main_dtype)


def _two(pick: Picker) -> Arguments:
    first = pick.floats()
    return Arguments((first, pair(pick, first)))


def _scalar(pick: Picker) -> Arguments:
    return Arguments((pick.floats(),), {"number": pick.one_of(_SCALARS)})


def _any_two(pick: Picker) -> Arguments | None:
    first = pick.value(lambda value: value.dtype != "bool")
    return None if first is None else Arguments((first, pair(pick, first)))


def _three(pick: Picker) -> Arguments:
    first = pick.floats()
    second = pair(pick, first)
    return Arguments((first, second, pair(pick, first)))


def _select(pick: Picker) -> Arguments:
    first = pick.floats()
    condition = pick.value(lambda value: value.dtype == "bool" and compatible(first, value))
    condition = condition or pick.fresh(first.shape, "bool")
    return Arguments((condition, first, pair(pick, first)))


def _cast(pick: Picker) -> Arguments:
    value = pick.value() or pick.fresh(pick.shape(), pick.main_dtype)
    return Arguments((value,), {"dtype": pick.one_of([*FLOATS, *INTEGERS, "bool"])})


def cast(a: Any, dtype: str) -> Any:
    """Conversion where every value has one: real numbers are brought into the range of the integers first."""
    wanted = dtype_of(dtype)
    if not wanted.is_floating_point and wanted != torch.bool:
        low = 0.0 if dtype == "uint8" else -100.0
        return torch.clamp(torch.nan_to_num(a.to(torch.float32)), low, 100.0).to(wanted)
    return a.to(wanted)


def _unary(name: str, function: Callable[[Any], Any], rounding: Rounding = "computed") -> Operation:
    return Operation(name, function, any_float, rounding)


def _compare(name: str, function: Callable[[Any, Any], Any]) -> Operation:
    return Operation(name, function, _any_two, "exact")


OPERATIONS = (
    _unary("neg", torch.neg, "exact"),
    _unary("abs", torch.abs, "exact"),
    _unary("relu", torch.relu, "exact"),
    _unary("sign", torch.sign, "exact"),
    _unary("floor", torch.floor, "exact"),
    _unary("ceil", torch.ceil, "exact"),
    _unary("round", torch.round, "exact"),
    _unary("trunc", torch.trunc, "exact"),
    _unary("square", torch.square, "rounded"),
    _unary("sqrt", lambda a: torch.sqrt(torch.abs(a)), "rounded"),
    _unary("rsqrt", lambda a: torch.rsqrt(torch.abs(a) + 0.5)),
    _unary("reciprocal", lambda a: torch.reciprocal(torch.abs(a) + 0.5)),
    _unary("exp", torch.exp),
    _unary("expm1", torch.expm1),
    _unary("log", lambda a: torch.log(torch.abs(a) + 0.1)),
    _unary("log2", lambda a: torch.log2(torch.abs(a) + 0.1)),
    _unary("log1p", lambda a: torch.log1p(torch.abs(a))),
    _unary("sin", torch.sin),
    _unary("cos", torch.cos),
    _unary("atan", torch.atan),
    _unary("tanh", torch.tanh),
    _unary("sigmoid", torch.sigmoid),
    _unary("erf", torch.erf),
    _unary("gelu", F.gelu, "cancelling"),
    _unary("gelu_tanh", lambda a: F.gelu(a, approximate="tanh"), "cancelling"),
    _unary("silu", F.silu),
    _unary("mish", F.mish, "cancelling"),
    _unary("softplus", F.softplus, "cancelling"),
    _unary("softsign", F.softsign),
    _unary("elu", F.elu, "cancelling"),
    _unary("selu", F.selu, "cancelling"),
    _unary("hardswish", F.hardswish),
    _unary("hardsigmoid", F.hardsigmoid),
    _unary("leaky_relu", lambda a: F.leaky_relu(a, 0.1), "rounded"),
    _unary("logsigmoid", F.logsigmoid),
    _unary("relu6", F.relu6, "exact"),
    _unary("hardtanh", lambda a: F.hardtanh(a, -0.5, 1.5), "exact"),
    _unary("nan_to_num", lambda a: torch.nan_to_num(a, nan=1.0, posinf=50.0, neginf=-50.0), "exact"),
    _unary("isnan", torch.isnan, "exact"),
    _unary("isinf", torch.isinf, "exact"),
    _unary("isfinite", torch.isfinite, "exact"),
    _unary("square_root_power", lambda a: torch.pow(torch.abs(a) + 0.1, 0.5)),
    _unary("cube", lambda a: torch.pow(a, 3)),
    _unary("inverse_square", lambda a: torch.pow(torch.abs(a) + 0.5, -2.0)),
    _unary("two_to_the", lambda a: torch.pow(2.0, torch.clamp(a, -8.0, 8.0))),
    Operation("add_number", lambda a, number: a + number, _scalar, "rounded"),
    Operation("number_minus", lambda a, number: number - a, _scalar, "rounded"),
    Operation("mul_number", lambda a, number: a * number, _scalar, "rounded"),
    Operation("div_number", lambda a, number: a / number, _scalar, "computed"),
    Operation("number_over", lambda a, number: number / (torch.abs(a) + 0.5), _scalar, "computed"),
    Operation("clamp_min", lambda a, number: torch.clamp(a, min=number), _scalar, "exact"),
    Operation("clamp_max", lambda a, number: torch.clamp(a, max=number), _scalar, "exact"),
    Operation("threshold", lambda a, number: F.threshold(a, 0.1, number), _scalar, "exact"),
    Operation("add", torch.add, _any_two, "rounded"),
    Operation("sub", torch.sub, _any_two, "rounded"),
    Operation("mul", torch.mul, _any_two, "rounded"),
    Operation("add_scaled", lambda a, b: torch.add(a, b, alpha=3), _any_two),
    Operation("div", lambda a, b: a / (torch.abs(b) + 0.5), _two),
    Operation("maximum", torch.maximum, _any_two, "exact"),
    Operation("minimum", torch.minimum, _any_two, "exact"),
    Operation("atan2", torch.atan2, _two),
    Operation("fmod", lambda a, b: torch.fmod(a, torch.abs(b) + 0.5), _two),
    Operation("remainder", lambda a, b: torch.remainder(a, torch.abs(b) + 0.5), _two),
    Operation("floor_divide_real", lambda a, b: torch.div(a, torch.abs(b) + 0.5, rounding_mode="floor"), _two),
    Operation("truncating_divide_real", lambda a, b: torch.div(a, torch.abs(b) + 0.5, rounding_mode="trunc"), _two),
    Operation("power", lambda a, b: torch.pow(torch.abs(a) + 0.1, torch.clamp(b, -3, 3)), _two),
    Operation("squared_difference", lambda a, b: torch.square(a - b), _two),
    Operation("addcmul", lambda a, b, c: torch.addcmul(a, b.to(a.dtype), c.to(a.dtype), value=0.5), _three),
    Operation("lerp", lambda a, b, c: torch.lerp(a, b.to(a.dtype), c.to(a.dtype)), _three),
    Operation("where", torch.where, _select, "exact"),
    Operation("masked_fill", lambda m, a, b: torch.masked_fill(a + b, m, -2.0), _select, "rounded"),
    Operation("cast", cast, _cast, "rounded"),
    _compare("eq", torch.eq),
    _compare("ne", torch.ne),
    _compare("lt", torch.lt),
    _compare("le", torch.le),
    _compare("gt", torch.gt),
    _compare("ge", torch.ge),
)
