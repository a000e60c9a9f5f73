"""Quotients, which TOSA has no operation for: torch-mlir says them as products with a reciprocal.

A number that is subnormal has no reciprocal, and one next to the largest has a subnormal one, though their quotients are
ordinary numbers; and a product with a rounded reciprocal is not the nearest number to a quotient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.ir.elementwise import elementwise, stretched_shape
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op
from mlirstack.pipeline.step import PythonPass

_DIVISOR = "mlirstack.divisor"


@dataclass(frozen=True)
class MarkDivisors(PythonPass):
    """Before: TOSA as torch-mlir writes it.  After: reciprocals that stand for divisions, not for the model's own, say so::

        tosa.reciprocal %y      →      tosa.reciprocal %y {mlirstack.divisor}

    It stands at the place of the model where its products are.  Later, equal ones are one, at the place of the first.
    """

    name: ClassVar[str] = "mlirstack-mark-divisors"

    def apply(self, module: Any) -> None:
        """Mark each of them."""
        for op in walk(module):
            if op.name == "tosa.reciprocal" and _divides(op):
                op.attributes[_DIVISOR] = ir.UnitAttr.get()


@dataclass(frozen=True)
class LowerQuotients(PythonPass):
    """Before: TOSA.  After: products with a reciprocal that stand for a division divide, in a ``linalg.generic``.

    Those of ``softmax`` stay: a sum of exponentials, the largest of which is 1, has a reciprocal, which is computed once for
    all that it divides.
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


def _divides(reciprocal: Any) -> bool:
    """Is each of its uses a product at its own place of the model?"""
    users = [use.owner for use in reciprocal.results[0].uses]
    return bool(users) and all(user.name == "tosa.mul" and user.location == reciprocal.location for user in users)


def _quotient(op: Any, dividend: Any, reciprocal: Any) -> Any:
    """``dividend`` times ``reciprocal`` as a quotient, or None."""
    source, kind = defining_op(reciprocal), op.results[0].type
    if source is None or source.name != "tosa.reciprocal" or _DIVISOR not in source.attributes:
        return None
    divisor = source.operands[0]
    if _is_sum_of_softmax(divisor) or stretched_shape([dividend, divisor]) != kind.shape:
        return None
    with ir.InsertionPoint(op), op.location:
        return elementwise([dividend, divisor], kind.element_type, dialect("arith").divf)


def _is_sum_of_softmax(divisor: Any) -> bool:
    """Is this a sum of exponentials of one operation of the model?"""
    total = defining_op(divisor)
    if total is None or total.name != "tosa.reduce_sum":
        return False
    terms = defining_op(total.operands[0])
    return terms is not None and terms.name == "tosa.exp" and terms.location == total.location
