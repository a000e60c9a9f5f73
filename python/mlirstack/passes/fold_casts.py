"""Widening casts, and casts of indices, folded into the ops that read their result.

A bf16 tensor that several ops read as f32 should be read as bf16 by each: the cast costs nothing in a register, and the wide
tensor would be twice the traffic.  Indices are few; a kernel that only makes them narrower costs its launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.kernel_class import op_shape
from mlirstack.passes.regions import clone_with
from mlirstack.pipeline.step import PythonPass

_WIDENING = ("arith.extf", "arith.extsi", "arith.extui")


@dataclass(frozen=True)
class FoldCasts(PythonPass):
    """Before and after: linalg on tensors.  Every ``linalg.generic`` that reads the result of an op that only widens its one
    input, or only makes i32 of torch's i64 indices, reads that input instead, and casts in its body::

        %w = generic ins(%x) { extf }                →      generic ins(%x, %y) { extf; … }
        generic ins(%w, %y) { … }
    """

    name = "mlirstack-fold-casts"

    def apply(self, module: Any) -> None:
        for op in walk(module):
            if op.name == "linalg.generic":
                casts = {}
                for position, value in enumerate(list(op.operands)[: len(op.operands) - len(op.results)]):
                    cast = _cast(functions.defining_op(value))
                    if cast is not None:
                        casts[position] = cast
                if casts:
                    _fold(op, casts)


def _cast(op: Any | None) -> Any | None:
    """The scalar cast that an elementwise op consists of, at the same place of input and result; else None."""
    shape = op_shape(op) if op is not None and op.name == "linalg.generic" else None
    if op is None or shape is None or len(shape.dims) != 2 or len(set(shape.dims)) != 1 or shape.reductions:
        return None
    if shape.dims[0] != tuple(range(len(shape.sizes))):
        return None
    inner = [entry.operation for entry in op.regions[0].blocks[0].operations]
    is_cast = len(inner) == 2 and _is_folded(inner[0]) and inner[1].operands[0] == inner[0].results[0]
    return inner[0] if is_cast else None


def _is_folded(scalar: Any) -> bool:
    is_index = scalar.name == "arith.trunci" and scalar.operands[0].type.width == 64 and scalar.results[0].type.width == 32
    return is_index or scalar.name in _WIDENING


def _fold(op: Any, casts: dict[int, Any]) -> None:
    """Replace ``op`` by one that reads the sources of ``casts`` (by number of the operand)."""
    operands = list(op.operands)
    for position in casts:
        producer = functions.defining_op(operands[position])
        assert producer is not None
        operands[position] = producer.operands[0]
    count = len(operands) - len(op.results)
    with ir.InsertionPoint(op), op.location:
        new = dialect("linalg").GenericOp(
            [result.type for result in op.results],
            operands[:count],
            operands[count:],
            op.attributes["indexing_maps"],
            op.attributes["iterator_types"],
        )
    _write_body(op.regions[0].blocks[0], new, operands, casts)
    for old, result in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    op.erase()


def _write_body(old: Any, new: Any, operands: Sequence[Any], casts: dict[int, Any]) -> None:
    scalars = [getattr(value.type, "element_type", value.type) for value in operands]
    block = new.regions[0].blocks.append(*scalars)
    mapping = dict(zip(old.arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for position, cast in casts.items():
            copy = clone_with(cast, {cast.operands[0]: block.arguments[position]})
            mapping[old.arguments[position]] = copy.results[0]
        for inner in old.operations:
            copy = clone_with(inner.operation, mapping)
            mapping.update(zip(inner.operation.results, copy.results, strict=True))
