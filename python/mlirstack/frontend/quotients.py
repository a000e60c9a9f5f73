"""Quotients, which TOSA has no operation for: torch-mlir says them as products with a reciprocal.

A number that is subnormal has no reciprocal, and one next to the largest has a subnormal one, though their quotients are
ordinary numbers; and a product with a rounded reciprocal is not the nearest number to a quotient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.frontend.roots import number_everywhere
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class LowerQuotients(PythonPass):
    """Before: TOSA.  After: products with a reciprocal that stand for one division are ``arith.divf`` of tensors.

    Both stand at one place of the model, and have one shape, or the dividend is a constant; the reciprocal of a divisor that
    is stretched is computed once for all that it divides, and stays.
    """

    name: ClassVar[str] = "mlirstack-lower-quotients"

    def apply(self, module: Any) -> None:
        """Rewrite each such operation."""
        for op in walk(module):
            if op.name != "tosa.mul":
                continue
            left, right = op.operands[0], op.operands[1]
            for dividend, reciprocal in ((left, right), (right, left)):
                quotient = _quotient(op, dividend, reciprocal)
                if quotient is None:
                    continue
                op.results[0].replace_all_uses_with(quotient)
                op.erase()
                if not list(reciprocal.uses):
                    reciprocal.owner.erase()
                break


def _quotient(op: Any, dividend: Any, reciprocal: Any) -> Any:
    """``dividend`` times ``reciprocal`` as a quotient, or None."""
    source, kind = defining_op(reciprocal), op.results[0].type
    if source is None or source.name != "tosa.reciprocal" or source.location != op.location:
        return None
    divisor = source.operands[0]
    if divisor.type != kind:
        return None
    with ir.InsertionPoint(op), op.location:
        if dividend.type != kind:
            number = number_everywhere(dividend)
            if number is None or not kind.has_static_shape:
                return None
            element = ir.FloatAttr.get(kind.element_type, number)
            dividend = dialect("arith").constant(kind, ir.DenseElementsAttr.get_splat(kind, element))
        return dialect("arith").divf(dividend, divisor)
