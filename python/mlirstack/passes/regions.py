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


def clone_body(block: Any, mapping: dict[Any, Any]) -> list[Any]:
    """Copies of all operations of ``block`` but its terminator, at the current insertion point; returns what that returns.

    ``mapping`` says what its arguments are, and is extended by the results.
    """
    *body, leave = [op.operation for op in block.operations]
    for op in body:
        mapping.update(zip(op.results, clone_with(op, mapping).results, strict=True))
    return [mapping.get(value, value) for value in leave.operands]


def inline_call(call: Any, function: Any) -> None:
    """Put the body of ``function``, of one block, in place of ``call``."""
    block = function.regions[0].blocks[0]
    with ir.InsertionPoint(call), call.location:
        values = clone_body(block, dict(zip(block.arguments, call.operands, strict=True)))
    for old, value in zip(call.results, values, strict=True):
        old.replace_all_uses_with(value)
    call.erase()


def is_constant(operation: Any) -> bool:
    """Is it a constant, a scalar one or a tensor?"""
    return bool(operation.name in ("arith.constant", "complex.constant", "ub.poison"))


def tensor_type(value: Any) -> Any | None:
    """The ranked tensor type of a value, or None."""
    return ir.RankedTensorType(value.type) if isinstance(value.type, ir.RankedTensorType) else None


def known_shape(kind: Any) -> tuple[int | None, ...]:
    """The sizes of a shaped type; None where one is dynamic."""
    return tuple(None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank))


def static_elements(value: Any) -> int | None:
    """Number of elements of a tensor of static shape; None for anything else."""
    kind = tensor_type(value)
    if kind is None or not kind.has_static_shape:
        return None
    count = 1
    for size in kind.shape:
        count *= size
    return count
