"""Whole tensors that a flag chooses between, element by element.

A branch that computes nothing, ``scf.if %c { %a } else { %b }``, is folded to ``arith.select %c, %a, %b`` of tensors, which
torch-mlir's contract of linalg does not allow, and a launch plan does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
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
                    op.results[0].replace_all_uses_with(_elementwise(op, kind))
                op.erase()


def _elementwise(op: Any, kind: Any) -> Any:
    arith, linalg, tensor = dialect("arith"), dialect("linalg"), dialect("tensor")
    flag, chosen, other = op.operands
    index = ir.IndexType.get()
    sizes = [kind.get_dim_size(axis) for axis in range(kind.rank)]
    for axis in range(kind.rank):
        if kind.is_dynamic_dim(axis):
            sizes[axis] = tensor.DimOp(chosen, arith.ConstantOp(index, axis).result).result
    empty = tensor.EmptyOp(sizes, kind.element_type).result
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    parallel = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * kind.rank)
    generic = linalg.GenericOp([kind], [chosen, other], [empty], ir.ArrayAttr.get([identity] * 3), parallel)
    body = generic.regions[0].blocks.append(*[kind.element_type] * 3)
    with ir.InsertionPoint(body):
        linalg.YieldOp([arith.SelectOp(flag, body.arguments[0], body.arguments[1]).result])
    return generic.results[0]
