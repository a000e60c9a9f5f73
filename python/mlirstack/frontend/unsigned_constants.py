"""Constants of uint8 on the linalg route, as tensors that are filled.

Torch-mlir folds a constant that came back from builtin tensors, which have no sign, into a literal of int8, and takes its
own result for invalid (torch-mlir 20261001).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.frontend.reshapes import builtin_type, from_builtin
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class FillUnsignedConstants(PythonPass):
    """Before: ``torch.vtensor.literal`` of one uint8 number in all places.  After: ``linalg.fill`` with it, of a builtin
    tensor that is converted.
    """

    name: ClassVar[str] = "mlirstack-fill-unsigned-constants"

    def apply(self, module: Any) -> None:
        """Rewrite each such literal."""
        arith, linalg, tensor = dialect("arith"), dialect("linalg"), dialect("tensor")
        for op in walk(module):
            if op.name != "torch.vtensor.literal" or not str(op.results[0].type).endswith(",ui8>"):
                continue
            value = ir.DenseIntElementsAttr(op.attributes["value"])
            kind = builtin_type(op.results[0].type)
            if not value.is_splat or kind is None:
                continue
            with ir.InsertionPoint(op), op.location:
                byte = ir.IntegerType.get_signless(8)
                number = arith.ConstantOp(byte, ir.IntegerAttr.get(byte, int(value[0]))).result
                filled = linalg.fill(number, outs=[tensor.EmptyOp(list(kind.shape), byte).result])
                op.results[0].replace_all_uses_with(from_builtin(filled, op.results[0].type))
            op.erase()
