"""Where f32 may be multiplied as TF32: a mark on multiplications, which stays with them until kernels are written.

torch allows it for matrix products and for convolutions separately.  Later stages cannot tell the two apart, nor from sums
of products that eager computes op by op, in f32: a 1x1 convolution is a contraction there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.errors import UsageError
from mlirstack.ir.kernels import TF32_ATTRIBUTE
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass

MATMUL, CONVOLUTION = "matmul", "convolution"
KINDS = (MATMUL, CONVOLUTION)


@dataclass(frozen=True)
class AllowTf32(PythonPass):
    """Before: matrix products and convolutions are named linalg ops.  After: the multiplications of f32 in those of the
    kinds ``ops`` ("matmul", "convolution") are marked ``mlirstack.tf32``: tensor cores may compute them as TF32.

    Bodies of named ops are not printed: the marks are seen once ``mlirstack-generalize-named`` has run.  Depthwise
    convolutions are left alone, as eager's are f32.
    """

    name = "mlirstack-allow-tf32"
    ops: tuple[str, ...] = ()

    def apply(self, module: Any) -> None:
        unknown = [kind for kind in self.ops if kind not in KINDS]
        if unknown:
            raise UsageError(f"no f32 ops are called '{unknown[0]}'", hint=f"ops: {', '.join(KINDS)}")
        for op in walk(module):
            if _kind(op) in self.ops:
                for product in _products(op):
                    product.attributes[TF32_ATTRIBUTE] = ir.UnitAttr.get()


def _kind(op: Any) -> str | None:
    """What torch calls a named op; None for all others."""
    linalg = dialect("linalg")
    if not op.name.startswith("linalg.") or op.name == "linalg.generic" or linalg.get_indexing_maps(op) is None:
        return None
    if linalg.isa_contraction_op(op):
        return MATMUL
    return CONVOLUTION if linalg.isa_convolution_op(op) and "depthwise" not in op.name else None


def _products(op: Any) -> Iterator[Any]:
    """The multiplications in the body whose factors are f32 in memory."""
    for inner in op.regions[0].blocks[0].operations:
        if inner.operation.name == "arith.mulf" and all(
            isinstance(factor.owner, ir.Block) and isinstance(factor.type, ir.F32Type) for factor in inner.operands
        ):
            yield inner.operation
