"""The main loop with FMA (or integer multiply-add) on ordinary registers: a thread holds a tile of results.

Tiles of A and B lie in shared memory with rows contiguous, so that a thread reads what it multiplies as vectors of 16 bytes:
A from four places in a warp, B from eight, every one of them broadcast to the threads that share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.copies import Copies, zero
from mlirstack.schedules.cuda.product.pipelined_loop import PipelinedLoop, Stages
from mlirstack.schedules.cuda.product.sums import Sums
from mlirstack.schedules.cuda.values import Float, Int

LANES_DOWN, LANES_ACROSS = 4, 8  # threads of a warp


@dataclass(frozen=True)
class FmaTile:
    """What a block computes: ``rows`` x ``columns`` results, ``thread_rows`` x ``thread_columns`` by each thread.

    ``k``: elements of K in a stage; ``size``: bytes of an element in shared memory; ``stages`` as in shared memory.
    """

    rows: int
    columns: int
    thread_rows: int
    thread_columns: int
    k: int
    stages: int
    size: int = 4

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.rows * self.columns // (self.thread_rows * self.thread_columns)

    @property
    def run(self) -> int:
        """Elements that a thread reads at a time."""
        return vectors.ACCESS_BYTES // self.size

    def pitch(self, rows: int) -> int:
        """Bytes from one k to the next, of a tile with so many rows.

        Four words more than a multiple of 32 banks: eight k of four neighbouring rows, which a warp writes when it
        transposes on the way, stand in different banks.
        """
        return rows * self.size + vectors.ACCESS_BYTES

    @property
    def memory(self) -> Stages:
        """The stages in shared memory."""
        return Stages(self.stages, self.k * self.pitch(self.rows), self.k * self.pitch(self.columns))

    def thread_place(self, thread: Int) -> tuple[Int, Int]:
        """First row and first column of the thread's runs in the block's results."""
        across = self.columns // (LANES_ACROSS * self.thread_columns)
        warp, lane = thread >> 5, thread & 31
        row = warp // across * (LANES_DOWN * self.thread_rows) + (lane >> 3) * self.run
        return row, warp % across * (LANES_ACROSS * self.thread_columns) + (lane & 7) * self.run


class FmaLoop(PipelinedLoop):
    """The loop on elements of MLIR type ``element``."""

    def __init__(
        self, kernel: Kernel, tile: FmaTile, element: Any, copies: tuple[Copies, Copies], shared: Any, thread: Int
    ) -> None:
        super().__init__(kernel, tile.memory, tile.k, *copies, shared)
        self._tile, self._element = tile, element
        self._place = tile.thread_place(thread)

    def fragments(self, a: Any, b: Any, step: int) -> list[Any]:
        """See :class:`PipelinedLoop`: the thread's rows of A, then its columns of B, of one k."""
        tile = self._tile
        rows = self._vector(a, self._place[0], step * tile.pitch(tile.rows), tile.thread_rows, LANES_DOWN)
        columns = self._vector(b, self._place[1], step * tile.pitch(tile.columns), tile.thread_columns, LANES_ACROSS)
        return rows + columns

    def _vector(self, shared: Any, first: Int, shift: int, count: int, lanes: int) -> list[Any]:
        kernel, tile = self.kernel, self._tile
        start = kernel.offset(shared, first * tile.size)
        values: list[Any] = []
        for i in range(count // tile.run):
            address = kernel.offset(start, shift + i * lanes * vectors.ACCESS_BYTES)
            values += vectors.load(kernel, self._element, address, tile.run)
        return values

    def zeros(self) -> list[Any]:
        """See :class:`PipelinedLoop`."""
        return [zero(self._element)] * (self._tile.thread_rows * self._tile.thread_columns)

    def multiply(self, fragments: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
        """See :class:`PipelinedLoop`."""
        a, b = fragments[: self._tile.thread_rows], fragments[self._tile.thread_rows :]
        products = [(x, y) for x in a for y in b]
        return [_multiply_add(x, y, total) for (x, y), total in zip(products, sums, strict=True)]

    def sums(self, values: Sequence[Any], thread: Int) -> Sums:
        """Where in the block's results the values that :meth:`run` gave belong."""
        tile = self._tile
        pieces = []
        for r in range(tile.thread_rows):
            row = r // tile.run * (LANES_DOWN * tile.run) + r % tile.run
            for c in range(0, tile.thread_columns, tile.run):
                start = r * tile.thread_columns + c
                pieces.append((row, c * LANES_ACROSS, tuple(values[start : start + tile.run])))
        return Sums(*self._place, tuple(pieces))


def _multiply_add(a: Any, b: Any, total: Any) -> Any:
    if isinstance(a.type, ir.IntegerType):
        arith = dialect("arith")
        return arith.AddIOp(total, arith.MulIOp(a, b).result).result
    return Float(a).fma(Float(b), Float(total)).value
