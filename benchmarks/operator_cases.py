"""Graphs of one operation each: every operation of ``mlirstack fuzz``, all dtypes that eager takes, ranks, layouts, values.

The operation's own rule picks the other operands and the options; the dtype is put in afterwards, so that what eager takes
is found by asking eager, and not written down here.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, replace

from mlirstack.fuzz.generate import SeedChoices, result_of
from mlirstack.fuzz.op_integers import OPERATIONS as INTEGER_OPERATIONS
from mlirstack.fuzz.operations import FLOATS, Arguments, Picker, table
from mlirstack.fuzz.spec import GraphSpec, InputSpec, without_dead_code

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool", "complex64")
INEXACT = (*FLOATS, "complex64")
ALL_CASES = ("float32", "int64")  # the dtypes that go through all cases

_STAND_INS = ("float32", "int64", "bool")  # what rules ask for; the dtype in question takes its place
_ATTEMPTS = 6  # draws of an operation's rule for one shape
_SIZES = (3, 5, 2, 4, 1, 7)  # of the other operands and of what options need


@dataclass(frozen=True)
class Case:
    """One way to call an operation: the first operand has the first of ``shapes`` that the operation takes."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    layout: str = "contiguous"
    values: str = "normal"


EMPTY = "no elements"
_USUAL = ((3, 5), (2, 3, 5), (2, 3, 5, 4), (5,), (2, 3, 3, 4, 3))

CASES = (
    Case("scalar", ((),)),
    Case("vector", ((13,),)),
    Case("matrix", ((5, 7),)),
    Case("rank 3", ((2, 3, 5),)),
    Case("rank 4", ((2, 3, 4, 5),)),
    Case("rank 5", ((1, 2, 3, 4, 3),)),
    Case("rank 6", ((2, 1, 3, 2, 1, 2),)),
    Case(EMPTY, ((0, 3), (0,), (2, 0, 3), (0, 3, 4, 5))),
    Case("one element", ((1, 1), (1,), (1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1, 1))),
    Case("long", ((37, 33), (257,), (3, 17, 19), (1, 4, 19, 23), (1, 2, 9, 10, 11))),
    Case("permuted", _USUAL, layout="permuted"),
    Case("strided", _USUAL, layout="strided"),
    Case("expanded", _USUAL, layout="expanded"),
    Case("channels last", ((2, 3, 4, 5),), layout="channels_last"),
    Case("whole numbers", _USUAL, values="whole"),
    Case("special values", ((9, 11), (4, 5, 7), (2, 4, 5, 6), (61,), (1, 2, 4, 5, 6)), values="special"),
)
"""Special values: NaN, infinities, zeros of both signs, subnormal numbers; for integers all that the dtype has."""


FEW_CASES = ("scalar", "matrix", EMPTY, "long", "permuted", "special values")


@dataclass(frozen=True)
class Draw:
    """What an operation's rule picked where the operands are of dtype ``stand_in``; the first input is the case's own."""

    arguments: Arguments
    inputs: tuple[InputSpec, ...]
    stand_in: str


@functools.cache
def graphs(op: str, dtype: str) -> dict[str, GraphSpec]:
    """The graphs of ``op`` with operands of ``dtype``, by the name of their case; none where eager does not take it."""
    if table()[op] in INTEGER_OPERATIONS and dtype in INEXACT:
        return {}
    found: dict[str, GraphSpec] = {}
    for case in CASES:
        if dtype not in ALL_CASES and case.name not in FEW_CASES:
            continue
        if dtype == "complex64" and case.values == "special":
            continue  # eager's own answer there depends on how its loops are vectorised
        tried = (_graph(op, draw, dtype) for draw in _draws(op, case))
        graph = next((graph for graph in tried if graph is not None), None)
        if graph is not None:
            found[case.name] = graph
    return found if set(found) - {EMPTY} else {}  # what eager takes where there is nothing to compute is not taken


@functools.cache
def _draws(op: str, case: Case) -> tuple[Draw, ...]:
    """For each stand-in the first draw that eager takes in it."""
    found = (_first(op, case, stand_in) for stand_in in _STAND_INS)
    return tuple(draw for draw in found if draw is not None)


def _first(op: str, case: Case, stand_in: str) -> Draw | None:
    for shape in case.shapes:
        for attempt in range(_ATTEMPTS):
            source = SeedChoices(random.Random(f"{op}/{case.name}/{shape}/{stand_in}/{attempt}"))
            picker = Picker(source, [], _SIZES, stand_in)
            picker.fresh(shape, stand_in, parameter=False)
            picker.inputs[0] = replace(picker.inputs[0], layout=case.layout, values=case.values)
            arguments = table()[op].pick(picker)
            if arguments is None or picker.values[0] not in arguments.operands:
                continue
            draw = Draw(arguments, tuple(picker.inputs), stand_in)
            if _graph(op, draw, stand_in) is not None:
                return draw
    return None


def _graph(op: str, draw: Draw, dtype: str) -> GraphSpec | None:
    """The graph of a draw with ``dtype`` in the place of what stood in for it; None where eager does not take it."""
    replaced = _replaced(draw, dtype)
    if replaced is None:
        return None
    inputs = tuple(_with_dtype(spec, replaced, dtype) for spec in draw.inputs)
    kinds = {spec.name: spec.dtype for spec in inputs}
    operands = tuple(replace(value, dtype=kinds[value.name]) for value in draw.arguments.operands)
    call = Arguments(operands, draw.arguments.options).call("v0", op)
    if result_of(call, operands) is None:
        return None
    return without_dead_code(GraphSpec(inputs, (call,), ("v0",)))


def _replaced(draw: Draw, dtype: str) -> str | None:
    """Which of the operands' dtypes ``dtype`` takes the place of: that of real numbers where there are any."""
    found = {value.dtype for value in draw.arguments.operands}
    if "float32" in found:
        return "float32"
    return draw.stand_in if draw.stand_in in found and not (draw.stand_in == "int64" and dtype in INEXACT) else None


def _with_dtype(spec: InputSpec, replaced: str, dtype: str) -> InputSpec:
    if spec.dtype != replaced:
        return spec
    return replace(spec, dtype=dtype, values="normal" if dtype == "complex64" and spec.values == "special" else spec.values)
