"""Rows of Q, K or V from global to shared memory by asynchronous copies, whatever their strides are.

Used where the copy engine is not: by the kernels for FMA and for ``mma.sync``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.attention.attention_description import BATCH, COLUMN
from mlirstack.schedules.cuda.attention.attention_expression import Element
from mlirstack.schedules.cuda.attention.attention_layout import size_of
from mlirstack.schedules.cuda.attention.attention_scores import place
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.tensor_core import commit_copies, copy_async
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int

_SMALLEST = 4  # bytes of an asynchronous copy


@dataclass(frozen=True)
class RowCopies:
    """Copies by all threads of a block, for one (batch, head)."""

    kernel: Kernel
    thread: Int
    batch: Int

    def start(
        self,
        element: Element,
        index: int,
        source: Any,
        rows: tuple[Int, int],
        columns: int,
        target: Callable[[Int, Int], Any],
    ) -> None:
        """Start copying ``rows`` (first, count) of dimension ``index``, as one group of copies.

        ``columns`` of each are written, zeros where the operand has no such row or column.  ``target``: address in shared
        memory of (row from the first one, column); neighbouring columns of one access must be neighbours there.
        """
        kernel, (first, count) = self.kernel, rows
        dimensions = element.layout.dimensions
        width, last = size_of(dimensions[COLUMN]), size_of(dimensions[index])
        each = _access(element, index)
        across = columns // each
        start = self.start_of(element)

        def copy(number: Int) -> None:
            row, column = number // across, (number % across) * each
            valid = (first + row < last) & (column < width)
            offset = start + place(kernel, dimensions[index], (first + row).minimum(last - 1).wide())
            offset = offset + place(kernel, dimensions[COLUMN], column.minimum(width - each).wide())
            self._move(element, kernel.offset(source, offset, element.tensor.element), target(row, column), each, valid)

        for begin in range(0, count * across, kernel.threads):
            number = self.thread + begin
            if begin + kernel.threads <= count * across:
                copy(number)
            else:
                kernel.when(number < count * across, lambda number=number: copy(number))  # type: ignore[misc]
        commit_copies()

    def start_of(self, element: Element) -> Int:
        """Elements from the begin of an operand's tensor to this (batch, head)."""
        layout = element.layout
        begin = self.kernel.integer(layout.offset, self.kernel.i64)
        return begin + place(self.kernel, layout.dimensions[BATCH], self.batch.wide())

    def _move(self, element: Element, source: Any, target: Any, count: int, valid: Any) -> None:
        kernel, kind = self.kernel, element.tensor.element
        size = count * vectors.bytes_of(kind)
        if size >= _SMALLEST:
            copy_async(kernel, target, source, size, valid.select(kernel.integer(size), kernel.integer(0)))
            return
        zero = dialect("arith").ConstantOp(kind, ir.FloatAttr.get(kind, 0.0)).result
        value = vectors.load(kernel, kind, source)[0]
        vectors.store(kernel, [valid.select(value, zero)], target)


def _access(element: Element, index: int) -> int:
    """Neighbouring columns that one access may take: as many as all strides and the width are multiples of."""
    layout = element.layout
    if layout.stride(COLUMN) != 1:
        return 1
    counts = [stride for i in (BATCH, index) for _, stride in layout.dimensions[i]]
    counts += [layout.offset, size_of(layout.dimensions[COLUMN])]
    most = vectors.elements_per_access(element.tensor.element)
    return next(count for count in (8, 4, 2, 1) if count <= most and not any(number % count for number in counts))
