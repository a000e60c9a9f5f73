"""Split-K: several blocks share the K of one tile; a second kernel adds their sums up in a fixed order, so that a result
never depends on which block was first, and does what comes after the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.extent import Extent, ceil_div, times
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.contraction import Product
from mlirstack.schedules.cuda.product.epilogue import Epilogue
from mlirstack.schedules.cuda.values import Float, Int

_THREADS = 256
_PITCH_UNIT = 4
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class PartialSums:
    """A temporary of ``splits`` x batch x M x N sums, rows padded to whole runs.

    ``buffer`` is the memref, ``element`` the type of a sum (f32 or i32).
    """

    buffer: Any
    element: Any
    contraction: Product
    splits: int

    @staticmethod
    def allocate(function: Any, contraction: Product, splits: int, element: Any) -> PartialSums:
        """Make the temporary, in front of all launches of ``function``."""
        count = splits * contraction.batch * contraction.m * _pitch(contraction)
        with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]), function.location:
            buffer = dialect("memref").AllocOp(ir.MemRefType.get([count], element), [], []).memref
        return PartialSums(buffer, element, contraction, splits)

    @property
    def run(self) -> int:
        """Columns that a thread takes at a time: 16 bytes."""
        return vectors.elements_per_access(self.element)

    def store(
        self, kernel: Kernel, pointer: Any, split: Int, batch: Int | None, values: Sequence[Any], row: Int, column: Int
    ) -> None:
        """Store a run of sums; what lies beyond the edge is left out."""
        c = self.contraction
        inside = (row < kernel.number(c.row_points)) & (column < _pitch(c))

        def write() -> None:
            product = split if batch is None else split * c.batch + batch
            place = (product.wide() * c.m + row.wide()) * _pitch(c) + column.wide()
            vectors.store(kernel, values, kernel.offset(pointer, place, self.element))

        kernel.when(inside, write)

    def reduce(self, function: Any, schedule: str) -> None:
        """Write the second kernel."""
        c, run = self.contraction, self.run
        kernel = Kernel(function, threads=_THREADS, schedule=schedule, suffix="_reduce")
        epilogue = Epilogue(kernel, c, tile_rows=1, tile_columns=run)
        pointer = kernel.pointer(self.buffer)
        runs = _pitch(c) // run
        varies = isinstance(c.row_points, Extent)
        total = times(c.row_points, c.batch * runs) if varies else times(c.batch_points, c.m * runs)

        def body(number: Int) -> None:
            line, column = number // runs, number % runs * run
            rows = kernel.number(c.row_points)
            batch, row = (line // rows, line % rows) if c.batch > 1 else (None, line)
            if batch is not None and varies:  # the temporary has room for the most rows that there can be
                number = (batch * c.m + row) * runs + number % runs
            place = kernel.offset(pointer, number.wide() * run, self.element)
            distance = c.batch * c.m * _pitch(c)
            sums = vectors.load(kernel, self.element, place, run)
            for split in range(1, self.splits):
                further = kernel.offset(place, split * distance * vectors.bytes_of(self.element))
                sums = [_add(a, b) for a, b in zip(sums, vectors.load(kernel, self.element, further, run), strict=True)]
            tile = epilogue.tile(batch)
            for output, values in enumerate(tile.apply(sums, row, column)):
                tile.store(output, values, row, column)

        with kernel.body():
            number = kernel.block_index() * _THREADS + kernel.thread()
            kernel.when(number < kernel.number(total), lambda: body(number))
        kernel.launch((ceil_div(total, _THREADS),))


def has_room(rows: Sequence[int], row_bytes: int, splits: int) -> bool:
    """Is the temporary small, where it is made for the most of several numbers of rows?  For one it is as large as it has to
    be."""
    return splits == 1 or len(rows) == 1 or max(rows) * row_bytes * splits <= _MOST_BYTES


def _pitch(contraction: Product) -> int:
    """Sums from row to row of the temporary: whole runs of any type."""
    return -(-contraction.n // _PITCH_UNIT) * _PITCH_UNIT


def _add(a: Any, b: Any) -> Any:
    if isinstance(a.type, ir.IntegerType):
        return dialect("arith").AddIOp(a, b).result
    return (Float(a) + Float(b)).value
