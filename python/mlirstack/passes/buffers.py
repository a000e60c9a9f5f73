"""What bufferization needs to be told, and the place where results go.

One-Shot Bufferize works on what it knows; torch-mlir's tm_tensor ops (sort, scatter, scan, top-k, attention) are bufferized
before it, by a pass that does not say who owns the buffers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import abi, functions
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class OwnTmTensorBuffers(PythonPass):
    """Before: ``tm-tensor-bufferize`` has run: tm_tensor ops read ``to_buffer`` of tensors and write buffers that they
    allocated, which leave as ``to_tensor``.  After: each read is marked read-only and stands right before the op that reads
    (to One-Shot Bufferize it reads where it stands), the new tensors are the only name of their buffer: the analysis of the
    rest of the graph is right, and needs no defensive copies."""

    name = "mlirstack-own-tm-tensor-buffers"

    def apply(self, module: Any) -> None:
        if not any(op.name.startswith("tm_tensor.") for op in walk(module)):
            return
        for op in walk(module):
            if op.name == "bufferization.to_tensor" and op.operands[0].owner.name == "memref.alloc":
                op.attributes["restrict"] = ir.UnitAttr.get()
                op.attributes["writable"] = ir.UnitAttr.get()
            elif op.name == "bufferization.to_buffer":
                op.attributes["read_only"] = ir.UnitAttr.get()
                _read_at_uses(op)


def _read_at_uses(read: Any) -> None:
    for use in list(read.results[0].uses):
        with ir.InsertionPoint(use.owner):
            copy = read.operation.clone()
        use.owner.operands[use.operand_number] = copy.results[0]
    read.operation.erase()


@dataclass(frozen=True)
class OwnFills(PythonPass):
    """Before: linalg on tensors, about to be bufferized.  After: every ``linalg.fill`` has one use, so that what starts from
    it can write over it; shared, it would be copied for each of them."""

    name = "mlirstack-own-fills"

    def apply(self, module: Any) -> None:
        for op in walk(module):
            if op.name == "linalg.fill" and len(op.results) == 1:
                for use in list(op.results[0].uses)[1:]:
                    with ir.InsertionPoint(use.owner):
                        copy = op.clone()
                    use.owner.operands[use.operand_number] = copy.operation.results[0]


@dataclass(frozen=True)
class ResultsToArguments(PythonPass):
    """Before: bufferized entry points return memrefs.  After: the caller allocates every memref result whose shape is
    static: it is an argument marked ``bufferize.result``, and the allocation that held it is gone (or copied from, where
    it is not the result alone).  Memrefs of dynamic shape, and scalars, are still returned.

    ``buffer-results-to-out-params`` does this for whole modules, and crashes where one buffer is returned twice.
    """

    name = "mlirstack-results-to-arguments"

    def apply(self, module: Any) -> None:
        for entry in functions.entry_points(module):
            _results_to_arguments(entry)


def _results_to_arguments(entry: Any) -> None:
    signature = functions.type_of(entry)
    block, leave = entry.regions[0].blocks[0], functions.return_op(entry)
    attributes = functions.argument_attributes(entry)
    moved = [isinstance(t, ir.MemRefType) and ir.MemRefType(t).has_static_shape for t in signature.results]
    for index, is_moved in enumerate(moved):
        if not is_moved:
            continue
        value = leave.operands[index]  # as it is now: results may be reshaped from one allocation, or be the same value
        argument = block.add_argument(value.type, entry.location)
        attributes.append({abi.RESULT: ir.UnitAttr.get()})
        if not _replace_allocation(value, argument, block):
            with ir.InsertionPoint(leave), leave.location:
                dialect("memref").CopyOp(value, argument)
    kept = [value for value, is_moved in zip(leave.operands, moved, strict=True) if not is_moved]
    with ir.InsertionPoint(leave), leave.location:
        dialect("func").ReturnOp(kept)
    leave.operation.erase()
    functions.set_type(entry, [a.type for a in block.arguments], [value.type for value in kept])
    functions.set_argument_attributes(entry, attributes)
    entry.attributes[abi.RESULT_IS_ARGUMENT] = ir.DenseBoolArrayAttr.get(moved)


def _replace_allocation(value: Any, argument: Any, block: Any) -> bool:
    """Let ``argument`` be the memory of ``value``, if that is an allocation of ``block`` or reshaped from one."""
    views, source = [], functions.defining_op(value)
    while source is not None and source.name in ("memref.expand_shape", "memref.collapse_shape"):
        views.append(source)
        source = functions.defining_op(source.operands[0])
    if source is None or source.name != "memref.alloc" or source.operands or source.block != block:
        return False
    if not all(view.operands[0].type.has_static_shape and view.block == block for view in views):
        return False
    memory = argument
    with ir.InsertionPoint(source), source.location:
        for view in views:
            memory = _undo(view, memory)
    source.results[0].replace_all_uses_with(memory)
    for view in views[:1]:
        view.results[0].replace_all_uses_with(argument)
        view.erase()
    source.erase()
    return True


def _undo(view: Any, memory: Any) -> Any:
    """``memory``, which has the shape of the result of a reshape, in the shape of its operand."""
    memref, kind, reassociation = dialect("memref"), view.operands[0].type, view.attributes["reassociation"]
    if view.name == "memref.expand_shape":
        return memref.CollapseShapeOp(kind, memory, reassociation).result
    return memref.ExpandShapeOp(kind, memory, reassociation, [], kind.shape).result
