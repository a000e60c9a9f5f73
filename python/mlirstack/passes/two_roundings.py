"""Conversions from f64 to f16 and bf16 by way of f32, as torch has them: the answer is eager's to the bit.

Neither processors nor their run-time libraries have anything for bf16, and what IREE links for f16 has zeros for subnormal
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class TwoRoundings(PythonPass):
    """Before and after: any IR with ``arith``, on scalars or vectors.  No f64 is cut to 16 bits in one step::

        arith.truncf %x : f64 to bf16      →      arith.truncf (arith.truncf %x : f64 to f32) : f32 to bf16

    Canonicalization would fold the two into one again, so it must not follow.
    """

    name = "mlirstack-two-roundings"

    def apply(self, module: Any) -> None:
        for op in walk(module):
            if op.name == "arith.truncf":
                _by_way_of_f32(op)


def _by_way_of_f32(op: Any) -> None:
    wide, narrow = op.operands[0].type, op.results[0].type
    is_vector = isinstance(wide, ir.VectorType)
    elements = (wide.element_type, narrow.element_type) if is_vector else (wide, narrow)
    if not isinstance(elements[0], ir.F64Type) or not isinstance(elements[1], (ir.F16Type, ir.BF16Type)):
        return
    with ir.InsertionPoint(op), op.location:
        between = ir.VectorType.get(wide.shape, ir.F32Type.get()) if is_vector else ir.F32Type.get()
        op.operands[0] = dialect("arith").TruncFOp(between, op.operands[0]).result
