"""Narrowing of constants: torch-mlir writes every Python number as float64 and rounds it where it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class NarrowConstants(PythonPass):
    """Before: ``arith.truncf`` of ``arith.constant``.  After: a constant of the narrow type, rounded to nearest.

    The canonicalizer leaves these alone when the constant is not exact in the narrow type.
    """

    name: ClassVar[str] = "mlirstack-narrow-constants"

    def apply(self, module: Any) -> None:
        """Replace each ``truncf`` of a scalar constant."""
        arith = dialect("arith")
        for op in walk(module):
            if op.name != "arith.truncf":
                continue
            producer = op.operands[0].owner
            if isinstance(producer, ir.Block) or producer.name != "arith.constant":
                continue
            value = producer.attributes["value"]
            if not isinstance(value, ir.FloatAttr):
                continue
            with ir.InsertionPoint(op), op.location:
                narrow = arith.ConstantOp(op.results[0].type, ir.FloatAttr.get(op.results[0].type, value.value))
            op.results[0].replace_all_uses_with(narrow.result)
            op.erase()
            if not list(producer.results[0].uses):
                producer.erase()
