"""Random graphs: one function that draws a :class:`GraphSpec` from choices, which a seed or hypothesis makes.

Shapes and dtypes of results are found by running eager on zeros, so an operation that eager refuses is not in any graph.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass

import torch

from mlirstack.fuzz.operations import (
    FLOATS,
    MAXIMUM_ELEMENTS,
    SIGNED,
    Choices,
    Operation,
    Picker,
    Value,
    dtype_name,
    evaluate,
    table,
)
from mlirstack.fuzz.spec import Call, GraphSpec, without_dead_code
from mlirstack.fuzz.values import dtype_of, widened

MINIMUM_CALLS, MAXIMUM_CALLS = 3, 25
_ATTEMPTS = 200  # operations tried for one graph; most fit
_MAXIMUM_RANK = 6
# Sizes around the widths of vectors and register tiles, one, and now and then nothing.
_SIZES = (2, 3, 4, 5, 1, 7, 8, 9, 13, 16, 17, 33)


@dataclass(frozen=True)
class SeedChoices:
    """Choices from a seed: the same graph for the same ``(seed, number)`` on every machine."""

    source: random.Random

    @classmethod
    def of(cls, seed: int, number: int) -> SeedChoices:
        """The choices of graph ``number`` of ``seed``."""
        return cls(random.Random(f"{seed}/{number}"))

    def integer(self, low: int, high: int) -> int:
        """See :class:`Choices`."""
        return self.source.randint(low, high)


@dataclass(frozen=True)
class Drawn:
    """Graph ``number`` of ``seed``, by its name: drawn where it is needed."""

    seed: int
    number: int


def graph_of(seed: int, number: int) -> GraphSpec:
    """Graph ``number`` of ``seed``."""
    return generate(SeedChoices.of(seed, number))


def generate(choices: Choices) -> GraphSpec:
    """A graph of 3 to 25 calls, all of whose results reach an output."""
    picker = Picker(choices, [], (), "float32")
    wanted = choices.integer(MINIMUM_CALLS, MAXIMUM_CALLS)
    sizes = [picker.one_of(_SIZES) for _ in range(choices.integer(1, 3))]
    picker.sizes = [*sizes, *([1] if picker.chance(40) else []), *([0] if picker.chance(8) else [])]
    picker.main_dtype = _main_dtype(picker)
    for _ in range(choices.integer(1, 3)):
        picker.fresh(picker.shape(), picker.main_dtype)
    operations = list(table().values())
    calls: list[Call] = []
    for _ in range(_ATTEMPTS):
        if len(calls) == wanted:
            break
        call = _draw(picker, picker.one_of(operations), f"v{len(calls)}")
        if call is not None:
            calls.append(call)
    return without_dead_code(GraphSpec(tuple(picker.inputs), tuple(calls), _outputs(picker, calls)))


def _main_dtype(picker: Picker) -> str:
    if picker.chance(15):
        return picker.one_of(SIGNED)
    return picker.one_of(FLOATS) if picker.chance(50) else "float32"


def _draw(picker: Picker, operation: Operation, name: str) -> Call | None:
    """A call of ``operation``, its result among the values; None where it does not fit the graph."""
    inputs, values = len(picker.inputs), len(picker.values)
    arguments = operation.pick(picker)
    if arguments is not None:
        call = arguments.call(name, operation.name)
        result = result_of(call, arguments.operands)
        if result is not None:
            picker.values.append(result)
            return call
    # What was asked for in vain.
    del picker.inputs[inputs:], picker.values[values:]
    return None


def result_of(call: Call, operands: tuple[Value, ...]) -> Value | None:
    """The result's shape and dtype; None where eager refuses, or where it grows too large."""
    given = {value.name: torch.zeros(value.shape, dtype=dtype_of(value.dtype)) for value in operands}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # results that are resized, casts that lose precision
            result = evaluate(call, given)
            if not result.numel():  # what eager's fast paths take for nothing, others refuse, the one of float64 among them
                evaluate(call, {name: widened(value) for name, value in given.items()})
    except (RuntimeError, IndexError, ValueError, NotImplementedError):  # eager's ways to refuse
        return None
    if result.numel() > MAXIMUM_ELEMENTS or result.dim() > _MAXIMUM_RANK:
        return None
    return Value(call.name, tuple(result.shape), dtype_name(result.dtype))


def _outputs(picker: Picker, calls: list[Call]) -> tuple[str, ...]:
    """Results that nothing reads, and now and then one that is read as well."""
    read = {name for call in calls for name in call.operands}
    return tuple(call.name for call in calls if call.name not in read or picker.chance(10))
