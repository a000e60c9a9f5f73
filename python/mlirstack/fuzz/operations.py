"""What a random graph is made of: the table of operations, and how each picks its operands and options.

An operation is a function of tensors and plain options that eager, torch.fx and the oracle all call alike, and a rule that
picks arguments for it from what a graph has so far.  The rules lie in the modules that :func:`table` collects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import torch

from mlirstack.fuzz.spec import Call, InputSpec, Option
from mlirstack.fuzz.values import LAYOUTS, VALUES

T = TypeVar("T")

Rounding = Literal["exact", "rounded", "computed", "cancelling"]
"""How near an implementation must come to the mathematical result: without any error (views, comparisons, maxima), with the
one rounding of IEEE arithmetic, within a few roundings of each operand and of the result, or, where eager's own formula
subtracts nearly equal numbers, within a few roundings of the operand's size."""

FLOATS = ("float32", "float16", "bfloat16", "float64")
SIGNED = ("int64", "int32", "int16", "int8")
INTEGERS = (*SIGNED, "uint8")
MAXIMUM_ELEMENTS = 4096


class Choices(Protocol):
    """Where decisions come from: a seed, or hypothesis.  0 and the lower bound are the simple choice."""

    def integer(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""
        ...


@dataclass(frozen=True)
class Value:
    """A tensor that a graph has so far."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """The number of elements."""
        return functools.reduce(int.__mul__, self.shape, 1)

    @property
    def is_float(self) -> bool:
        """Whether it holds real numbers."""
        return self.dtype in FLOATS


@dataclass
class Picker:
    """Chooses operands and options; an operation that finds no operand may ask for a new input."""

    choices: Choices
    values: list[Value]
    sizes: Sequence[int]
    main_dtype: str
    inputs: list[InputSpec] = field(default_factory=list)

    def integer(self, low: int, high: int) -> int:
        """See :class:`Choices`."""
        return self.choices.integer(low, high)

    def one_of(self, options: Sequence[T]) -> T:
        """One of ``options``, the first being the simplest."""
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        """True in ``percent`` of a hundred cases; False is the simple choice."""
        return self.integer(0, 99) >= 100 - percent

    def value(self, fits: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """One of the values so far that fit, recent ones preferred; None if none does."""
        found = [value for value in self.values if fits(value)]
        if not found:
            return None
        recent = found[-4:]
        return self.one_of(recent[::-1]) if self.chance(60) else self.one_of(found[::-1])

    def floats(self, rank: int = 0) -> Value:
        """A value of real numbers with ``rank`` dimensions or more, a new input if there is none."""
        found = self.value(lambda value: value.is_float and value.rank >= rank)
        return found or self.fresh([self.one_of(self.sizes) for _ in range(rank)], self.main_float)

    def integers(self, dtypes: Sequence[str] = INTEGERS) -> Value:
        """A value of one of ``dtypes``, a new input if there is none."""
        found = self.value(lambda value: value.dtype in dtypes)
        return found or self.fresh(self.shape(), self.one_of(dtypes))

    @property
    def main_float(self) -> str:
        """The graph's own dtype of real numbers."""
        return self.main_dtype if self.main_dtype in FLOATS else "float32"

    def shape(self) -> list[int]:
        """Up to four dimensions of the graph's own sizes."""
        return [self.one_of(self.sizes) for _ in range(self.one_of((2, 1, 3, 0, 4)))]

    def fresh(
        self, shape: Sequence[int], dtype: str, *, parameter: bool | None = None, values: str | None = None
    ) -> Value:  # fmt: skip
        """A new input; ``parameter`` None: one in five is a parameter."""
        name = f"x{len(self.inputs)}"
        spec = InputSpec(
            name,
            tuple(shape),
            dtype,
            layout=self.one_of([*LAYOUTS]) if self.chance(35) else "contiguous",
            values=values or (self.one_of([*VALUES]) if self.chance(35) else "normal"),
            seed=self.integer(0, 2**16),
            parameter=self.chance(20) if parameter is None else parameter,
        )
        self.inputs.append(spec)
        value = Value(name, spec.shape, dtype)
        self.values.append(value)
        return value

    def dim(self, value: Value) -> int:
        """A dimension of ``value``, which has one, from either end."""
        return self.integer(0, value.rank - 1) - (value.rank if self.chance(30) else 0)

    def dims(self, value: Value) -> tuple[int, ...]:
        """One or more dimensions of ``value``, which has one, in order."""
        mask = self.integer(1, 2**value.rank - 1)
        return tuple(dim for dim in range(value.rank) if mask >> dim & 1)


Pick = Callable[[Picker], "Arguments | None"]


@dataclass(frozen=True)
class Arguments:
    """What an operation is called with: values, then options."""

    operands: tuple[Value, ...]
    options: Mapping[str, Option] = field(default_factory=dict)

    def call(self, name: str, op: str) -> Call:
        """The call with a name for its result."""
        return Call(name, op, tuple(value.name for value in self.operands), tuple(self.options.items()))


@dataclass(frozen=True)
class Operation:
    """``function(*tensors, **options)`` gives one tensor; ``pick`` finds arguments, None where a graph has none."""

    name: str
    function: Callable[..., Any]
    pick: Pick
    rounding: Rounding = "computed"


@functools.cache
def table() -> Mapping[str, Operation]:
    """All operations by name."""
    from mlirstack.fuzz import op_elementwise, op_indexing, op_integers, op_reductions, op_shapes, op_windows

    modules = (op_elementwise, op_integers, op_shapes, op_reductions, op_indexing, op_windows)
    return {operation.name: operation for module in modules for operation in module.OPERATIONS}


def evaluate(call: Call, environment: Mapping[str, Any]) -> Any:
    """The result of ``call`` on the tensors (or torch.fx proxies) of ``environment``."""
    return table()[call.op].function(*(environment[name] for name in call.operands), **dict(call.options))


def dtype_name(dtype: torch.dtype) -> str:
    """torch's name without the prefix."""
    return str(dtype).removeprefix("torch.")
