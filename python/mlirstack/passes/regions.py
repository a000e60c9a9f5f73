"""What an operation depends on, regions included, and copies of it elsewhere: hoisting and outlining share this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk


def _nested(operation: Any) -> list[Any]:
    return list(walk(operation)) if len(operation.regions) else []


def external_values(operation: Any) -> list[Any]:
    """Operands of ``operation``, then what its regions use from outside, each value once."""
    found: dict[Any, None] = dict.fromkeys(operation.operands)
    inner = _nested(operation)
    inside = {result for op in inner for result in op.results}
    for op in (operation, *inner):
        for region in op.regions:
            for block in region.blocks:
                inside.update(block.arguments)
    for op in inner:
        for operand in op.operands:
            if operand not in inside:
                found.setdefault(operand)
    return list(found)


def clone_with(operation: Any, mapping: Mapping[Any, Any]) -> Any:
    """A copy of ``operation`` at the current insertion point, with values replaced as ``mapping`` says."""
    copy = operation.operation.clone()
    for op in (copy.operation, *_nested(copy.operation)):
        for i, operand in enumerate(op.operands):
            if operand in mapping:
                op.operands[i] = mapping[operand]
    return copy


def is_constant(operation: Any) -> bool:
    """Is it a constant, a scalar one or a tensor?"""
    return bool(operation.name in ("arith.constant", "complex.constant", "ub.poison"))


def tensor_type(value: Any) -> Any | None:
    """The ranked tensor type of a value, or None."""
    return ir.RankedTensorType(value.type) if isinstance(value.type, ir.RankedTensorType) else None


def static_elements(value: Any) -> int | None:
    """Number of elements of a tensor of static shape; None for anything else."""
    kind = tensor_type(value)
    if kind is None or not kind.has_static_shape:
        return None
    count = 1
    for size in kind.shape:
        count *= size
    return count
