"""What a kernel has to do, for the kernel table: bytes that must move and floating-point operations, from its linalg ops."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from mlirstack.bindings import ir
from mlirstack.schedules.cuda.graph import Node, Tensor

BYTES, FLOPS = "mlirstack.bytes", "mlirstack.flops"  # kernel attributes, of one launch

_FREE = ("arith.constant", "arith.select", "arith.cmpf", "arith.cmpi", "arith.extf", "arith.truncf", "arith.bitcast")


def work_of(nodes: Iterable[Node]) -> tuple[int | None, int | None]:
    """Bytes and FLOPs of a kernel of ``nodes``: every tensor from outside read once, every result written once.

    None where a size is not known.  What only passes from node to node costs nothing.
    """
    nodes = list(nodes)
    if any(None in node.sizes for node in nodes):
        return None, None
    made = {operand.tensor for node in nodes for operand in node.outputs}
    read = {operand.tensor for node in nodes for operand in node.inputs if operand.tensor is not None}
    passed = {tensor for tensor in made if tensor in read and not _leaves(tensor)}
    moved = sum(tensor.bytes for tensor in (read | made) - passed if tensor is not None)
    return moved, sum(_flops(node) for node in nodes)


def set_work(kernel: Any, moved: int | None, flops: int | None) -> None:
    """Write both on a gpu.func; nothing where they are not known."""
    i64 = ir.IntegerType.get_signless(64)
    for name, value in ((BYTES, moved), (FLOPS, flops)):
        if value is not None:
            kernel.attributes[name] = ir.IntegerAttr.get(i64, value)


def _leaves(tensor: Tensor) -> bool:
    """Is it written to an argument of the kernel function?"""
    return isinstance(tensor.value.owner, ir.Block)


def _flops(node: Node) -> int:
    if not node.is_structured:
        return 0
    points = math.prod(size for size in node.sizes if size is not None)
    ops = [
        op
        for op in node.body.operations
        if op.operation.name.split(".", 1)[0] in ("arith", "math") and op.operation.name not in _FREE
    ]
    return points * sum(isinstance(op.operation.results[0].type, ir.FloatType) for op in ops)
