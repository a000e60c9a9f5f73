"""Copies where IREE would hand a kernel a place in the middle of a tensor.

IREE leaves out copies: a kernel that reads a slice reads it where it lies, and one whose result is put into a larger tensor
writes it there.  Kernels read and write 16 bytes at a time; at other places than multiples of that they would fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir import kernels
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.regions import tensor_type
from mlirstack.schedules.cuda.emitter import GENERAL, Choice
from mlirstack.schedules.cuda.kernel import SCHEDULE

ALIGNMENT = 16  # bytes
_DYNAMIC = -(1 << 63)  # MLIR: this number is an operand
_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")


def copy_unaligned(main: Any, alignment: int = ALIGNMENT) -> None:
    """Before: ``main`` calls kernel functions.  After: what they take of slices, and put into slices, that do not begin at a
    multiple of ``alignment`` bytes, is copied by a kernel that moves element by element."""
    calls = [op for op in walk(main) if op.name == "func.call"]
    count = 0
    for call in calls:
        for number, operand in enumerate(call.operands):
            if tensor_type(operand) is not None and _begins_unaligned(operand, alignment):
                with ir.InsertionPoint(call), call.location:
                    call.operands[number] = _copied(main, operand, count)
                count += 1
        for result in call.results:
            for insertion in _insertions(result):
                if _is_unaligned(insertion, tensor_type(insertion.operands[1]), alignment):
                    with ir.InsertionPoint(insertion), insertion.location:
                        insertion.operands[0] = _copied(main, insertion.operands[0], count)
                    count += 1


def _begins_unaligned(value: Any, alignment: int) -> bool:
    """Is ``value`` a contiguous part of another tensor, from an unaligned place on?"""
    producer = functions.defining_op(value)
    while producer is not None and producer.name in (*_VIEWS, "tensor.extract_slice"):
        is_slice = producer.name == "tensor.extract_slice"
        if is_slice and _is_unaligned(producer, tensor_type(producer.operands[0]), alignment):
            return True
        producer = functions.defining_op(producer.operands[0])
    return False


def _insertions(value: Any) -> Iterator[Any]:
    """The ops that put ``value`` into a larger tensor."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in _VIEWS:
            yield from _insertions(op.results[0])
        elif op.name == "tensor.insert_slice" and use.operand_number == 0:
            yield op


def _is_unaligned(slicing: Any, whole: Any, alignment: int) -> bool:
    """Is it a part without gaps of a tensor of type ``whole``, whose first byte may be no multiple of ``alignment``?"""
    offsets, sizes, steps = (
        list(ir.DenseI64ArrayAttr(slicing.attributes[name])) for name in ("static_offsets", "static_sizes", "static_strides")
    )
    shape = [_DYNAMIC if whole.is_dynamic_dim(axis) else whole.get_dim_size(axis) for axis in range(whole.rank)]
    first = next((axis for axis, size in enumerate(sizes) if size != 1), whole.rank)
    if any(step != 1 for step in steps) or sizes[first + 1 :] != shape[first + 1 :]:
        return False  # IREE gathers it
    unit = max(1, whole.element_type.width // 8)
    for offset, size in zip(reversed(offsets), reversed(shape), strict=True):
        if (unit if offset == _DYNAMIC else offset * unit) % alignment:
            return True
        if size == _DYNAMIC:
            # What is outside of it is some multiple of what is inside.
            continue
        unit *= size
    return False


def _copied(main: Any, value: Any, number: int) -> Any:
    """A copy of ``value`` by a kernel function of its own."""
    kind: Any = tensor_type(value)
    name = f"kernel_unaligned_{number}"
    function = _copy_function(main, kind, name)
    sizes = [
        dialect("tensor").DimOp(value, dialect("arith").ConstantOp(ir.IndexType.get(), axis).result).result
        for axis in range(kind.rank)
        if kind.is_dynamic_dim(axis)
    ]
    empty = dialect("tensor").EmptyOp.build_generic([kind], sizes).result
    return dialect("func").CallOp([kind], functions.name_of(function), [value, empty]).results[0]


def _copy_function(main: Any, kind: Any, name: str) -> Any:
    with ir.InsertionPoint(main), main.location:
        function = dialect("func").FuncOp(name, ([kind, kind], [kind]), visibility="private")
    function.attributes[kernels.KERNEL_ATTRIBUTE] = ir.StringAttr.get(kernels.OTHER)
    function.attributes[SCHEDULE] = Choice(GENERAL, {}).attribute()
    block = function.add_entry_block()
    with ir.InsertionPoint(block), main.location:
        # What says that it must be copied: an elementwise op that returns its operand would be folded.
        copy = dialect("bufferization").MaterializeInDestinationOp(kind, *block.arguments)
        dialect("func").ReturnOp([copy.result])
    return function
