"""The results of a block on their way from accumulators to memory.

Accumulators lie in registers as the multiplication left them; memory wants runs of neighbouring columns (or rows) in
neighbouring threads.  Shared memory, free after the main loop, is where they change places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.contraction import Product
from mlirstack.schedules.cuda.product.sums import Sums
from mlirstack.schedules.cuda.values import Int

_UNROLLED = 2  # runs of a thread whose loads are in flight together


@dataclass(frozen=True)
class Staging:
    """``rows`` x ``columns`` sums in shared memory; a thread takes ``run`` neighbouring columns of a row at a time.

    ``along_rows``: neighbouring threads take neighbouring rows, not neighbouring runs (results whose rows are contiguous).
    """

    rows: int
    columns: int
    run: int
    along_rows: bool = False

    @property
    def pitch(self) -> int:
        """Sums from row to row.  For sums of 4 bytes and modulo 32 banks: 4 serves eight threads that read 16 bytes of eight
        rows, 8 a half warp that writes two words in four places of four rows."""
        return self.columns + (4 if self.along_rows else 8)

    def bytes(self, element: Any) -> int:
        """Shared memory that it takes, for sums of an MLIR type."""
        return self.rows * self.pitch * vectors.bytes_of(element)

    def write(self, kernel: Kernel, sums: Sums, shared: Any) -> None:
        """Store the sums of the thread."""
        element = sums.pieces[0][2][0].type
        start = kernel.offset(shared, sums.row * self.pitch + sums.column, element)
        width = min(len(sums.pieces[0][2]), vectors.elements_per_access(element))
        for row, column, values in sums.pieces:
            for i in range(0, len(values), width):
                place = kernel.offset(start, row * self.pitch + column + i, element)
                vectors.store(kernel, values[i : i + width], place)

    def read(
        self,
        kernel: Kernel,
        element: Any,
        shared: Any,
        thread: Int,
        threads: int,
        body: Callable[[Sequence[Any], Int, Int], None],
    ) -> None:
        """``body(values, row, column)`` for every run, shared among ``threads``; ``element`` is the sums' type."""
        runs = self.columns // self.run
        total = self.rows * runs

        def one(number: Int) -> None:
            row, run = (number % self.rows, number // self.rows) if self.along_rows else (number // runs, number % runs)
            body(self._load(kernel, element, shared, row, run * self.run), row, run * self.run)

        unrolled = _UNROLLED if total % (_UNROLLED * threads) == 0 else 1

        def some(first: Int) -> None:
            for i in range(unrolled):
                one(first + i * threads)

        if total % threads:
            kernel.loop(thread, total, threads, (), one)
        else:
            kernel.loop(0, total, unrolled * threads, (), lambda first: some(first + thread))

    def _load(self, kernel: Kernel, element: Any, shared: Any, row: Int, column: Int) -> list[Any]:
        start = kernel.offset(shared, row * self.pitch + column, element)
        width = min(self.run, vectors.elements_per_access(element))
        pieces = [kernel.offset(start, i, element) for i in range(0, self.run, width)]
        return [value for piece in pieces for value in vectors.load(kernel, element, piece, width)]


def staging_for(contraction: Product, rows: int, columns: int, direct_run: int) -> Staging | None:
    """How the results of ``contraction`` are written: 16 bytes a thread where their layout allows it.

    None where threads hold runs of ``direct_run`` columns that may be stored as they are.
    """
    access = contraction.outputs[0].access
    if contraction.n > 1 and access.column_stride(contraction.n) != 1 and rows >= 32:
        return Staging(rows, columns, min(4, columns), along_rows=True)
    smallest = min(vectors.bytes_of(output.access.tensor.element) for output in contraction.outputs)
    run = min(vectors.ACCESS_BYTES // smallest, 8)
    while contraction.n % run:
        run //= 2
    return None if direct_run and run >= direct_run else Staging(rows, columns, run)
