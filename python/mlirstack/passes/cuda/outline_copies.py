"""Work that stands between kernels after bufferization becomes kernels too, for the general mapping.

Bufferization copies where a kernel wants a tensor without gaps or where one may not be written in place, and fills stay
where nothing read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir import kernels
from mlirstack.passes import functions
from mlirstack.passes.cuda.host_values import is_identity
from mlirstack.passes.regions import clone_with, external_values, is_constant
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.cuda.emitter import GENERAL, Choice
from mlirstack.schedules.cuda.kernel import SCHEDULE


@dataclass(frozen=True)
class OutlineCopies(PythonPass):
    """Before: entry points over memrefs hold calls, allocations, views, and whatever else bufferization made.  After: copies
    of memrefs with gaps, fills and other linalg ops are calls of kernel functions as well; contiguous copies stay.
    """

    name = "mlirstack-outline-copies"

    def apply(self, module: Any) -> None:
        count = 0
        for entry in functions.entry_points(module):
            for op in [op.operation for block in entry.regions[0].blocks for op in block.operations]:
                if _is_work(op):
                    _outline(entry, op, f"kernel_copy_{count}")
                    count += 1


def _is_work(op: Any) -> bool:
    if op.name == "memref.copy":
        return not all(_is_contiguous(value) for value in op.operands)
    return op.name.startswith(("linalg.", "tm_tensor."))


def _is_contiguous(memref: Any) -> bool:
    """Is it known to have no gaps?"""
    kind = ir.MemRefType(memref.type)
    strides, _ = kind.get_strides_and_offset()
    expected = 1
    for axis in reversed(range(kind.rank)):
        is_unit = not kind.is_dynamic_dim(axis) and kind.get_dim_size(axis) == 1
        if strides[axis] != expected and not is_unit:
            # A dynamic stride is the product of the sizes behind it where the layout is the identity.
            return is_identity(kind)
        expected *= kind.get_dim_size(axis)
    return True


def _outline(entry: Any, op: Any, name: str) -> None:
    outside = external_values(op)
    passed = [value for value in outside if not _is_scalar_constant(value)]
    with ir.InsertionPoint(entry), op.location:
        kernel = dialect("func").FuncOp(name, ([value.type for value in passed], []), visibility="private")
    kernel.attributes[kernels.KERNEL_ATTRIBUTE] = ir.StringAttr.get(kernels.OTHER)
    kernel.attributes[SCHEDULE] = Choice(GENERAL, {}).attribute()
    block = kernel.add_entry_block()
    mapping = dict(zip(passed, block.arguments, strict=True))
    with ir.InsertionPoint(block), op.location:
        for value in outside:
            if value not in mapping:
                constant: Any = functions.defining_op(value)
                mapping[value] = constant.clone().operation.results[0]
        clone_with(op, mapping)
        dialect("func").ReturnOp([])
    with ir.InsertionPoint(op), op.location:
        dialect("func").CallOp([], name, passed)
    op.erase()


def _is_scalar_constant(value: Any) -> bool:
    producer = functions.defining_op(value)
    return producer is not None and is_constant(producer)
