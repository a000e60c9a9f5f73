"""The results of a block on their way from accumulators to memory.

Accumulators lie in registers as the multiplication left them; memory wants runs of neighbouring columns (or rows) in
neighbouring threads.  Shared memory, free after the main loop, is where they change places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda import vectors
from mlirstack.schedules.cuda.contraction import Contraction
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.mma_loop import Sums
from mlirstack.schedules.cuda.tensor_core import MMA_COLUMNS, MMA_ROWS
from mlirstack.schedules.cuda.values import Int

WORD = 4  # bytes of an accumulator
_UNROLLED = 2  # runs of a thread whose loads are in flight together


@dataclass(frozen=True)
class Staging:
    """``rows`` x ``columns`` accumulators in shared memory; a thread takes ``run`` neighbouring columns of a row at a time.

    ``along_rows``: neighbouring threads take neighbouring rows, not neighbouring runs (results whose rows are contiguous).
    """

    rows: int
    columns: int
    run: int
    along_rows: bool = False

    @property
    def pitch(self) -> int:
        """Words from row to row.  Modulo 32 banks, 4 serves eight threads that read 16 bytes of eight rows, 8 a half warp
        that writes two words in four places of four rows."""
        return self.columns + (4 if self.along_rows else 8)

    @property
    def bytes(self) -> int:
        """Shared memory that it takes."""
        return self.rows * self.pitch * WORD

    def write(self, kernel: Kernel, sums: Sums, shared: Any, lane: Int, first_row: Int, first_column: Int) -> None:
        """Store the accumulators of a warp whose results begin at (``first_row``, ``first_column``) of the block's."""
        place = (first_row + (lane >> 2)) * self.pitch + first_column + ((lane & 3) << 1)
        start = kernel.offset(shared, place * WORD)
        for i, blocks in enumerate(sums.values):
            for j, values in enumerate(blocks):
                for half in range(2):
                    shift = (MMA_ROWS * i + 8 * half) * self.pitch + MMA_COLUMNS * j
                    vectors.store(kernel, values[2 * half : 2 * half + 2], kernel.offset(start, shift * WORD))

    def read(
        self,
        kernel: Kernel,
        element: Any,
        shared: Any,
        thread: Int,
        threads: int,
        body: Callable[[Sequence[Any], Int, Int], None],
    ) -> None:
        """``body(values, row, column)`` for every run, shared among ``threads``; ``element`` is the accumulators' type."""
        runs = self.columns // self.run
        total = self.rows * runs
        unrolled = _UNROLLED if total % (_UNROLLED * threads) == 0 else 1

        def one(number: Int) -> None:
            row, run = (number % self.rows, number // self.rows) if self.along_rows else (number // runs, number % runs)
            body(self._load(kernel, element, shared, row, run * self.run), row, run * self.run)

        def some(first: Int) -> None:
            for i in range(unrolled):
                one(first + i * threads)

        if total % threads:
            kernel.loop(thread, total, threads, (), lambda number: one(number))
        else:
            kernel.loop(0, total, unrolled * threads, (), lambda first: some(first + thread))

    def _load(self, kernel: Kernel, element: Any, shared: Any, row: Int, column: Int) -> list[Any]:
        start = kernel.offset(shared, (row * self.pitch + column) * WORD)
        width = min(self.run, vectors.elements_per_access(element))
        pieces = [kernel.offset(start, i * WORD) for i in range(0, self.run, width)]
        return [value for piece in pieces for value in vectors.load(kernel, element, piece, width)]


def staging_for(contraction: Contraction, rows: int, columns: int) -> Staging:
    """How the results of ``contraction`` are written: 16 bytes a thread where their layout allows it."""
    access = contraction.outputs[0].access
    if contraction.n > 1 and access.column_stride(contraction.n) != 1 and rows >= 32:
        return Staging(rows, columns, min(4, columns), along_rows=True)
    smallest = min(vectors.bytes_of(output.access.tensor.element) for output in contraction.outputs)
    run = min(vectors.ACCESS_BYTES // smallest, 8)
    while contraction.n % run:
        run //= 2
    return Staging(rows, columns, run)


def zero(kernel: Kernel, kind: Any) -> Any:
    """Zero of an MLIR type."""
    attribute = ir.IntegerAttr.get(kind, 0) if isinstance(kind, ir.IntegerType) else ir.FloatAttr.get(kind, 0.0)
    return dialect("arith").ConstantOp(kind, attribute).result
