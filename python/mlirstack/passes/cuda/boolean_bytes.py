"""Vectors of booleans in memory: one byte each, as torch and memrefs have it.

LLVM packs a vector of i1 into bits where it loads or stores one, while it gives a scalar i1 a byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class BooleanBytes(PythonPass):
    """Before: kernels in the LLVM dialect.  After: no vector of i1 is loaded from or stored to memory made of single i1,
    but a vector of i8.  Memory that was allocated for whole vectors keeps them."""

    name = "mlirstack-boolean-bytes"

    def apply(self, module: Any) -> None:
        for op in walk(module):
            if op.name == "llvm.load" and _is_boolean_vector(op.results[0].type) and _holds_single_elements(op.operands[0]):
                _load_bytes(op)
            elif (
                op.name == "llvm.store"
                and _is_boolean_vector(op.operands[0].type)
                and _holds_single_elements(op.operands[1])
            ):
                _store_bytes(op)


def _is_boolean_vector(kind: Any) -> bool:
    return isinstance(kind, ir.VectorType) and str(kind.element_type) == "i1"


def _holds_single_elements(pointer: Any) -> bool:
    """Was ``pointer`` made by addressing an element (and not a whole vector)?"""
    source = pointer.owner
    while isinstance(source, (ir.OpView, ir.Operation)) and source.name in ("llvm.getelementptr", "llvm.alloca"):
        if "vector<" in str(source.attributes["elem_type"]):
            return False
        if source.name == "llvm.alloca":
            return True
        source = source.operands[0].owner
    return True


def _bytes(vector: Any) -> Any:
    return ir.VectorType.get(vector.shape, ir.IntegerType.get_signless(8))


def _load_bytes(op: Any) -> None:
    """``op`` loads bytes and is followed by what makes booleans of them."""
    booleans = op.results[0].type
    op.results[0].set_type(_bytes(booleans))
    with ir.InsertionPoint.after(op), op.location:
        narrow = dialect("llvm").trunc(booleans, op.results[0], ir.Attribute.parse("#llvm.overflow<none>"))
    op.results[0].replace_all_uses_except(narrow, [narrow.owner.operation])


def _store_bytes(op: Any) -> None:
    with ir.InsertionPoint(op), op.location:
        op.operands[0] = dialect("llvm").zext(_bytes(op.operands[0].type), op.operands[0])
