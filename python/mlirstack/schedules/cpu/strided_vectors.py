"""Vectors whose elements lie apart in memory: read and written one by one, without a loop.

MLIR lowers such a transfer to a loop that inserts into, or extracts from, the vector at a place that changes.  LLVM does not
unroll it, and a place that changes is a comparison for each element; what follows an outer product, a broadcast of each
element, would be a load by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes.regions import clone_with
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.linalg_ops import kernels


@dataclass(frozen=True)
class UnrollStridedVectors(PythonPass):
    """Before: kernels without transfers above rank one.  After: no loop there that steps through the elements of one vector.

    Transfers that may be out of bounds keep their loop.
    """

    name: ClassVar[str] = "mlirstack-cpu-unroll-strided-vectors"

    def apply(self, module: Any) -> None:
        for _, _, function in kernels(module):
            for loop in [op for op in walk(function) if op.name == "scf.for"]:
                if _steps_through_a_vector(loop):
                    _unroll(loop)


def _steps_through_a_vector(loop: Any) -> bool:
    *body, leave = [op.operation for op in loop.regions[0].blocks[0].operations]
    index, *carried = loop.regions[0].blocks[0].arguments
    if any(len(op.regions) for op in body) or len(carried) > 1:
        return False
    bounds = [_constant(value) for value in list(loop.operands)[:3]]
    if carried:  # the last operation inserts into the vector that is carried, the only use of it
        insert = leave.operands[0].owner
        if not isinstance(insert, (ir.Operation, ir.OpView)) or len(list(carried[0].uses)) != 1:
            return False
        at = _place(insert.operation, "vector.insert", 1)
        return at == (carried[0], index) and bounds == [0, _length(carried[0]), 1]
    places = [_place(op, "vector.extract", 0) for op in body if op.name == "vector.extract"]
    return len(places) == 1 and places[0] is not None and bounds == [0, _length(places[0][0]), 1] and places[0][1] == index


def _place(op: Any, name: str, vector: int) -> tuple[Any, Any] | None:
    """The vector of rank one that ``op`` called ``name`` has as operand ``vector``, and the place in it if that changes."""
    if op.name != name or len(op.operands) != vector + 2 or _length(op.operands[vector]) is None:
        return None
    return op.operands[vector], op.operands[vector + 1]


def _length(value: Any) -> int | None:
    kind = value.type
    return int(kind.shape[0]) if isinstance(kind, ir.VectorType) and kind.rank == 1 and not kind.scalable else None


def _constant(value: Any) -> int | None:
    owner = value.owner
    is_known = isinstance(owner, (ir.Operation, ir.OpView)) and owner.operation.name == "arith.constant"
    return int(ir.IntegerAttr(owner.operation.attributes["value"]).value) if is_known else None


def _unroll(loop: Any) -> None:
    block = loop.regions[0].blocks[0]
    *body, leave = [op.operation for op in block.operations]
    index, *carried = block.arguments
    elements = []
    with ir.InsertionPoint(loop), loop.location:
        for i in range(_constant(loop.operands[1]) or 0):
            mapping = {index: dialect("arith").constant(ir.IndexType.get(), i)}
            for op in body:
                if carried and op == leave.operands[0].owner.operation:
                    elements.append(mapping.get(op.operands[0], op.operands[0]))
                else:
                    mapping.update(zip(op.results, clone_with(op, mapping).results, strict=True))
        if carried:
            read = ir.Operation.create("vector.from_elements", results=[carried[0].type], operands=elements).results[0]
            loop.results[0].replace_all_uses_with(read)
    loop.erase()
