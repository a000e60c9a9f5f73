"""Kernels as functions of their own: compile time grows with their number, repeated ones are compiled once, and schedules
see one kernel at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import function
from mlirstack.passes import abi, functions
from mlirstack.passes.grouping import Group, group_operations
from mlirstack.passes.regions import clone_with, external_values, is_constant, tensor_type
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class OutlineKernels(PythonPass):
    """Before: ``@main`` holds linalg ops on tensors, slices and loops.  After: each group of them
    (:mod:`mlirstack.passes.grouping`) is a private function ``@kernel_<class>_<n>`` marked ``mlirstack.kernel``, and
    ``@main`` allocates and calls.

    Destination passing: the last argument of a kernel is the tensor that its result is written into; ``tensor.empty`` of it
    stays in ``@main``.  What is inside between two ops is allocated inside.
    """

    name = "mlirstack-outline-kernels"

    def apply(self, module: Any) -> None:
        main = function(module, abi.MAIN)
        if len(main.regions[0].blocks) != 1:
            return
        block = main.regions[0].blocks[0]
        leave = functions.return_op(main)
        counts: Counter[str] = Counter()
        for group in group_operations([op.operation for op in list(block.operations)[:-1]]):
            if group.kind is None:
                for op in group.ops:
                    op.move_before(leave.operation)
                continue
            name = f"kernel_{group.kind}_{counts[group.kind]}"
            counts[group.kind] += 1
            _outline(module, group, name, leave)
        _erase_unused(block)


def _outline(module: Any, group: Group, name: str, leave: Any) -> None:
    """Write the kernel before ``@main``, the call before ``leave``, and erase the group's operations."""
    last = group.ops[-1]
    kernel = _Kernel(module, group, name)
    with ir.InsertionPoint(leave), last.location:
        call = dialect("func").CallOp([r.type for r in last.results], name, kernel.arguments)
    for old, new in zip(last.results, call.results, strict=True):
        old.replace_all_uses_with(new)
    for op in reversed(group.ops):
        op.erase()


class _Kernel:
    """A kernel function being written; ``arguments`` are the values of ``@main`` that it is called with."""

    def __init__(self, module: Any, group: Group, name: str) -> None:
        last = group.ops[-1]
        results = [r.type for r in last.results]
        with ir.InsertionPoint(function(module, abi.MAIN)), last.location:
            self.function = dialect("func").FuncOp(name, ([], results), visibility="private")
        self.function.attributes[KERNEL_ATTRIBUTE] = ir.StringAttr.get(group.kind)
        self.function.attributes["no_inline"] = ir.UnitAttr.get()
        self.block = self.function.add_entry_block()
        self.arguments: list[Any] = []
        self.inside: dict[Any, Any] = {}  # value of @main → value of the kernel
        self.members = {result for op in group.ops for result in op.results}
        with ir.InsertionPoint(self.block):
            for op in group.ops:
                self._copy(op, is_last=op == last)
            with last.location:
                dialect("func").ReturnOp([self.inside[r] for r in last.results])
        functions.set_type(self.function, [v.type for v in self.block.arguments], results)

    def _copy(self, op: Any, *, is_last: bool) -> None:
        inputs, outs = _split_operands(op)
        mapping = {value: self._value(value) for value in external_values(op) if value not in outs or value in inputs}
        # Destinations come last among the arguments, and are never shared.  Slices are written into the kernel's result.
        is_result = is_last or op.name == "tensor.insert_slice"
        mapping |= {value: self._destination(value, is_result=is_result) for value in outs}
        with op.location:
            copy = clone_with(op, mapping)
        self.inside.update(zip(op.results, copy.results, strict=True))

    def _value(self, value: Any) -> Any:
        """``value`` inside the kernel: made there where that is cheaper than passing it, else an argument."""
        if value not in self.inside:
            producer = functions.defining_op(value)
            if producer is None or not _is_pulled_in(producer):
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


def _split_operands(op: Any) -> tuple[list[Any], list[Any]]:
    """What an op reads, and what it writes over: the destinations of linalg ops and of slices."""
    operands = list(op.operands)
    if op.name == "tensor.insert_slice":
        return [operands[0], *operands[2:]], [operands[1]]
    count = len(op.results) if op.name.startswith("linalg.") else 0
    return operands[: len(operands) - count], operands[len(operands) - count :]


def _is_pulled_in(op: Any) -> bool:
    """Is it a scalar constant, a fill, or a slice at a fixed place of a tensor of static shape?"""
    if op.name == "linalg.fill" or (op.name == "tensor.empty" and not op.operands):
        return True
    if op.name == "tensor.extract_slice":
        kinds = [tensor_type(v) for v in (*op.operands, *op.results)]
        return len(op.operands) == 1 and all(kind is not None and kind.has_static_shape for kind in kinds)
    return is_constant(op) and not isinstance(op.results[0].type, ir.ShapedType)


def _erase_unused(block: Any) -> None:
    for op in reversed(list(block.operations)[:-1]):
        operation = op.operation
        is_value = operation.name in ("tensor.empty", "tensor.extract_slice", "linalg.fill") or is_constant(operation)
        if is_value and not any(True for result in operation.results for _ in result.uses):
            operation.erase()
