"""Truth values between elementwise ops as bytes when a program is handed to IREE.

IREE 3.13 keeps what two ops of one dispatch share as it is, and its vector code reads single bits of it in the wrong places:
where a mask had one column for rows of several, half of the rows were another's.
"""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.elementwise import dynamic_sizes
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op, yield_op
from mlirstack.schedules.linalg_ops import linalg_op

_GENERIC = "linalg.generic"


def truths_as_bytes(module: Any) -> None:
    """Before: an elementwise op gives truth values that elementwise ops alone read.  After: it gives bytes::

    %mask = generic { cmpf } : tensor<5x1xi1>      →      %mask = generic { extui (cmpf) } : tensor<5x1xi8>
    generic ins(%mask) { select %in, … }                  generic ins(%mask) { select (trunci %in), … }
    """
    for op in walk(module):
        if op.name == _GENERIC and len(op.results) == 1 and _is_mask(op):
            _widen(op)


def _is_mask(op: Any) -> bool:
    found = linalg_op(op)
    value = op.results[0]
    if found is None or found.reductions or not _are_truths(value.type) or not list(value.uses):
        return False
    empty = defining_op(found.outputs[0].value)
    if empty is None or empty.name != "tensor.empty" or list(op.regions[0].blocks[0].arguments[len(found.inputs)].uses):
        return False
    return all(use.owner.name == _GENERIC and use.operand_number < _inputs(use.owner) for use in value.uses)


def _are_truths(kind: Any) -> bool:
    return isinstance(kind, ir.RankedTensorType) and str(kind.element_type) == "i1"


def _inputs(op: Any) -> int:
    found = linalg_op(op)
    return 0 if found is None else len(found.inputs)


def _widen(op: Any) -> None:
    """Bytes in the place of the truth values of ``op``."""
    arith, tensor = dialect("arith"), dialect("tensor")
    value, inputs = op.results[0], _inputs(op)
    byte, bit = ir.IntegerType.get_signless(8, value.context), value.type.element_type
    uses = [(use.owner, use.operand_number) for use in value.uses]
    with op.location:
        kind = ir.RankedTensorType.get(value.type.shape, byte)
        with ir.InsertionPoint(op):
            op.operands[inputs] = tensor.EmptyOp.build_generic([kind], dynamic_sizes(op.operands[inputs])).result
        block = op.regions[0].blocks[0]
        block.arguments[inputs].set_type(byte)
        leave = yield_op(block)
        with ir.InsertionPoint(leave):
            leave.operands[0] = arith.extui(byte, leave.operands[0])
        value.set_type(kind)
    for user, number in uses:
        block = user.regions[0].blocks[0]
        argument = block.arguments[number]
        argument.set_type(byte)
        with ir.InsertionPoint.at_block_begin(block), user.location:
            truth = arith.trunci(bit, argument)
        argument.replace_all_uses_except(truth, [truth.owner.operation])
