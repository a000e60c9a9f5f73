"""Few queries, many keys: the keys are divided among blocks, and a second kernel puts their softmaxes together.

Every block leaves the largest score, the sum of exponentials and the weighted sum of its keys in float32; combining them is
exact up to rounding, and in a fixed order.  Heads that share K and V become rows of one matrix, so that both are read once.
The method is that of Flash-Decoding (Dao, Haziza, Massa and Sizov, 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.attention.attention_description import BATCH, COLUMN, ROW, Attention
from mlirstack.schedules.cuda.attention.attention_expression import Element, move
from mlirstack.schedules.cuda.attention.attention_layout import Dimension, Layout, dimension, split
from mlirstack.schedules.cuda.attention.attention_rows import RowNumbers, RowSoftmax, RowState
from mlirstack.schedules.cuda.attention.attention_scores import Scores, offset_of
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Float, Int

_THREADS = 128  # of a block that combines


def grouped(attention: Attention) -> Attention:
    """Heads that read the same K and V as more rows of one head; ``attention`` itself where there are none."""
    shared = [element.layout.dimensions[BATCH][-1:] for element in (attention.key, attention.value)]
    if shared[0] != shared[1] or not shared[0] or shared[0][0][1] != 0:
        return attention
    size = shared[0][0][0]

    def regrouped(layout: Layout) -> Layout | None:
        pieces = split(layout.dimensions[BATCH], (attention.batch // size, size))
        if pieces is None:
            return None
        batch, heads = pieces
        spelled = heads or ((size, 0),)
        row: Dimension = dimension([*spelled, *(layout.dimensions[ROW] or ((attention.rows, 0),))])
        return replace(layout, dimensions=(batch, row, *layout.dimensions[ROW + 1 :]))

    elements = (attention.query, attention.key, attention.value, *attention.results)
    moved = [(element.tensor, regrouped(element.layout)) for element in elements]
    found = [Element(tensor, layout) for tensor, layout in moved if layout is not None]
    scores = move(attention.scores, regrouped)
    if len(found) < len(moved) or scores is None:
        return attention
    query, key, value, output, *others = found
    formula = replace(attention.row_formula, output=others[0]) if attention.row_formula is not None else None
    return replace(
        attention, query=query, key=key, value=value, output=output, scores=scores, row_formula=formula,
        batch=attention.batch // size, rows=attention.rows * size,
    )  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """What the blocks leave, as memrefs of the host: per part, (batch, head) and row, the columns' sums and two numbers."""

    attention: Attention
    count: int
    sums: Any
    numbers: Any

    @staticmethod
    def allocate(function: Any, attention: Attention, count: int) -> Parts:
        """Memory for ``count`` parts, in the kernel function."""
        rows = count * attention.batch * attention.rows
        with ir.InsertionPoint(functions.return_op(function)), function.location:
            sums, numbers = (
                dialect("memref").AllocOp(ir.MemRefType.get([rows * each], ir.F32Type.get()), [], []).result
                for each in (attention.value_width, 2)
            )
        return Parts(attention, count, sums, numbers)

    def row(self, part: Int, batch: Int, row: Int) -> Int:
        """Number of a row among all, 64 bits."""
        return (part * self.attention.batch + batch).wide() * self.attention.rows + row.wide()


def emit_combination(function: Any, scores: Scores, parts: Parts) -> None:
    """Write the kernel that combines the parts, and its launch: a block for each row."""
    attention = scores.attention
    kernel = Kernel(function, threads=_THREADS, schedule="attention", suffix="_combine")
    sums, numbers, output = (kernel.pointer(m) for m in (parts.sums, parts.numbers, attention.output.tensor.value))
    row_numbers = RowNumbers.of(kernel, scores)
    with kernel.body():
        _Combiner(kernel, scores, parts, (sums, numbers, output), row_numbers).write()
    kernel.launch((attention.batch * attention.rows,))


class _Combiner:
    def __init__(
        self, kernel: Kernel, scores: Scores, parts: Parts, pointers: tuple[Any, Any, Any], row_numbers: RowNumbers
    ) -> None:
        self.kernel, self.parts, self.attention = kernel, parts, scores.attention
        self.sums, self.numbers, self.output = pointers
        self.row_numbers = row_numbers
        self.softmax = RowSoftmax(kernel, scores, lanes=1)

    def write(self) -> None:
        """One row: the largest score of all parts, then their sums, each with the weight that its own largest score has."""
        kernel, attention, count = self.kernel, self.attention, self.parts.count
        number = kernel.block_index()
        self.batch, self.row = number // attention.rows, number % attention.rows
        columns = [kernel.thread() + first for first in range(0, attention.value_width, _THREADS)]

        def largest(part: Int, maximum: Float) -> Sequence[Float]:
            return [maximum.max_ignoring_nan(self._number(part, 0))]

        (maximum,) = kernel.loop(0, count, 1, [kernel.real(float("-inf"))], largest)

        def add(part: Int, total: Float, *sums: Float) -> Sequence[Float]:
            (weight,) = self.softmax.exponentials([self._number(part, 0)], maximum)
            added = [weight.fma(self._sum(part, column), value) for column, value in zip(columns, sums, strict=True)]
            return [weight.fma(self._number(part, 1), total), *added]

        total, *sums = kernel.loop(0, count, 1, [kernel.real(0.0)] * (1 + len(columns)), add)
        finished = self.softmax.finished(RowState([maximum], [total]))
        self.row_numbers.store(finished, self.batch, [self.row], kernel.thread().equals(0))
        (factor,) = self.softmax.reciprocals(finished)
        for column, value in zip(columns, sums, strict=True):
            self._store(column, value * factor)

    def _number(self, part: Int, which: int) -> Float:
        """0: the largest score of a part, 1: its sum of exponentials."""
        place_of = self.kernel.offset(self.numbers, self.parts.row(part, self.batch, self.row) * 2 + which, self.kernel.f32)
        return Float(vectors.load(self.kernel, self.kernel.f32, place_of)[0])

    def _sum(self, part: Int, column: Int) -> Float:
        """The weighted sum of a part; the last column again beyond it."""
        width = self.attention.value_width
        inside = column.minimum(width - 1).wide()
        offset = self.parts.row(part, self.batch, self.row) * width + inside
        return Float(vectors.load(self.kernel, self.kernel.f32, self.kernel.offset(self.sums, offset, self.kernel.f32))[0])

    def _store(self, column: Int, value: Float) -> None:
        kernel, output = self.kernel, self.attention.output
        kind = output.tensor.element

        def write() -> None:
            offset = offset_of(kernel, output.layout, {BATCH: self.batch, ROW: self.row, COLUMN: column})
            vectors.store(kernel, [value.to(kind)], kernel.offset(self.output, offset, kind))

        kernel.when(column < self.attention.value_width, write)
