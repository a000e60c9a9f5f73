"""Kernels in which something waits, as a list of instructions with jumps.

Regions in which nothing waits stay steps.  An op that waits registers with :func:`waiting` how it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .build import MEANINGS, Builder, Op, Step
from .faults import Unsupported, describe
from .frames import Frame
from .kinds import unsigned


@dataclass(frozen=True)
class Wait:
    """A waiting op.  ``enter``: threads arrive, once; returns a number per thread (or one for all) that comes back to
    ``ready``, which says which threads may go on.  ``leave``: they go on.

    ``joins``: strands that wait at the same place and are ready become one.  ``gathers``: strands become one in order to be
    ready.
    """

    enter: Callable[[Frame], Any]
    ready: Callable[[Frame, Any], Any]
    leave: Callable[[Frame, Any], None]
    joins: bool = False
    gathers: bool = False


WAITS: dict[str, Callable[[Op], Wait | None]] = {}


def waiting(*names: str) -> Callable[[Any], Any]:
    """Decorator: the function says how an op waits; None where this one does not."""

    def register(function: Any) -> Any:
        for name in names:
            WAITS[name] = function
        return function

    return register


BLOCK_BARRIERS = ("gpu.barrier", "nvvm.barrier0")  # these wait as well, but need no strands where all threads reach them


@dataclass
class Instruction:
    """``kind`` says which of the fields count; jumps go to ``target``."""

    kind: str
    operation: Any = None
    step: Step | None = None
    wait: Wait | None = None
    token: int = -1  # number of the value that holds what Wait.enter returned
    condition: int = -1
    target: int = -1
    join: int = -1  # where the branches of an if meet
    moves: tuple[Sequence[int], Sequence[int]] = ((), ())  # targets, sources
    bounds: tuple[int, int, int] = (-1, -1, -1)  # numbers of induction variable, end, step
    dtype: Any = None


class Code:
    """The instructions of a function."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.instructions: list[Instruction] = []

    def add(self, kind: str, **fields: Any) -> Instruction:
        """Append an instruction."""
        self.instructions.append(Instruction(kind, **fields))
        return self.instructions[-1]

    @property
    def here(self) -> int:
        """The position of the next instruction."""
        return len(self.instructions)

    def block(self, block: Any) -> list[int]:
        """Append the ops of a block; returns the numbers of what its terminator yields."""
        *operations, terminator = [op.operation for op in block.operations]
        for argument in block.arguments:
            self.builder.number(argument)
        for operation in operations:
            self.operation(operation)
        return [self.builder.number(value) for value in terminator.operands]

    def operation(self, operation: Any) -> None:
        """Append one op."""
        wait = None
        if operation.name in WAITS:
            wait = WAITS[operation.name](self.builder.op(operation))
        if wait is not None:
            self.add("wait", operation=operation, wait=wait, token=self.builder.extra())
        elif operation.name in _STRUCTURES and _contains_wait(operation):
            _STRUCTURES[operation.name](self, self.builder.op(operation))
        elif operation.name in MEANINGS or not _contains_wait(operation):
            step = self.builder.step(operation)
            if step is not None:
                self.add("step", operation=operation, step=step)
        else:
            raise Unsupported(f"something waits inside of {describe(operation)}")


def _contains_wait(operation: Any) -> bool:
    return any(_any_in(block.operations, _waits) for region in operation.regions for block in region.blocks)


def needs_strands(block: Any) -> bool:
    """Does something in a kernel wait for more than all threads of the block?"""
    return _any_in(block.operations, lambda op: op.name not in BLOCK_BARRIERS and _waits(op))


def _waits(operation: Any) -> bool:
    return operation.name in WAITS and WAITS[operation.name](Op.of_names(operation)) is not None


def _any_in(operations: Any, holds: Callable[[Any], bool]) -> bool:
    for op in operations:
        inner = [block.operations for region in op.operation.regions for block in region.blocks]
        if holds(op.operation) or any(_any_in(block, holds) for block in inner):
            return True
    return False


def _if(code: Code, op: Op) -> None:
    branch = code.add("branch", operation=op.operation, condition=op.operands[0], moves=(op.results, []))
    yielded = code.block(op.operation.regions[0].blocks[0])
    code.add("move", moves=(op.results, yielded))
    jump = code.add("jump")
    branch.target = code.here
    if len(op.operation.regions[1].blocks):
        yielded = code.block(op.operation.regions[1].blocks[0])
        code.add("move", moves=(op.results, yielded))
    branch.join = jump.target = code.here


def _for(code: Code, op: Op) -> None:
    low, high, stride, *initial = op.operands
    block = op.operation.regions[0].blocks[0]
    index, *carried = [code.builder.number(argument) for argument in block.arguments]
    dtype = op.operand_kinds[0].dtype
    bits = unsigned(dtype) if "unsignedCmp" in op.operation.attributes else dtype
    code.add("move", moves=([index, *carried], [low, *initial]))
    test = code.add("test", operation=op.operation, bounds=(index, high, stride), dtype=bits)
    yielded = code.block(block)
    code.add("next", moves=(carried, yielded), bounds=(index, high, stride), target=code.instructions.index(test))
    test.target = code.here
    code.add("move", moves=(op.results, carried))


_STRUCTURES: dict[str, Callable[[Code, Op], None]] = {"scf.if": _if, "scf.for": _for}
