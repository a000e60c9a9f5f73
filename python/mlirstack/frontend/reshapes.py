"""Merged and split dimensions on the linalg route, told by the operation instead of guessed from sizes.

torch-mlir's own way, over ``aten.view``, takes a dynamic dimension for equal to a dynamic one and drops elements; see
:mod:`mlirstack.frontend.dynamic_views`, which writes the operations that are lowered here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.frontend.dtypes import TORCH_NAMES
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass

_VALUE_TENSOR = re.compile(r"!torch\.vtensor<\[([^\]]*)\],(.+)>")
_FLATTEN, _UNFLATTEN = "torch.aten.flatten.using_ints", "torch.aten.unflatten.int"


@dataclass(frozen=True)
class LowerReshapes(PythonPass):
    """Before: ``torch.aten.flatten.using_ints`` and ``torch.aten.unflatten.int`` with constant dimensions.  After:
    ``tensor.collapse_shape`` and ``tensor.expand_shape`` between conversions to builtin tensors and back.

    Operations on tensors whose rank or element type is not known stay as they are.
    """

    name: ClassVar[str] = "mlirstack-lower-reshapes"

    def apply(self, module: Any) -> None:
        """Rewrite each such operation."""
        for op in walk(module):
            if op.name not in (_FLATTEN, _UNFLATTEN):
                continue
            with ir.InsertionPoint(op), op.location:
                reshaped = _collapsed(op) if op.name == _FLATTEN else _expanded(op)
                if reshaped is None:
                    continue
                op.results[0].replace_all_uses_with(from_builtin(reshaped, op.results[0].type))
            op.erase()


def _collapsed(op: Any) -> Any:
    """The tensor with dimensions ``start`` to ``end`` merged, or None."""
    first, last = (_constant(value) for value in list(op.operands)[1:])
    source = to_builtin(op.operands[0])
    if source is None or first is None or last is None:
        return None
    shape = source.type.shape
    first, last = first % len(shape), last % len(shape)
    merged = shape[first : last + 1]
    dynamic = ir.ShapedType.get_dynamic_size()
    sizes = [*shape[:first], dynamic if dynamic in merged else math.prod(merged), *shape[last + 1 :]]
    groups = [[i] for i in range(first)] + [list(range(first, last + 1))] + [[i] for i in range(last + 1, len(shape))]
    kind = ir.RankedTensorType.get(sizes, source.type.element_type)
    return dialect("tensor").CollapseShapeOp(kind, source, groups).result


def _expanded(op: Any) -> Any:
    """The tensor with dimension ``dim`` split into the sizes of a list, or None."""
    axis, source, sizes = _constant(op.operands[1]), to_builtin(op.operands[0]), op.operands[2].owner
    wanted = builtin_type(op.results[0].type)
    if source is None or axis is None or wanted is None or sizes.name != "torch.prim.ListConstruct":
        return None
    shape, dynamic = list(source.type.shape), ir.ShapedType.get_dynamic_size()
    axis %= len(shape)
    split = list(wanted.shape)[axis : axis + len(sizes.operands)]
    if dynamic in split and shape[axis] != dynamic:  # a known size cannot be split into unknown ones
        shape[axis] = dynamic
        source = dialect("tensor").CastOp(ir.RankedTensorType.get(shape, source.type.element_type), source).result
    groups = [[i] for i in range(axis)]
    groups += [list(range(axis, axis + len(split)))]
    groups += [[i + len(split) - 1] for i in range(axis + 1, len(shape))]
    dimensions = [*(_Size(source, i) for i in range(axis)), *sizes.operands]
    dimensions += [_Size(source, i) for i in range(axis + 1, len(shape))]
    static = [*shape[:axis], *split, *shape[axis + 1 :]]
    outer = [_index(size) for size, known in zip(dimensions, static, strict=True) if known == dynamic]
    kind = ir.RankedTensorType.get(static, source.type.element_type)
    return dialect("tensor").ExpandShapeOp(kind, source, groups, outer, static).result


@dataclass(frozen=True)
class _Size:
    """Dimension ``axis`` of ``tensor``."""

    tensor: Any
    axis: int


def _index(size: Any) -> Any:
    """A size, which is a ``!torch.int`` or a :class:`_Size`, as an index."""
    arith = dialect("arith")
    if isinstance(size, _Size):
        return dialect("tensor").DimOp(size.tensor, arith.ConstantOp(ir.IndexType.get(), size.axis).result).result
    number = ir.Operation.create("torch_c.to_i64", results=[ir.IntegerType.get_signless(64)], operands=[size]).result
    return arith.IndexCastOp(ir.IndexType.get(), number).result


def to_builtin(value: Any) -> Any:
    """A value of the torch dialect as a builtin tensor, or None where rank or element type is not known."""
    kind = builtin_type(value.type)
    if kind is None:
        return None
    return ir.Operation.create("torch_c.to_builtin_tensor", results=[kind], operands=[value]).result


def from_builtin(value: Any, wanted: Any) -> Any:
    """A builtin tensor as a value of the torch dialect's type ``wanted``."""
    kind = builtin_type(wanted)
    assert kind is not None
    if value.type != kind:
        value = dialect("tensor").CastOp(kind, value).result
    return ir.Operation.create("torch_c.from_builtin_tensor", results=[wanted], operands=[value]).result


def builtin_type(torch_type: Any) -> Any:
    """The builtin tensor type of a ``!torch.vtensor``, integers without sign; None where that is not known."""
    found = _VALUE_TENSOR.fullmatch(str(torch_type))
    if found is None or found[2] not in TORCH_NAMES:
        return None
    dynamic = ir.ShapedType.get_dynamic_size()
    sizes = [dynamic if size == "?" else int(size) for size in found[1].split(",") if size]
    return ir.RankedTensorType.get(sizes, ir.Type.parse(re.sub(r"^[su](?=i\d)", "", found[2])))


def _constant(value: Any) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "torch.constant.int":
        return None
    return int(ir.IntegerAttr(owner.attributes["value"]).value)
