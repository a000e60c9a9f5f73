"""The main loop of a matrix product with ``mma.sync``: tiles of K in flight, fragments loaded one step ahead.

Takes two factors (:class:`~mlirstack.schedules.cuda.matrix_tiles.MatrixTiles` or anything with its methods) and leaves the
sums of each warp in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.schedules.cuda import tensor_core
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.matrix_tiles import FRAGMENT_ROWS, MatrixTiles
from mlirstack.schedules.cuda.tensor_core import ACCUMULATORS, MMA_BYTES, MMA_COLUMNS, MMA_ROWS, Operands
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
    def stage_bytes(self) -> int:
        """Shared memory of one stage."""
        return (self.rows + self.columns) * self.k_bytes

    @property
    def loop_bytes(self) -> int:
        """Shared memory of all stages."""
        return self.stages * self.stage_bytes

    def warp_place(self, thread: Int) -> tuple[Int, Int]:
        """First row and first column of the thread's warp in the block's results."""
        warp = thread >> 5
        return warp // self.warp_columns * self.rows_per_warp, warp % self.warp_columns * self.columns_per_warp


@dataclass(frozen=True)
class Sums:
    """The results of a warp in the registers of its threads: ``values[i][j]`` are the four of block (i, j) of 16 x 8."""

    values: tuple[tuple[tuple[Any, ...], ...], ...]


class MmaLoop:
    """Write the loop: ``k_tiles`` tiles of K from tile ``first`` on, in the dynamic shared memory from ``shared`` on."""

    def __init__(
        self, kernel: Kernel, tile: MmaTile, operands: Operands, a: MatrixTiles, b: MatrixTiles, shared: Any
    ) -> None:
        self._kernel, self._tile, self._operands = kernel, tile, operands
        self._a, self._b, self._shared = a, b, shared
        self._blocks = (tile.rows_per_warp // FRAGMENT_ROWS, tile.columns_per_warp // FRAGMENT_ROWS)
        self._steps = tile.k_bytes // MMA_BYTES
        if self._steps < 2 or tile.stages < 2:
            raise ValueError("fragments are loaded a step ahead, tiles a stage ahead: both need two")

    def run(self, first: Int, k_tiles: int) -> Sums:
        """The sums over all ``k_tiles`` tiles; all threads have passed a barrier after the last read of shared memory."""
        kernel, stages = self._kernel, self._tile.stages
        for stage in range(stages - 1):
            if stage < k_tiles:
                where = self._stage(kernel.integer(stage))
                self._finish(self._start(first + stage, where), where)
            tensor_core.commit_copies()
        self._wait()
        slots = [kernel.integer(0), kernel.integer(stages - 1)]
        fragments = self._fragments(self._stage(slots[0]), 0)
        carried = [*slots, *fragments, *self._zeros()]
        ahead = stages - 1
        if k_tiles > ahead:
            carried = kernel.loop(0, k_tiles - ahead, 1, carried, lambda i, *c: self._body(first + i + ahead, c))
        carried = kernel.loop(0, min(ahead, k_tiles), 1, carried, lambda i, *c: self._body(None, c))
        tensor_core.wait_for_copies(0)
        kernel.barrier()
        return self._sums(carried[2 + len(fragments) :])

    def _body(self, tile_ahead: Int | None, carried: Sequence[Any]) -> list[Any]:
        """One tile of K; starts the copy of ``tile_ahead`` (None: there is none left)."""
        read, write, *values = carried
        split = 4 * sum(self._blocks)
        fragments, sums = values[:split], values[split:]
        staged: tuple[list[Any], list[Any]] = ([], [])
        target = self._stage(write)
        for step in range(self._steps):
            if step == self._steps - 1:
                if tile_ahead is not None:
                    self._finish(staged, target)
                self._wait()
                read = self._next(read)
            following = self._fragments(self._stage(read), (step + 1) % self._steps)
            if step == 0:
                if tile_ahead is not None:
                    staged = self._start(tile_ahead, target)
                tensor_core.commit_copies()  # an empty group counts too
            sums = self._multiply(fragments, sums)
            fragments = following
        return [read, self._next(write), *fragments, *sums]

    def _wait(self) -> None:
        """The next tile has arrived, for all threads, and none reads the oldest one any more."""
        tensor_core.wait_for_copies(self._tile.stages - 2)
        self._kernel.barrier()

    def _stage(self, slot: Int) -> Any:
        return self._kernel.offset(self._shared, slot * self._tile.stage_bytes)

    def _next(self, slot: Int) -> Int:
        following = slot + 1
        return following.equals(self._tile.stages).select(self._kernel.integer(0), following)

    def _b_of(self, stage: Any) -> Any:
        return self._kernel.offset(stage, self._tile.rows * self._tile.k_bytes)

    def _start(self, k_tile: Int, stage: Any) -> tuple[list[Any], list[Any]]:
        return self._a.start(k_tile, stage), self._b.start(k_tile, self._b_of(stage))

    def _finish(self, staged: tuple[list[Any], list[Any]], stage: Any) -> None:
        self._a.finish(staged[0], stage)
        self._b.finish(staged[1], self._b_of(stage))

    def _fragments(self, stage: Any, step: int) -> list[Any]:
        a = [word for i in range(self._blocks[0]) for word in self._a.fragment(stage, i, step)]
        b = [word for j in range(self._blocks[1]) for word in self._b.fragment(self._b_of(stage), j, step)]
        return a + b

    def _zeros(self) -> list[Any]:
        kernel = self._kernel
        zero = (kernel.integer(0) if self._operands.is_integer else kernel.real(0.0)).value
        return [zero] * (self._blocks[0] * self._blocks[1] * 2 * ACCUMULATORS)

    def _multiply(self, fragments: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
        rows, columns = self._blocks
        a = [fragments[4 * i : 4 * i + 4] for i in range(rows)]
        b = [fragments[4 * (rows + j) : 4 * (rows + j) + 4] for j in range(columns)]
        pairs = [(block[half], block[half + 2]) for block in b for half in range(2)]
        result: list[Any] = []
        for i in range(rows):
            for j, pair in enumerate(pairs):
                start = (i * len(pairs) + j) * ACCUMULATORS
                result += tensor_core.multiply(self._kernel, self._operands, a[i], pair, sums[start : start + ACCUMULATORS])
        return result

    def _sums(self, values: Sequence[Any]) -> Sums:
        rows = self._tile.rows_per_warp // MMA_ROWS
        columns = self._tile.columns_per_warp // MMA_COLUMNS
        blocks = [tuple(values[i : i + ACCUMULATORS]) for i in range(0, len(values), ACCUMULATORS)]
        return Sums(tuple(tuple(blocks[i * columns : (i + 1) * columns]) for i in range(rows)))
