"""Accesses to memrefs inside a kernel as loads and stores through pointers.

Bodies and loops that were copied into a kernel still name memrefs of the host.  Here each access becomes pointer arithmetic
on the kernel's parameters; a position that depends on data is clamped, so that a wrong index never leaves the buffer.
"""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import ir
from mlirstack.errors import StageError
from mlirstack.ir.diagnostics import source_line
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.cuda.host_values import DeviceBuffer, HostValues
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int, Number


def rewrite_memory(kernel: Kernel, values: HostValues) -> None:
    """Rewrite every ``memref.load``, ``memref.store`` and ``memref.dim`` of ``kernel`` that names a host memref."""
    accesses = [op for op in walk(kernel.kernel) if op.name.startswith("memref.")]
    depends = [[_depends_on_data(operand) for operand in op.operands] for op in accesses]
    for op, of_data in zip(accesses, depends, strict=True):
        with ir.InsertionPoint(op), op.location:
            _rewrite(kernel, values, op, of_data)
        op.erase()


def _rewrite(kernel: Kernel, values: HostValues, op: Any, depends: list[bool]) -> None:
    first = 1 if op.name == "memref.store" else 0
    memref, *indices = list(op.operands)[first:]
    if op.name not in ("memref.load", "memref.store", "memref.dim") or memref not in values.buffers:
        raise StageError(f"no GPU code for '{op.name}' here", stage="mapped", op=op.name, location=source_line(op.location))
    buffer = values.buffers[memref]
    if op.name == "memref.dim":
        producer: Any = functions.defining_op(indices[0])
        axis = functions.integer(producer.attributes["value"])
        op.results[0].replace_all_uses_with(values.constant(buffer.sizes[axis]).index())
        return
    numbers: list[Number] = []
    for axis, (index, is_data) in enumerate(zip(indices, depends[first + 1 :], strict=True)):
        number = values.to_number(index)
        numbers.append(_clamped(number, buffer, axis, values) if is_data else number)
    address = kernel.offset(buffer.pointer, buffer.position(numbers), buffer.element)
    if op.name == "memref.load":
        op.results[0].replace_all_uses_with(kernel.load(buffer.element, address))
    else:
        kernel.store(op.operands[0], address)


def _clamped(number: Int, buffer: DeviceBuffer, axis: int, values: HostValues) -> Int:
    """Unsigned: what is negative counts as too large."""
    return number.minimum(values.constant(buffer.sizes[axis]) - 1)


def _depends_on_data(index: Any) -> bool:
    """Is ``index`` computed from memory, and not clamped already?"""
    if not isinstance(index.type, ir.IndexType):
        return False
    stack, seen = [index], set()
    while stack:
        op = functions.defining_op(stack.pop())
        if op is None or op in seen:
            continue
        seen.add(op)
        if op.name in ("memref.load", "llvm.load"):
            return True
        if op.name not in ("arith.maxsi", "arith.minsi"):
            stack.extend(op.operands)
    return False
