"""From ops to steps: a region becomes a list of Python functions, each of which does one op for all threads of a frame.

The meaning of an op is a function that looks at the op once (:class:`Op`) and returns its step.  Tables of meanings register
with :func:`meaning` (general) or :func:`elementwise` (a function of numpy arrays).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlirstack.bindings import ir

from .faults import Fault, Unsupported, describe
from .frames import Frame
from .kinds import Kind, kind_of

Step = Callable[[Frame], None]
MEANINGS: dict[str, Callable[[Op], Step | None]] = {}


def meaning(*names: str) -> Callable[[Any], Any]:
    """Decorator: the function gives the steps of these ops."""

    def register(function: Any) -> Any:
        for name in names:
            MEANINGS[name] = function
        return function

    return register


def elementwise(name: str, choose: Callable[[Op], Callable[..., Any]]) -> None:
    """Register an op whose result is ``choose(op)`` of its operands."""
    MEANINGS[name] = lambda op: apply(op, choose(op))


def apply(op: Op, function: Callable[..., Any]) -> Step:
    """The step that sets the only result to a function of the operands."""
    (result,) = op.results
    if len(op.operands) == 1:
        (a,) = op.operands

        def one(frame: Frame) -> None:
            env = frame.env
            env[result] = function(env[a])

        return one
    if len(op.operands) == 2:
        a, b = op.operands

        def two(frame: Frame) -> None:
            env = frame.env
            env[result] = function(env[a], env[b])

        return two
    operands = op.operands

    def many(frame: Frame) -> None:
        env = frame.env
        env[result] = function(*[env[number] for number in operands])

    return many


@dataclass
class Op:
    """An op being turned into a step: its values as numbers, and their kinds."""

    builder: Builder
    operation: Any
    operands: list[int]
    results: list[int]

    @classmethod
    def of_names(cls, operation: Any) -> Op:
        """An op of which only name, types and attributes are looked at."""
        return cls(Builder(None), operation, list(range(len(operation.operands))), list(range(len(operation.results))))

    @property
    def operand_kinds(self) -> list[Kind]:
        """Kinds of the operands."""
        return [kind_of(value.type) for value in self.operation.operands]

    @property
    def result_kinds(self) -> list[Kind]:
        """Kinds of the results."""
        return [kind_of(value.type) for value in self.operation.results]

    @property
    def kind(self) -> Kind:
        """Kind of the first result."""
        return kind_of(self.operation.results[0].type)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute as a Python value: int, float, bool, str, a list of ints, or the attribute itself."""
        attributes = self.operation.attributes
        return python_value(attributes[name]) if name in attributes else default

    def text(self, name: str) -> str:
        """An attribute as MLIR prints it."""
        return str(self.operation.attributes[name]) if name in self.operation.attributes else ""

    def region(self, index: int) -> Body:
        """The steps of a region of one block."""
        return self.builder.body(self.operation.regions[index].blocks[0])

    def segments(self) -> list[list[int]]:
        """Operands by ``operandSegmentSizes``."""
        groups, start = [], 0
        for size in self.attribute("operandSegmentSizes"):
            groups.append(self.operands[start : start + size])
            start += size
        return groups


def python_value(attribute: Any) -> Any:
    """An attribute as a plain Python value, where it has one."""
    if isinstance(attribute, (ir.DenseI32ArrayAttr, ir.DenseI64ArrayAttr)):
        return list(attribute)
    if isinstance(attribute, ir.ArrayAttr):
        return [python_value(entry) for entry in attribute]
    if isinstance(attribute, ir.TypeAttr | ir.DenseElementsAttr):
        return attribute
    if isinstance(attribute, ir.UnitAttr):
        return True
    return getattr(attribute, "value", attribute)


@dataclass
class Body:
    """The steps of a block; ``arguments`` and ``yields`` (operands of the terminator) are value numbers."""

    arguments: list[int]
    steps: list[Step]
    operations: list[Any]
    yields: list[int] = field(default_factory=list)

    def run(self, frame: Frame, arguments: Sequence[Any] = ()) -> list[Any]:
        """Execute, return the values of ``yields``."""
        env = frame.env
        for number, value in zip(self.arguments, arguments, strict=True):
            env[number] = value
        step = None
        try:
            for step in self.steps:
                step(frame)
        except Fault as fault:
            failed = next(i for i, each in enumerate(self.steps) if each is step)
            fault.locate(self.operations[failed], frame.names(fault.threads))
            raise
        return [env[number] for number in self.yields]


class Builder:
    """Numbers for values, steps for ops.  ``resources``: what ops ask for at build time (shared memory, symbols)."""

    def __init__(self, resources: Any) -> None:
        self.resources = resources
        self.ranks: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """The number of an SSA value."""
        if value not in self._numbers:
            self._numbers[value] = len(self.ranks)
            self.ranks.append(kind_of(value.type).rank)
        return self._numbers[value]

    def extra(self) -> int:
        """A number for a value per thread that is not an SSA value."""
        self.ranks.append(0)
        return len(self.ranks) - 1

    def body(self, block: Any) -> Body:
        """The steps of a block."""
        *operations, terminator = list(block.operations)
        body = Body([self.number(argument) for argument in block.arguments], [], [])
        for operation in operations:
            step = self.step(operation)
            if step is not None:
                body.steps.append(step)
                body.operations.append(operation)
        body.yields = [self.number(value) for value in terminator.operands]
        return body

    def op(self, operation: Any) -> Op:
        """An op with its values numbered."""
        operation = operation.operation
        operands = [self.number(value) for value in operation.operands]
        return Op(self, operation, operands, [self.number(value) for value in operation.results])

    def step(self, operation: Any) -> Step | None:
        """What one op does; None for ops that do nothing when they are executed."""
        name = operation.operation.name
        if name not in MEANINGS:
            raise Unsupported(f"the emulator has no meaning for {describe(operation)}")
        return MEANINGS[name](self.op(operation))
