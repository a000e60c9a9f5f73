"""Operations on integers and truth values: wrapping arithmetic, division by its three rules, bits, logic.

Divisors are not zero and shifts not wider than the type: beyond that eager itself is undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mlirstack.fuzz.op_elementwise import compatible
from mlirstack.fuzz.operations import INTEGERS, Arguments, Operation, Picker


def _one(pick: Picker) -> Arguments:
    return Arguments((pick.integers(),))


def _two(pick: Picker) -> Arguments:
    first = pick.integers()
    other = pick.value(lambda value: value.dtype in INTEGERS and compatible(first, value))
    return Arguments((first, other or pick.fresh(first.shape, first.dtype)))


def _number(pick: Picker) -> Arguments:
    return Arguments((pick.integers(),), {"number": pick.one_of((2, 3, 1, 7, -2, -3, 100))})


def _shift(pick: Picker) -> Arguments:
    return Arguments((pick.integers(),), {"bits": pick.integer(0, 6)})


def _truths(pick: Picker) -> Arguments:
    first = pick.value(lambda value: value.dtype == "bool") or pick.fresh(pick.shape(), "bool")
    other = pick.value(lambda value: value.dtype == "bool" and compatible(first, value))
    return Arguments((first, other or pick.fresh(first.shape, "bool")))


def _one_truth(pick: Picker) -> Arguments:
    return Arguments(_truths(pick).operands[:1])


def _not_zero(b: Any) -> Any:
    return torch.where(b == 0, 3, b)


def _exact(name: str, function: Callable[..., Any], pick: Callable[[Picker], Arguments]) -> Operation:
    return Operation(name, function, pick, "exact")


OPERATIONS = (
    _exact("integer_add", torch.add, _two),
    _exact("integer_sub", torch.sub, _two),
    _exact("integer_mul", torch.mul, _two),
    _exact("integer_neg", torch.neg, _one),
    _exact("integer_abs", torch.abs, _one),
    _exact("integer_sign", torch.sign, _one),
    _exact("integer_square", lambda a: a * a, _one),
    _exact("integer_clamp", lambda a: torch.clamp(a, 1, 4), _one),
    _exact("floor_divide", lambda a, b: torch.div(a, _not_zero(b), rounding_mode="floor"), _two),
    _exact("truncating_divide", lambda a, b: torch.div(a, _not_zero(b), rounding_mode="trunc"), _two),
    _exact("integer_remainder", lambda a, b: torch.remainder(a, _not_zero(b)), _two),
    _exact("integer_fmod", lambda a, b: torch.fmod(a, _not_zero(b)), _two),
    Operation("true_divide", lambda a, b: torch.true_divide(a, _not_zero(b)), _two, "rounded"),
    _exact("integer_add_number", lambda a, number: a + number, _number),
    _exact("integer_mul_number", lambda a, number: a * number, _number),
    _exact("floor_divide_number", lambda a, number: a // number, _number),
    _exact("remainder_number", lambda a, number: a % number, _number),
    Operation("real_number_times", lambda a, number: a * (number + 0.5), _number, "rounded"),
    _exact("bitwise_and", torch.bitwise_and, _two),
    _exact("bitwise_or", torch.bitwise_or, _two),
    _exact("bitwise_xor", torch.bitwise_xor, _two),
    _exact("bitwise_not", torch.bitwise_not, _one),
    _exact("shift_left", lambda a, bits: a << bits, _shift),
    _exact("shift_right", lambda a, bits: a >> bits, _shift),
    _exact("integer_maximum", torch.maximum, _two),
    _exact("integer_minimum", torch.minimum, _two),
    Operation("integer_sqrt", lambda a: torch.sqrt(torch.clamp(a, min=0)), _one, "rounded"),
    Operation("integer_sigmoid", torch.sigmoid, _one),
    _exact("logical_and", torch.logical_and, _truths),
    _exact("logical_or", torch.logical_or, _truths),
    _exact("logical_xor", torch.logical_xor, _truths),
    _exact("logical_not", torch.logical_not, _one_truth),
    _exact("truth_add", lambda a, b: a + b, _truths),
    _exact("truth_times", lambda a, b: a * b, _truths),
)
