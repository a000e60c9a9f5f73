"""Sums of what turns out to be constant, held apart from it when a program is handed to IREE.

IREE 3.13 computes elementwise ops within the reduction that reads them, and folds them there.  Where nothing but a number is
left of them (``x % 1 + 3``, or ``x[0] = 7`` where there is one row), its vector code adds it once for a whole vector.
Numbers are followed here as its folding follows them; where it is unclear they count as constant, which costs a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op
from mlirstack.passes.iree.numbering import Numbering
from mlirstack.passes.iree.readings import hold
from mlirstack.schedules.linalg_ops import LinalgOp, linalg_op

# To add a number twice is not to add it once; a maximum with it is.
_COUNTING = frozenset({"arith.addf", "arith.addi", "arith.mulf", "arith.muli", "arith.xori"})
# Elements are moved, not changed.
_VIEWS = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast", "tensor.extract_slice")
# With this operand the result is a number, whatever the other operand is.
_ABSORBING = {
    "arith.muli": 0, "arith.andi": 0, "arith.ori": -1, "arith.remsi": 1, "arith.remui": 1, "arith.minui": 0,
    "arith.maxui": -1,
}  # fmt: skip
# With this second operand (of those that commute: with one) the result is the other operand.
_NEUTRAL = {
    "arith.addi": 0, "arith.subi": 0, "arith.muli": 1, "arith.divsi": 1, "arith.divui": 1, "arith.floordivsi": 1,
    "arith.ori": 0, "arith.xori": 0, "arith.andi": -1, "arith.shli": 0, "arith.shrsi": 0, "arith.shrui": 0,
}  # fmt: skip
_COMMUTE = frozenset({"arith.addi", "arith.muli", "arith.ori", "arith.xori", "arith.andi"})
# A number where both operands are the same.
_OF_SAME = frozenset(
    {"arith.subi", "arith.xori", "arith.cmpi", "arith.divsi", "arith.divui", "arith.remsi", "arith.remui"}
)  # fmt: skip
_CASTS = frozenset({"arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"})

_SOME_NUMBER = "a number"


def hold_constant_addends(module: Any) -> None:
    """Before: a sum or product reads what is constant behind elementwise ops.  After: it reads that behind a barrier::

    %y = generic ins(%x) { muli %in, 0 }      →      %y = generic ins(%x) { muli %in, 0 }
    %sum = reduce(add) %y                            %held = util.optimization_barrier %y
                                                     %sum = reduce(add) %held
    """
    numbering = _Numbering()
    held: dict[Any, None] = {}
    for op in walk(module):
        found = linalg_op(op)
        if found is None:
            continue
        for value in op.results:  # in order: nothing is looked for in depth
            numbering.of(value)
        if found.reductions and _COUNTING.intersection(found.combiners or ()):
            read = [operand.value for operand in found.inputs if _is_computed(operand.value)]
            held |= dict.fromkeys(value for value in read if numbering.is_number(numbering.of(value)))
    for value in held:
        hold(value)


def _is_computed(value: Any) -> bool:
    op = defining_op(value)
    return op is not None and op.name not in ("arith.constant", "linalg.fill")


@dataclass
class _Numbering(Numbering):
    """Values that are computed alike have one number; ``constants`` says which of them are constant, and what."""

    constants: dict[int, int | str] = field(default_factory=dict)

    def is_number(self, number: int) -> bool:
        """Is it constant?"""
        return number in self.constants

    def _of(self, value: Any) -> int:
        op = defining_op(value)
        if op is None:
            return self._named("value", value)
        if op.name == "arith.constant":
            return self._constant(_literal(op))
        if op.name in _VIEWS or op.name == "tensor.extract":
            return self.of(op.operands[0])
        found = linalg_op(op)
        if found is not None and not found.reductions and len(op.regions) == 1:
            return self._computed(found, value)
        if op.name.startswith(("arith.", "math.")) and len(op.results) == 1:
            return self._folded(op.name, [self.of(operand) for operand in op.operands])
        return self._named("value", value)

    def _computed(self, found: LinalgOp, value: Any) -> int:
        """The number of what the body of an elementwise op yields, its arguments being the operands' elements."""
        block = found.op.regions[0].blocks[0]
        for argument, operand in zip(block.arguments, found.operands, strict=True):
            self.known[argument] = self.of(operand.value)
        *body, leave = block.operations
        for op in body:
            for result in op.operation.results:
                self.of(result)
        return self.of(leave.operands[list(found.op.results).index(value)])

    def _folded(self, name: str, operands: list[int]) -> int:
        constants = [self.constants.get(operand) for operand in operands]
        if None not in constants:
            return self._constant(constants[0] if name in _CASTS and constants[0] in (0, 1) else _SOME_NUMBER)
        first, second = operands[0], operands[-1]
        if name == "arith.select" and (constants[0] is not None or operands[1] == operands[2]):
            return self._constant(_SOME_NUMBER) if {*constants[1:]} != {None} else operands[1]
        if name in _ABSORBING and {_ABSORBING[name], _SOME_NUMBER}.intersection(constants):
            return self._constant(_SOME_NUMBER)
        if name in _OF_SAME and first == second:
            return self._constant(_SOME_NUMBER)
        if name in _NEUTRAL and constants[1] == _NEUTRAL[name]:
            return first
        if name in _COMMUTE and constants[0] == _NEUTRAL[name]:
            return second
        return self._named(name, *operands)

    def _constant(self, number: int | str | None) -> int:
        name = self._named("constant", number)
        self.constants[name] = _SOME_NUMBER if number is None else number
        return name


def _literal(op: Any) -> int | str:
    """The integer that a constant is, or holds everywhere."""
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        attribute = attribute.get_splat_value()
    if not isinstance(attribute, ir.IntegerAttr):
        return _SOME_NUMBER
    is_truth = isinstance(attribute.type, ir.IntegerType) and attribute.type.width == 1
    return -1 if is_truth and attribute.value else int(attribute.value)
