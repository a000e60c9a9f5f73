"""Sums of a product and a bias in 16 bits, rounded once, as eager rounds ``linear`` and ``addmm``.

torch-mlir rounds the product, which is accumulated in f32, and then the sum: of a product that the bias cancels, little is
right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir import kernels
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op, yield_op
from mlirstack.passes.kernel_class import kernel_class
from mlirstack.pipeline.step import PythonPass

_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape")


@dataclass(frozen=True)
class RoundSumsOnce(PythonPass):
    """Before and after: linalg on tensors.  A product that is rounded only to be added to is added to, then rounded::

    %r = generic ins(%product) { truncf }; generic ins(%r, %bias) { addf : bf16 }
      →  generic ins(%product, %bias) { truncf (addf (%product, extf %bias) : f32) }
    """

    name = "mlirstack-round-sums-once"

    def apply(self, module: Any) -> None:
        for op in list(walk(module)):
            if not _is_generic_of(op, "arith.addf"):
                continue
            for number in (0, 1):
                rounding = _rounding_of_product(op, number)
                if rounding is not None:
                    _round_last(op, number, rounding)
                    break


def _is_generic_of(op: Any, scalar: str) -> bool:
    """Is all that ``op`` does this one operation on an element of each of its inputs, with no reduction?"""
    if op.name != "linalg.generic" or len(op.results) != 1 or "reduction" in str(op.attributes["iterator_types"]):
        return False
    block = op.regions[0].blocks[0]
    operations = list(block.operations)
    inner = operations[0].operation
    inputs = list(block.arguments)[: len(op.operands) - 1]
    return (
        len(operations) == 2
        and inner.name == scalar
        and list(inner.operands) == inputs
        and list(yield_op(block).operands) == [inner.results[0]]
    )


def _rounding_of_product(op: Any, number: int) -> Any | None:
    """What rounds a product for operand ``number`` of ``op`` and for nothing else; None where it is something else."""
    maps = ir.ArrayAttr(op.attributes["indexing_maps"])
    rounding = defining_op(op.operands[number])
    if rounding is None or not _is_generic_of(rounding, "arith.truncf") or len(list(rounding.results[0].uses)) != 1:
        return None
    own = ir.ArrayAttr(rounding.attributes["indexing_maps"])
    if own[0] != own[1] or maps[number] != maps[2] or own[0] != maps[2]:
        return None
    source = rounding.operands[0]
    kind = ir.RankedTensorType(source.type).element_type
    product = defining_op(source)
    while product is not None and product.name in _VIEWS:
        product = defining_op(product.operands[0])
    is_product = product is not None and kernel_class(product, any_size=True) == kernels.CONTRACTION
    return rounding if is_product and isinstance(kind, ir.F32Type) else None


def _round_last(op: Any, number: int, rounding: Any) -> None:
    arith, linalg, wide = dialect("arith"), dialect("linalg"), ir.F32Type.get()
    operands = list(op.operands)
    operands[number] = rounding.operands[0]
    with ir.InsertionPoint(op), op.location:
        new = linalg.GenericOp(
            [op.results[0].type], operands[:2], operands[2:], op.attributes["indexing_maps"], op.attributes["iterator_types"]
        )
        types = [ir.RankedTensorType(value.type).element_type for value in operands]
        block = new.regions[0].blocks.append(*types, arg_locs=[op.location] * len(types))
        with ir.InsertionPoint(block):
            parts = [
                part if isinstance(part.type, ir.F32Type) else arith.extf(wide, part) for part in list(block.arguments)[:2]
            ]
            linalg.YieldOp([arith.truncf(types[-1], arith.addf(*parts))])
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()
    rounding.erase()
