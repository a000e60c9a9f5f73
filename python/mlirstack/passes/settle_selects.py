"""Whole tensors that a flag chooses between, element by element.

A branch that computes nothing, ``scf.if %c { %a } else { %b }``, is folded to ``arith.select %c, %a, %b`` of tensors, which
torch-mlir's contract of linalg does not allow, and a launch plan does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.elementwise import elementwise
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class SettleSelects(PythonPass):
    """Before: linalg on tensors.  After: no ``arith.select`` of tensors by one flag::

    arith.select %flag, %a, %b    →    linalg.generic ins(%a, %b) { arith.select %flag, %a_element, %b_element }
    """

    name = "mlirstack-settle-selects"

    def apply(self, module: Any) -> None:
        for op in [op for op in walk(module) if op.name == "arith.select"]:
            kind = op.results[0].type
            if isinstance(kind, ir.RankedTensorType) and not isinstance(op.operands[0].type, ir.RankedTensorType):
                with ir.InsertionPoint(op), op.location:
                    flag, chosen, other = op.operands
                    select = partial(dialect("arith").select, flag)
                    op.results[0].replace_all_uses_with(elementwise([chosen, other], kind.element_type, select))
                op.erase()
