"""The general mapping: any op over memrefs to kernels, right for everything, fast where that is cheap.

A linalg op becomes one kernel with a thread per element of its result, neighbouring threads on neighbouring elements;
reduction loops run inside the thread, with accumulators in registers.  Copies and fills are kernels of the same kind.  What
is left (loops over slices, scatter, scan, sort) runs in order on one thread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes.cuda.flat import FlatKernel, NodeBody, is_large, is_wide, load, loop_sizes, store
from mlirstack.passes.cuda.general_reduction import map_reduction
from mlirstack.passes.cuda.loops import as_loops, loop_of_axis, nest_of, parallel_axes
from mlirstack.passes.regions import clone_with, external_values
from mlirstack.schedules.cuda.extent import host_size
from mlirstack.schedules.cuda.graph import KernelGraph, Node
from mlirstack.schedules.cuda.values import Int, Number

_VIEWS = ("memref.subview", "memref.expand_shape", "memref.collapse_shape", "memref.cast", "memref.reinterpret_cast")
_HOST_OPS = (*_VIEWS, "memref.alloc", "memref.dealloc", "memref.dim", "memref.extract_strided_metadata")


def map_function(function: Any) -> None:
    """Replace the work of ``function`` (a func.func over memrefs) by kernels and launches, in the order of its ops.

    Allocations, views and index arithmetic stay: the host does them.
    """
    nodes = {node.op: node for node in KernelGraph.of(function).nodes if node.is_structured}
    operations = [op.operation for op in list(function.regions[0].blocks[0].operations)[:-1]]
    filled: dict[Any, Any] = {}  # memref → the scalar that the next op on it starts from
    for position, op in enumerate(operations):
        if op.name == "linalg.fill":
            scalar, target = op.operands
            if _starts_from(target, operations[position + 1 :], nodes):
                filled[target] = scalar
            else:
                _map_fill(function, scalar, target)
        elif op.name == "memref.copy":
            map_copy(function, *op.operands)
        elif op in nodes:
            initial = [filled.pop(operand.value, None) for operand in nodes[op].outputs]
            if not map_reduction(function, nodes[op], initial):
                _map_node(function, nodes[op], initial)
        elif op.name in _HOST_OPS or _is_host_arithmetic(op):
            continue
        else:
            _map_sequence(function, op)
        op.erase()


def _starts_from(target: Any, following: Sequence[Any], nodes: dict[Any, Node]) -> bool:
    """Is the next op on ``target`` one that writes all of it, so that it can start from a number instead of memory?"""
    user = next((op for op in following if target in external_values(op)), None)
    if user is None or user not in nodes:
        return False
    node = nodes[user]
    outputs = [operand for operand in node.outputs if operand.value == target]
    is_read = any(operand.value == target for operand in node.inputs)
    return len(outputs) == 1 and not is_read and None not in outputs[0].dims


def _is_host_arithmetic(op: Any) -> bool:
    return op.name.split(".", 1)[0] in ("arith", "affine", "index", "complex") and not len(op.regions)


# --------------------------------------------------------------------------------------------------- one thread per element


def _map_node(function: Any, node: Node, initial: Sequence[Any]) -> None:
    """One thread per element of the result, reduction loops inside."""
    sizes = loop_sizes(function, node)
    parallel = [loop for loop, kind in enumerate(node.iterators) if kind == "parallel"]
    written = [dim for dim in node.outputs[0].dims if dim is not None]
    order = [loop for loop in parallel if loop not in written] + [loop for loop in written if loop in parallel]
    reductions = list(node.reductions)
    flat = FlatKernel(function, [sizes[loop] for loop in order], wide=is_wide(node, sizes))
    if flat.is_empty:
        return
    body = NodeBody(flat.values, node, initial)
    bounds = [flat.values.dimension(sizes[loop]) for loop in reductions]

    def element(position: Sequence[Number]) -> None:
        indices: list[Number] = [0] * len(node.iterators)
        for loop, index in zip(order, position, strict=True):
            indices[loop] = index

        def reduce(depth: int, carried: Sequence[Any]) -> Sequence[Any]:
            if depth == len(reductions):
                return body.compute(indices, carried)

            def step(index: Int, *inner: Any) -> Sequence[Any]:
                indices[reductions[depth]] = index
                return reduce(depth + 1, inner)

            zero, one = (flat.values.constant(n) for n in (0, 1))
            return flat.kernel.loop(zero, flat.values.constant(bounds[depth]), one, carried, step)

        body.store(indices, reduce(0, body.initial(indices)))

    flat.write(element)
    flat.describe(node)


def _map_fill(function: Any, scalar: Any, target: Any) -> None:
    flat = _over(function, target)
    if flat.is_empty:
        return
    buffer, value = flat.values.buffer(target), flat.values.scalar(scalar)
    flat.write(lambda position: store(flat.kernel, buffer, position, value))
    flat.describe_bytes(_bytes(target))


def map_copy(function: Any, source: Any, target: Any) -> None:
    """Copy between two memrefs of one shape, contiguous or not."""
    flat = _over(function, target)
    if flat.is_empty:
        return
    read, written = flat.values.buffer(source), flat.values.buffer(target)
    flat.write(lambda position: store(flat.kernel, written, position, load(flat.kernel, read, position)))
    flat.describe_bytes(_bytes(source, target))


def _bytes(*memrefs: Any) -> int | None:
    kinds = [ir.MemRefType(memref.type) for memref in memrefs]
    if not all(kind.has_static_shape for kind in kinds):
        return None
    return sum(math.prod(kind.shape) * max(1, kind.element_type.width // 8) for kind in kinds)


def _over(function: Any, target: Any) -> FlatKernel:
    rank = ir.MemRefType(target.type).rank
    sizes = [host_size(function, target, axis) for axis in range(rank)]
    return FlatKernel(function, sizes, wide=is_large(sizes))


# --------------------------------------------------------------------------------------------------------- threads in order


def _map_sequence(function: Any, op: Any) -> None:
    """``op``, loops and all, on one thread; on one for each place along the axes whose order does not matter."""
    lowered = as_loops(op)
    loops = {axis: loop_of_axis(op, axis) for axis in parallel_axes(op)}
    split = {axis: loop for axis, loop in loops.items() if loop is not None and loop < len(lowered.nest)}
    flat = FlatKernel(function, [host_size(function, op.operands[0], axis) for axis in split], wide=True)
    if flat.is_empty:
        return
    arguments = dict(zip(lowered.arguments, external_values(op), strict=True))
    for value in arguments.values():
        if isinstance(value.type, ir.MemRefType):
            flat.values.buffer(value)
        else:
            flat.values.scalar(value)

    def thread(position: Sequence[Number]) -> None:
        indices = [flat.values.constant(index).index() for index in position]
        mapping = {inside: flat.values.scalars.get(outside, outside) for inside, outside in arguments.items()}
        copies = []
        for inner in lowered.operations:
            copies.append(clone_with(inner, mapping).operation)
            mapping.update(zip(inner.results, copies[-1].results, strict=True))
        nest = nest_of(copies)
        for loop, index in zip(split.values(), indices, strict=True):
            _run_once(nest[loop], index)

    flat.write(thread)


def _run_once(loop: Any, index: Any) -> None:
    """Let a loop have the one iteration ``index``."""
    outermost = loop
    while outermost.parent.operation.name == "scf.for":
        outermost = outermost.parent.operation
    arith = dialect("arith")
    with ir.InsertionPoint(outermost):
        after = arith.AddIOp(index, arith.ConstantOp(ir.IndexType.get(), 1).result).result
    loop.operands[0], loop.operands[1] = index, after
