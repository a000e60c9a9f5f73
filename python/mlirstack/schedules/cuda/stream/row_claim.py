"""Which ops of a block become one kernel of rows: reductions, and what is computed around them on the same rows.

Takes linalg on tensors, before other kernels are formed; leaves the ops as they are.  A group grows from a reduction by the
ops that use its results, and by those that only feed it, as long as the whole is a :class:`.RowPlan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir import kernels
from mlirstack.passes import functions
from mlirstack.passes.grouping import outermost
from mlirstack.passes.kernel_class import kernel_class
from mlirstack.passes.regions import external_values
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.stream.row_plan import row_plan


def claim(operations: Sequence[Any]) -> list[list[Any]]:
    """Groups of ops in program order; ``operations`` are a block's, without those that others have claimed."""
    block = _Block([op.operation for op in operations])
    groups: list[list[Any]] = []
    for op in block.operations:
        if block.is_free(op) and _class_of(op) == kernels.REDUCTION:
            group = block.grown(op)
            if group:
                block.taken.update(group)
                groups.append(group)
    return groups


class _Block:
    """The ops of a block and what they depend on, as sets of bits: one per op."""

    def __init__(self, operations: list[Any]) -> None:
        self.operations = operations
        self.taken: set[Any] = set()
        self._number = {op: number for number, op in enumerate(operations)}
        self._ancestors: list[int] = []
        for op in operations:
            bits = 0
            for producer in self._producers(op):
                bits |= 1 << self._number[producer] | self._ancestors[self._number[producer]]
            self._ancestors.append(bits)

    def is_free(self, op: Any) -> bool:
        """Is it a structured op of this block that no group has yet?"""
        return op in self._number and op not in self.taken and op.name.startswith("linalg.") and op.name != "linalg.fill"

    def grown(self, seed: Any) -> list[Any]:
        """The group of a reduction; empty where not even the reduction alone is rows."""
        group = {seed}
        if not self._is_rows(group):
            return []
        refused: set[Any] = set()
        while True:
            near = (*self._using(group), *self._beside(group), *self._feeding(group))
            wanted = [op for op in near if op not in refused]
            if not wanted:
                return self._ordered(group)
            if self._is_rows({*group, wanted[0]}):
                group.add(wanted[0])
                refused.clear()
            else:
                refused.add(wanted[0])

    def _using(self, group: set[Any]) -> Iterator[Any]:
        """Ops that read results of the group, in program order."""
        users = {self._outermost(use) for op in group for result in op.results for use in result.uses}
        return (op for op in self._ordered(users & self._number.keys()) if op not in group and self._can_join(op))

    def _beside(self, group: set[Any]) -> Iterator[Any]:
        """Reductions of what the reductions of the group read."""
        read = {value for op in group if _class_of(op) == kernels.REDUCTION for value in list(op.operands)[:-1]}
        users = {self._outermost(use) for value in read if isinstance(value.type, ir.RankedTensorType) for use in value.uses}
        for op in self._ordered(users & self._number.keys()):
            if op not in group and self.is_free(op) and _class_of(op) == kernels.REDUCTION:
                yield op

    def _feeding(self, group: set[Any]) -> Iterator[Any]:
        """Elementwise ops whose results only the group reads, and which are not the end of a product's kernel."""
        producers = {producer for op in group for producer in self._producers(op)}
        for op in self._ordered(producers - group):
            users = {self._outermost(use) for result in op.results for use in result.uses}
            if users <= group and self._can_join(op) and not any(_is_root(p) for p in self._producers(op)):
                yield op

    def _can_join(self, op: Any) -> bool:
        return self.is_free(op) and _class_of(op) in (kernels.ELEMENTWISE, kernels.REDUCTION)

    def _is_rows(self, group: set[Any]) -> bool:
        return self._is_convex(group) and _are_rows(self._ordered(group))

    def _is_convex(self, group: set[Any]) -> bool:
        """Does no value take a way out of the group and back into it?"""
        members = sum(1 << self._number[op] for op in group)
        needed = 0
        for op in group:
            needed |= self._ancestors[self._number[op]]
        outside = needed & ~members
        return not any(outside >> number & 1 and bits & members for number, bits in enumerate(self._ancestors))

    def _producers(self, op: Any) -> list[Any]:
        found = (functions.defining_op(value) for value in external_values(op))
        return [producer for producer in found if producer is not None and producer in self._number]

    def _outermost(self, use: Any) -> Any:
        return outermost(use.owner.operation, self.operations[0].block)

    def _ordered(self, ops: set[Any]) -> list[Any]:
        return sorted(ops, key=self._number.__getitem__)


def _is_root(op: Any) -> bool:
    roots = (kernels.CONTRACTION, kernels.CONVOLUTION, kernels.POOLING)
    return op.name.startswith("linalg.") and op.name != "linalg.fill" and _class_of(op) in roots


def _class_of(op: Any) -> str:
    """The class of an op; a reduction with several results is one too."""
    found = kernel_class(op, any_scalar=True, any_size=True)
    return kernels.REDUCTION if found == kernels.OTHER and op.name == "linalg.generic" and _are_rows([op]) else found


def _are_rows(ops: Sequence[Any]) -> bool:
    graph = KernelGraph(ops).bounded()
    return graph is not None and row_plan(graph) is not None
