"""Scalars that are checked, held apart from their checks when a program is handed to IREE.

IREE 3.13 takes a check of numbers without dimensions for an elementwise op, fuses it with what else is computed there, and
then mistakes one of the results for another (``expected type of bb argument #1 ('i32') to match element or self type of the
corresponding operand ('i1')``).
"""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op
from mlirstack.passes.iree.readings import barrier
from mlirstack.schedules.linalg_ops import linalg_op


def hold_checked_scalars(module: Any) -> None:
    """Before: an op without loops computes what the program reads.  After: from operands behind barriers, which no others
    read::

    %ok = generic ins(%x) { cmpi ne, %in, 0 }      →      %held = util.optimization_barrier %x
    cf.assert (tensor.extract %ok[]), …                   %ok = generic ins(%held) { cmpi ne, %in, 0 }
    """
    for op in walk(module):
        found = linalg_op(op)
        if found is None or found.sizes or not any(use.owner.name == "tensor.extract" for use in op.results[0].uses):
            continue
        for number, operand in enumerate(found.inputs):
            if _is_computed(operand.value):
                with ir.InsertionPoint(op), op.location:
                    op.operands[number] = barrier(operand.value).result


def _is_computed(value: Any) -> bool:
    op = defining_op(value)
    return op is not None and linalg_op(op) is not None
