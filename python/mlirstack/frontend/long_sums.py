"""Sums and differences of int64 on the TOSA route: ``tosa.add`` and ``tosa.sub`` of 64 bits.

torch-mlir's conversion casts both sides to int32 first, because TOSA's base profile has no 64-bit integers, and cuts large
numbers off; the dialect and all that lies below it add 64 bits as well as 32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import ir
from mlirstack.frontend.reshapes import builtin_type, from_builtin, to_builtin
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass

_SUMS = {
    "torch.aten.add.Tensor": "tosa.add",
    "torch.aten.add.Scalar": "tosa.add",
    "torch.aten.sub.Tensor": "tosa.sub",
    "torch.aten.sub.Scalar": "tosa.sub",
    "torch.aten.rsub.Scalar": "tosa.sub",
}


@dataclass(frozen=True)
class LowerLongSums(PythonPass):
    """Before: ``torch.aten.add``, ``sub`` and ``rsub`` with an int64 result and constant numbers.  After: ``tosa.add`` and
    ``tosa.sub`` between conversions to builtin tensors and back; other operands are cast to int64 first.
    """

    name: ClassVar[str] = "mlirstack-lower-long-sums"

    def apply(self, module: Any) -> None:
        """Rewrite each such operation."""
        for op in walk(module):
            if op.name not in _SUMS or not _is_long(op.results[0].type):
                continue
            with ir.InsertionPoint(op), op.location:
                total = _sum(op)
                if total is None:
                    continue
                op.results[0].replace_all_uses_with(from_builtin(total, op.results[0].type))
            op.erase()


def _is_long(torch_type: Any) -> bool:
    kind = builtin_type(torch_type)
    return kind is not None and str(torch_type).endswith("si64>")


def _sum(op: Any) -> Any:
    """The sum or difference as a builtin tensor, or None where an operand is not known well enough."""
    wanted = builtin_type(op.results[0].type)
    left, right, factor = (_long(value) for value in op.operands)
    if left is None or right is None or factor is None:
        return None
    if "rsub" in op.name:
        left, right = right, left
    if _number(op.operands[2]) != 1:
        right = _product(factor, right)
    left, right = (_of_rank(value, wanted.rank) for value in (left, right))
    if left is None or right is None:
        return None
    return ir.Operation.create(_SUMS[op.name], results=[wanted], operands=[left, right]).result


def _long(value: Any) -> Any:
    """A tensor or a constant number as a tensor of int64, or None."""
    if str(value.type) in ("!torch.int", "!torch.bool"):
        number = _number(value)
        return None if number is None else _constant([number], ir.IntegerType.get_signless(64))
    kind = builtin_type(value.type)
    if kind is None or not isinstance(kind.element_type, ir.IntegerType) or ",ui" in str(value.type):
        return None
    source = to_builtin(value)
    long = ir.RankedTensorType.get(list(kind.shape), ir.IntegerType.get_signless(64))
    return source if source.type == long else ir.Operation.create("tosa.cast", results=[long], operands=[source]).result


def _number(value: Any) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "torch.constant.int":
        return None
    return int(ir.IntegerAttr(owner.attributes["value"]).value)


def _constant(numbers: list[int], element: Any) -> Any:
    kind = ir.RankedTensorType.get([len(numbers)], element)
    values = ir.Attribute.parse(f"dense<{numbers}> : {kind}")
    return ir.Operation.create("tosa.const", results=[kind], attributes={"values": values}).result


def _product(factor: Any, value: Any) -> Any:
    factor = _of_rank(factor, value.type.rank)
    shift = _constant([0], ir.IntegerType.get_signless(8))
    return ir.Operation.create("tosa.mul", results=[value.type], operands=[value, factor, shift]).result


def _of_rank(value: Any, rank: int) -> Any:
    """``value`` with dimensions of size 1 in front or, where it is one number, behind; None where that is not known."""
    shape, dynamic = list(value.type.shape), ir.ShapedType.get_dynamic_size()
    if len(shape) == rank:
        return value
    if shape.count(dynamic) > 1:
        return None
    sizes = [1] * (rank - len(shape)) + shape if len(shape) < rank else []
    if len(shape) > rank and math.prod(shape) != 1:
        return None
    known = [-1 if size == dynamic else size for size in sizes]
    values = ir.Attribute.parse(f"dense<{known or ''}> : tensor<{rank}xindex>")
    wanted = ir.Type.parse(f"!tosa.shape<{rank}>")
    target = ir.Operation.create("tosa.const_shape", results=[wanted], attributes={"values": values}).result
    kind = ir.RankedTensorType.get(sizes, value.type.element_type)
    return ir.Operation.create("tosa.reshape", results=[kind], operands=[value, target]).result
