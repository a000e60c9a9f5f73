"""Zeros around a tensor, recognized: a fill and a slice written into it (or ``tensor.pad``), on tensors and on memrefs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.graph import KernelGraph, Node


@dataclass(frozen=True)
class Padding:
    """``source`` (an MLIR value of ``shape``) begins at ``lows`` of a larger tensor that is zero elsewhere.

    ``nodes``: the ops that make it, apart from fills.
    """

    source: Any
    shape: tuple[int, ...]
    lows: tuple[int, ...]
    nodes: tuple[Node, ...]


def padding_of(graph: KernelGraph, node: Node, number: int) -> Padding | None:
    """How input ``number`` of ``node`` is a padded tensor, by ops of ``graph``; None where it is not."""
    tensor = node.inputs[number].tensor
    if tensor is None:
        return None
    if tensor.producer is not None:
        return _on_tensors(tensor.producer)
    return _on_memrefs(graph, tensor.value)


def _on_tensors(producer: Node) -> Padding | None:
    op = producer.op
    if producer.name == "tensor.pad":
        lows = _static(op.attributes["static_low"])
        yielded = functions.yield_op(op.regions[0].blocks[0]).operands[0]
        return _padding(op.operands[0], lows, (producer,)) if _is_zero(yielded) else None
    if producer.name != "tensor.insert_slice" or not _covers(op):
        return None
    fill = functions.defining_op(op.operands[1])
    if fill is None or fill.name != "linalg.fill" or not _is_zero(fill.operands[0]):
        return None
    return _padding(op.operands[0], _static(op.attributes["static_offsets"]), (producer,))


def _on_memrefs(graph: KernelGraph, buffer: Any) -> Padding | None:
    """The buffer, a temporary of the kernel or of its caller, is filled once, and copied to through one view."""
    allocation = functions.defining_op(buffer)
    if allocation is not None and allocation.name != "memref.alloc":
        return None
    users = [use.owner.operation for use in buffer.uses]
    fills = [op for op in users if op.name == "linalg.fill"]
    views = [op for op in users if op.name == "memref.subview"]
    if len(fills) != 1 or len(views) != 1 or not _is_zero(fills[0].operands[0]) or not _covers(views[0]):
        return None
    copies = [use.owner.operation for use in views[0].results[0].uses]
    if len(copies) != 1 or copies[0].name != "memref.copy" or copies[0].operands[1] != views[0].results[0]:
        return None
    nodes = tuple(node for node in graph.nodes if node.op in (views[0], copies[0]))
    return _padding(copies[0].operands[0], _static(views[0].attributes["static_offsets"]), nodes)


def _padding(source: Any, lows: tuple[int, ...] | None, nodes: tuple[Node, ...]) -> Padding | None:
    kind = ir.ShapedType(source.type)
    if lows is None or not kind.has_static_shape or len(lows) != kind.rank:
        return None
    return Padding(source, tuple(kind.shape), lows, nodes)


def _covers(op: Any) -> bool:
    """Is the slice as large as its source, with steps of 1?  (A slice that drops dimensions is not.)"""
    strides = _static(op.attributes["static_strides"])
    sizes = _static(op.attributes["static_sizes"])
    shaped = op.operands[0] if op.name == "tensor.insert_slice" else op.results[0]
    return strides is not None and set(strides) <= {1} and sizes == tuple(ir.ShapedType(shaped.type).shape)


def _static(attribute: Any) -> tuple[int, ...] | None:
    """The numbers, None where one of them is known at run time only."""
    numbers = tuple(ir.DenseI64ArrayAttr(attribute))
    return None if ir.ShapedType.get_dynamic_size() in numbers else numbers


def _is_zero(value: Any) -> bool:
    producer = functions.defining_op(value)
    if producer is None or producer.name != "arith.constant":
        return False
    attribute = producer.attributes["value"]
    number = ir.FloatAttr(attribute) if isinstance(attribute, ir.FloatAttr) else ir.IntegerAttr(attribute)
    return bool(number.value == 0)
