"""Truth values that turn out to be the same, made one when a program is handed to IREE.

IREE 3.13 finds so late, where both are results of one dispatch, that ``x & x`` and ``x | (x & x)`` are one; it then copies
one result to the other, and refuses its own code ("write affecting operations on global resources are restricted to
workgroup distributed contexts").
"""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import functions
from mlirstack.passes.functions import defining_op
from mlirstack.passes.iree.numbering import Numbering
from mlirstack.schedules.linalg_ops import LinalgOp, linalg_op

# Of one operand twice that operand is the result; products of single bits are such as well.
_IDEMPOTENT = frozenset({"arith.andi", "arith.ori", "arith.maxsi", "arith.maxui", "arith.minsi", "arith.minui"})
_PRODUCT = "arith.muli"


def merge_equal_truths(module: Any) -> None:
    """Before: elementwise ops give the same truth values.  After: all that reads them reads the first::

    %y = generic ins(%x, %x) { andi }      →      …
    generic ins(%x, %y) { … }                     generic ins(%x, %x) { … }
    """
    for function in functions(module):
        for block in function.regions[0].blocks:
            numbering = _Numbering()
            first: dict[int, Any] = {}
            for value in (*block.arguments, *(result for op in block.operations for result in op.operation.results)):
                if _are_truths(value.type):
                    same = first.setdefault(numbering.of(value), value)
                    if same != value and same.type == value.type:
                        value.replace_all_uses_with(same)


def _are_truths(kind: Any) -> bool:
    return isinstance(kind, ir.RankedTensorType) and _element(kind) == "i1"


def _element(kind: Any) -> str:
    return str(kind.element_type if isinstance(kind, ir.ShapedType) else kind)


class _Numbering(Numbering):
    """Values that are computed alike, element by element, have one number."""

    def _of(self, value: Any) -> int:
        op = defining_op(value)
        if op is None:
            return self._named("value", value)
        found = linalg_op(op)
        if found is not None and _is_plain(found):
            return self._computed(found)
        if op.name.startswith("arith.") and op.name != "arith.constant" and len(op.results) == 1:
            return self._folded(op)
        return self._named("value", value)

    def _computed(self, found: LinalgOp) -> int:
        """The number of what the body yields, its arguments being the operands' elements at the loops' own position."""
        *body, leave = found.op.regions[0].blocks[0].operations
        arguments = found.op.regions[0].blocks[0].arguments
        for argument, operand in zip(arguments, found.inputs, strict=False):
            number, where = self.of(operand.value), tuple(map(str, operand.expressions))
            self.known[argument] = number if _is_identity(operand.dims, found) else self._named("at", number, where)
        for op in body:
            self.of(op.operation.results[0])
        return self.of(leave.operands[0])

    def _folded(self, op: Any) -> int:
        operands, element = [self.of(operand) for operand in op.operands], _element(op.results[0].type)
        is_idempotent = op.name in _IDEMPOTENT or (op.name == _PRODUCT and element == "i1")
        if is_idempotent and operands[0] == operands[1]:
            return operands[0]
        attributes = [str(op.attributes[number]) for number in range(len(op.attributes))]
        return self._named(op.name, *operands, *attributes, element)


def _is_identity(dims: tuple[int | None, ...], found: LinalgOp) -> bool:
    return dims == tuple(range(len(found.sizes)))


def _is_plain(found: LinalgOp) -> bool:
    """Is it a ``generic`` of one result at the loops' own position, whose body computes with its inputs alone?"""
    if found.name != "linalg.generic" or len(found.outputs) != 1 or not _is_identity(found.outputs[0].dims, found):
        return False
    block = found.op.regions[0].blocks[0]
    if list(block.arguments[len(found.inputs)].uses):
        return False
    return all(op.name.startswith("arith.") and len(op.results) == 1 for op in found.body)
