"""Kernels as functions of their own: compile time grows with their number, repeated ones are compiled once, and schedules
see one kernel at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import functions as module_functions
from mlirstack.passes import abi, functions
from mlirstack.passes.grouping import Group, group_operations, outermost
from mlirstack.passes.regions import clone_with, external_values, is_constant, tensor_type
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class OutlineKernels(PythonPass):
    """Before: ``@main`` and ``@prepare`` hold linalg ops on tensors, slices and loops.  After: each group of them
    (:mod:`mlirstack.passes.grouping`) is a private function ``@kernel_<class>_<n>`` marked ``mlirstack.kernel``, and
    the entry points allocate and call.

    Destination passing: the last argument of a kernel is the tensor that its result is written into; ``tensor.empty`` of it
    stays in ``@main``.  What is inside between two ops is allocated inside.
    """

    name = "mlirstack-outline-kernels"

    def apply(self, module: Any) -> None:
        counts: Counter[str] = Counter()
        entries = {functions.name_of(f): f for f in module_functions(module)}
        for entry in (entries[abi.MAIN], entries.get(abi.PREPARE)):
            if entry is not None and len(entry.regions[0].blocks) == 1:
                operations = [op.operation for op in list(entry.regions[0].blocks[0].operations)[:-1]]
                outline_groups(entry, group_operations(operations), counts)


def outline_groups(entry: Any, groups: Iterable[Group], counts: Counter[str], *, pull_slices: bool = True) -> list[Any]:
    """Make every group of ``entry`` (a func.func of one block) a kernel, in their order; the new functions, None where a
    group stays where it is.

    ``counts`` numbers the kernels of each class.  ``pull_slices``: constant slices are taken inside the kernels.
    """
    leave = functions.return_op(entry)
    kernels: list[Any] = []
    for group in groups:
        if group.kind is None:
            for op in group.ops:
                op.move_before(leave.operation)
            kernels.append(None)
            continue
        name = f"kernel_{group.kind}_{counts[group.kind]}"
        counts[group.kind] += 1
        kernels.append(_outline(entry, group, name, leave, pull_slices))
    _erase_unused(entry.regions[0].blocks[0])
    return kernels


def _outline(entry: Any, group: Group, name: str, leave: Any, pull_slices: bool) -> Any:
    """Write the kernel before ``entry``, the call before ``leave``, and erase the group's operations."""
    kernel = _Kernel(entry, group, name, pull_slices)
    last = group.ops[-1]
    with ir.InsertionPoint(leave), last.location:
        call = dialect("func").CallOp([r.type for r in kernel.results], name, kernel.arguments)
    for old, new in zip(kernel.results, call.results, strict=True):
        old.replace_all_uses_with(new)
    for op in reversed(group.ops):
        op.erase()
    return kernel.function


class _Kernel:
    """A kernel function being written.

    ``arguments`` are the values of the entry point that it is called with, ``results`` those that it computes.
    """

    def __init__(self, entry: Any, group: Group, name: str, pull_slices: bool) -> None:
        last = group.ops[-1]
        leaving = [op for op in group.ops if op == last or is_used_outside(op, group.ops)]
        self.pull_slices = pull_slices
        self.results = [r for op in leaving for r in op.results]
        results = [r.type for r in self.results]
        with ir.InsertionPoint(entry), last.location:
            self.function = dialect("func").FuncOp(name, ([], results), visibility="private")
        self.function.attributes[KERNEL_ATTRIBUTE] = ir.StringAttr.get(group.kind)
        self.function.attributes["no_inline"] = ir.UnitAttr.get()
        self.block = self.function.add_entry_block()
        self.arguments: list[Any] = []
        self.inside: dict[Any, Any] = {}  # value of @main → value of the kernel
        self.members = {result for op in group.ops for result in op.results}
        with ir.InsertionPoint(self.block):
            for op in group.ops:
                self._copy(op, leaves=op in leaving)
            with last.location:
                dialect("func").ReturnOp([self.inside[r] for r in self.results])
        functions.set_type(self.function, [v.type for v in self.block.arguments], results)

    def _copy(self, op: Any, *, leaves: bool) -> None:
        inputs, outs = _split_operands(op)
        mapping = {value: self._value(value) for value in external_values(op) if value not in outs or value in inputs}
        # Destinations come last among the arguments, and are never shared.  Slices are written into the kernel's result.
        is_result = leaves or op.name == "tensor.insert_slice"
        mapping |= {value: self._destination(value, is_result=is_result) for value in outs}
        with op.location:
            copy = clone_with(op, mapping)
        self.inside.update(zip(op.results, copy.results, strict=True))

    def _value(self, value: Any) -> Any:
        """``value`` inside the kernel: made there where that is cheaper than passing it, else an argument."""
        if value not in self.inside:
            producer = functions.defining_op(value)
            if producer is None or not _is_pulled_in(producer, self.pull_slices):
                return self._argument(value)
            mapping = {v: self._value(v) for v in external_values(producer)}
            with producer.location:
                copy = clone_with(producer, mapping)
            self.inside.update(zip(producer.results, copy.results, strict=True))
        return self.inside[value]

    def _argument(self, value: Any) -> Any:
        self.arguments.append(value)
        self.inside[value] = self.block.add_argument(value.type, self.function.location)
        return self.inside[value]

    def _destination(self, value: Any, *, is_result: bool) -> Any:
        """What an op writes over: an argument if it is the result, an allocation of its own if not; filled anew."""
        if value in self.members:
            return self.inside[value]
        producer = functions.defining_op(value)
        if producer is not None and producer.name == "linalg.fill":
            number, target = self._value(producer.operands[0]), self._destination(producer.operands[1], is_result=is_result)
            with producer.location:
                return clone_with(producer, {producer.operands[0]: number, producer.operands[1]: target}).results[0]
        if producer is not None and producer.name == "tensor.empty" and not is_result:
            with producer.location:
                return clone_with(producer, {v: self._value(v) for v in producer.operands}).results[0]
        if is_result:
            self.arguments.append(value)
            return self.block.add_argument(value.type, self.function.location)
        return self._value(value)


def is_used_outside(op: Any, members: Sequence[Any]) -> bool:
    """Does any op but ``members``, or what is nested in them, use a result of ``op``?"""
    return any(outermost(use.owner.operation, op.block) not in members for r in op.results for use in r.uses)


def _split_operands(op: Any) -> tuple[list[Any], list[Any]]:
    """What an op reads, and what it writes over: the destinations of linalg ops and of slices."""
    operands = list(op.operands)
    if op.name == "tensor.insert_slice":
        return [operands[0], *operands[2:]], [operands[1]]
    count = len(op.results) if op.name.startswith("linalg.") else 0
    return operands[: len(operands) - count], operands[len(operands) - count :]


def _is_pulled_in(op: Any, pull_slices: bool) -> bool:
    """Is it a scalar constant, a fill, a size forgotten, or a slice at a fixed place of a tensor of static shape, whose
    dimensions may be split?  A slice that is passed is copied first: kernels take whole buffers."""
    if op.name == "tensor.cast":
        kind = tensor_type(op.operands[0])
        return kind is not None and kind.has_static_shape
    if op.name == "linalg.fill" or (op.name == "tensor.empty" and not op.operands):
        return True
    if op.name == "tensor.expand_shape" and pull_slices:
        source = functions.defining_op(op.operands[0])
        return source is not None and source.name == "tensor.extract_slice" and _is_pulled_in(source, pull_slices)
    if op.name == "tensor.extract_slice" and pull_slices:
        kinds = [tensor_type(v) for v in (*op.operands, *op.results)]
        return len(op.operands) == 1 and all(kind is not None and kind.has_static_shape for kind in kinds)
    return is_constant(op) and not isinstance(op.results[0].type, ir.ShapedType)


_VALUES = ("tensor.empty", "tensor.extract_slice", "tensor.expand_shape", "linalg.fill")


def _erase_unused(block: Any) -> None:
    for op in reversed(list(block.operations)[:-1]):
        operation = op.operation
        is_value = operation.name in _VALUES or is_constant(operation)
        if is_value and not any(True for result in operation.results for _ in result.uses):
            operation.erase()
