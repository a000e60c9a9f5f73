"""Boxes of results in shared memory: how accumulators are written there, and how threads store rows of a box that the copy
engine cannot (of an odd number of columns, or in no whole boxes).

A box is 64 rows of 128 (or 64) bytes of one warpgroup, swizzled so that no bank is hit twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlirstack.bindings import dialect
from mlirstack.schedules.cuda.instructions import shared_memory, vectors, warpgroup
from mlirstack.schedules.cuda.instructions.warpgroup import SWIZZLE
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.epilogue import Tile, pack_pair
from mlirstack.schedules.cuda.values import Int, Number
from mlirstack.schedules.cuda.wgmma.wgmma_tile import STORE_BUFFER, WgmmaProblem

Run = Sequence[Any]  # values of two adjacent columns
GROUP = 8  # columns of a group of accumulators
_WARP_ROWS = 16  # of a box that a warp writes
_ROWS_AT_ONCE = 4  # of a warp, on their way from shared memory at the same time


@dataclass(frozen=True)
class Thread:
    """A thread of a consumer: its warpgroup (0, 1, …), and its number, warp and lane in it.

    ``interleaved``: the 16 rows of a warp are not one after the other; see :func:`left_fragments`.
    """

    warpgroup: Int
    number: Int
    warp: Int
    lane: Int
    interleaved: bool = False

    @property
    def row(self) -> Int:
        """Row of the thread's first accumulator in a block of 64."""
        return self.row_of(self.lane >> 2)

    @property
    def halves(self) -> tuple[int, int]:
        """The two rows of a fragment that a thread has, relative to each other."""
        return (0, 4) if self.interleaved else (0, 8)

    def row_of(self, slot: Int, half: Int | None = None) -> Int:
        """Row of a block of 64 that stands in row ``slot`` (0 to 7) of one half of the warp's fragment."""
        if self.interleaved:
            first = (self.warp >> 1) * 32 + (self.warp & 1) * 8 + (slot >> 2) * 16 + (slot & 3)
        else:
            first = self.warp * _WARP_ROWS + slot
        return first if half is None else first + half * self.halves[1]

    @property
    def column(self) -> Int:
        """Column of the thread's first accumulator in a group of 8."""
        return (self.lane & 3) * 2


def write_box(
    kernel: Kernel, thread: Thread, buffer: Any, groups: Sequence[Sequence[Run]], first: int, size: int, row_bytes: int
) -> None:
    """Write groups of 8 columns, ``first`` the first in the box, of elements of ``size`` bytes (2 or 4).

    ``groups``: for each the runs of the thread's two rows.
    """
    if size == 2:
        _write_16(kernel, thread, buffer, groups, first, row_bytes)
    else:
        _write_32(kernel, thread, buffer, groups, first)


def _write_16(
    kernel: Kernel, thread: Thread, buffer: Any, groups: Sequence[Sequence[Run]], first: int, row_bytes: int
) -> None:
    """Two groups of 8 columns are four 8 by 8 matrices."""
    lane = thread.lane
    own = thread.row_of(lane & 7, (lane >> 3) & 1)
    line = kernel.offset(buffer, own * row_bytes)
    row = own & 7 if row_bytes == SWIZZLE else (own & 7) >> 1  # the swizzle repeats after 1024 bytes, or 512
    for group in range(0, len(groups), 2):
        registers = [pack_pair(kernel, *run) for halves in groups[group : group + 2] for run in halves]
        chunk = _swizzled((lane >> 4) + (first + group), row)
        shared_memory.store_matrix(kernel.offset(line, chunk), registers)


def _write_32(kernel: Kernel, thread: Thread, buffer: Any, groups: Sequence[Sequence[Run]], first: int) -> None:
    """Each thread has 8 bytes of a row."""
    lane = thread.lane
    for half, distance in enumerate(thread.halves):
        own = thread.row + distance
        line = kernel.offset(buffer, own * SWIZZLE)
        for group, halves in enumerate(groups):
            chunk = _swizzled(((lane & 3) >> 1) + 2 * (first + group), own & 7)
            vectors.store(kernel, halves[half], kernel.offset(line, chunk + (lane & 1) * 8))


def _swizzled(chunk: Int, row: Number) -> Int:
    """Bytes to a 16-byte chunk of a row; ``row``: what the swizzle adds to its chunks' numbers."""
    return (chunk ^ row) * 16


class RowStores:
    """Outputs of ``problem`` that leave row by row: a warp stores 128 bytes of a row at a time."""

    def __init__(self, kernel: Kernel, problem: WgmmaProblem, thread: Thread, shared: Any) -> None:
        self._kernel, self._problem, self._thread = kernel, problem, thread
        outputs = problem.contraction.outputs
        self._bytes = [vectors.bytes_of(output.access.tensor.element) for output in outputs]
        self._groups = problem.warpgroup_columns // GROUP
        self._buffer = (
            kernel.offset(shared, thread.warpgroup * STORE_BUFFER + problem.row_stores) if any(problem.gathered) else None
        )

    def write(self, output: int, runs: Sequence[Sequence[Run]], group: int, row: Int, column: Int, epilogue: Tile) -> None:
        """Some groups of 8 columns, ``group`` the first, of a block of 64 rows that begins at ``row`` and ``column``.

        Rows are stored when a box is full, or the last group is written.
        """
        size = self._bytes[output]
        groups = SWIZZLE // size // GROUP  # of a box
        for start in range(0, len(runs), groups):
            part, first = runs[start : start + groups], group + start
            if first % groups == 0:
                self._meet()  # all rows of the box before are stored
            write_box(self._kernel, self._thread, self._buffer, part, first % groups, size, SWIZZLE)
            end = first + len(part)
            if end % groups == 0 or end == self._groups:
                begin = (end - 1) // groups * groups
                self._meet()
                self._store(output, row, column + begin * GROUP, (end - begin) * GROUP, epilogue)

    def _store(self, output: int, row: Int, column: Int, columns: int, epilogue: Tile) -> None:
        """Store the first ``columns`` of the box, whose corner is at ``row`` and ``column``."""
        kernel, contraction = self._kernel, self._problem.contraction
        own = self._thread.warp * _WARP_ROWS
        if contraction.n % columns == 0 and self._problem.result_columns % columns == 0:
            limit = kernel.integer(columns)
        else:
            limit = (contraction.n - column).minimum(columns)
        store = self._store_16 if self._bytes[output] == 2 else self._store_32

        epilogue.address(output, row, column)  # what all rows share is computed out here, not in the loop

        def some(first: Int) -> None:
            for number in range(_ROWS_AT_ONCE):
                line = own + (first + number)
                place = row + line
                source = kernel.offset(self._buffer, line * SWIZZLE)
                body = partial(store, source, line & 7, epilogue.address(output, place, column), limit, columns - 1)
                kernel.when(place < kernel.number(contraction.row_points), body)

        kernel.when(column < contraction.n, lambda: self._loop(some))

    def _loop(self, body: Any) -> None:
        self._kernel.loop(0, _WARP_ROWS, _ROWS_AT_ONCE, (), body)

    def _store_32(self, source: Any, line: Int, target: Any, limit: Int, last: int) -> None:
        """A row of elements of 4 bytes, ``last`` the last of them that was written: one for each lane."""
        kernel, lane = self._kernel, self._thread.lane
        within = lane.minimum(last)
        value = kernel.load(kernel.i32, kernel.offset(source, _swizzled(within >> 2, line) + (within & 3) * 4))
        kernel.when(lane < limit, lambda: kernel.store(value, kernel.offset(target, lane * 4)))

    def _store_16(self, source: Any, line: Int, target: Any, limit: Int, last: int) -> None:
        """The same of 2 bytes: two for each lane, from the second on where the row begins between two words."""
        kernel, lane = self._kernel, self._thread.lane
        address = Int(dialect("llvm").PtrToIntOp(kernel.i64, target).res).narrow()
        odd = (address >> 1) & 1
        first = lane * 2 + odd

        def element(number: Int) -> Any:
            within = number.minimum(last)
            return kernel.load(kernel.i16, kernel.offset(source, _swizzled(within >> 3, line) + (within & 7) * 2))

        low, high = element(first), element(first + 1)

        def both() -> None:
            arith = dialect("arith")
            word = Int(arith.ExtUIOp(kernel.i32, low).result) | (Int(arith.ExtUIOp(kernel.i32, high).result) << 16)
            kernel.store(word, kernel.offset(target, first * 2), alignment=4)

        kernel.when((first + 1) < limit, both)
        kernel.when((first + 1).equals(limit), lambda: kernel.store(low, kernel.offset(target, first * 2)))
        start = lane.equals(0) & odd.equals(1)
        kernel.when(start, lambda: kernel.store(element(kernel.integer(0)), target))

    def _meet(self) -> None:
        warpgroup.named_barrier(self._kernel, self._thread.warpgroup + 1, warpgroup.WARPGROUP)
