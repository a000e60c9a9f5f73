"""The main loop with ``mma.sync``: what a block computes, and one step of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.schedules.cuda.instructions import tensor_core
from mlirstack.schedules.cuda.instructions.tensor_core import ACCUMULATORS, MMA_BYTES, MMA_COLUMNS, MMA_ROWS, Operands
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.copies import Copies
from mlirstack.schedules.cuda.product.mma_tiles import FRAGMENT_ROWS, MmaTiles
from mlirstack.schedules.cuda.product.pipelined_loop import PipelinedLoop, Stages
from mlirstack.schedules.cuda.product.sums import Sums
from mlirstack.schedules.cuda.values import Int


@dataclass(frozen=True)
class MmaTile:
    """What a block computes: ``rows`` x ``columns`` results by ``warp_rows`` x ``warp_columns`` warps.

    ``k_bytes``: bytes of K of one row in a stage; ``stages``: tiles of K that shared memory holds.
    """

    rows: int
    columns: int
    k_bytes: int
    warp_rows: int
    warp_columns: int
    stages: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warp_rows * self.warp_columns

    @property
    def rows_per_warp(self) -> int:
        """Results of a warp, down."""
        return self.rows // self.warp_rows

    @property
    def columns_per_warp(self) -> int:
        """Results of a warp, across."""
        return self.columns // self.warp_columns

    @property
    def memory(self) -> Stages:
        """The stages in shared memory."""
        return Stages(self.stages, self.rows * self.k_bytes, self.columns * self.k_bytes)

    def warp_place(self, thread: Int) -> tuple[Int, Int]:
        """First row and first column of the thread's warp in the block's results."""
        warp = thread >> 5
        return warp // self.warp_columns * self.rows_per_warp, warp % self.warp_columns * self.columns_per_warp


class MmaLoop(PipelinedLoop):
    """The loop with tensor cores; ``a_tiles`` and ``b_tiles`` say where fragments are."""

    def __init__(
        self,
        kernel: Kernel,
        tile: MmaTile,
        operands: Operands,
        copies: tuple[Copies, Copies],
        tiles: tuple[MmaTiles, MmaTiles],
        shared: Any,
    ) -> None:
        super().__init__(kernel, tile.memory, tile.k_bytes // MMA_BYTES, *copies, shared)
        self._tile, self._operands, self._tiles = tile, operands, tiles
        self._blocks = (tile.rows_per_warp // FRAGMENT_ROWS, tile.columns_per_warp // FRAGMENT_ROWS)

    def fragments(self, a: Any, b: Any, step: int) -> list[Any]:
        """See :class:`PipelinedLoop`: four i32 for each block of 16 rows of A, then of B."""
        of_a = [word for i in range(self._blocks[0]) for word in self._tiles[0].fragment(self.kernel, a, i, step)]
        of_b = [word for j in range(self._blocks[1]) for word in self._tiles[1].fragment(self.kernel, b, j, step)]
        return [tensor_core.rounded(self.kernel, self._operands, word) for word in of_a + of_b]

    def zeros(self) -> list[Any]:
        """See :class:`PipelinedLoop`."""
        zero = (self.kernel.integer(0) if self._operands.is_integer else self.kernel.real(0.0)).value
        return [zero] * (self._blocks[0] * self._blocks[1] * 2 * ACCUMULATORS)

    def multiply(self, fragments: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
        """See :class:`PipelinedLoop`."""
        rows, columns = self._blocks
        a = [fragments[4 * i : 4 * i + 4] for i in range(rows)]
        b = [fragments[4 * (rows + j) : 4 * (rows + j) + 4] for j in range(columns)]
        pairs = [block[2 * half : 2 * half + 2] for block in b for half in range(2)]
        result: list[Any] = []
        for i in range(rows):
            for j, pair in enumerate(pairs):
                start = (i * len(pairs) + j) * ACCUMULATORS
                result += tensor_core.multiply(self.kernel, self._operands, a[i], pair, sums[start : start + ACCUMULATORS])
        return result

    def sums(self, values: Sequence[Any], thread: Int) -> Sums:
        """Where in the block's results the values that :meth:`run` gave belong."""
        lane, (row, column) = thread & 31, self._tile.warp_place(thread)
        across = self._tile.columns_per_warp // MMA_COLUMNS
        pieces = []
        for number, start in enumerate(range(0, len(values), ACCUMULATORS)):
            i, j = divmod(number, across)
            for half in range(2):
                run = tuple(values[start + 2 * half : start + 2 * half + 2])
                pieces.append((MMA_ROWS * i + 8 * half, MMA_COLUMNS * j, run))
        return Sums(row + (lane >> 2), column + ((lane & 3) << 1), tuple(pieces))
