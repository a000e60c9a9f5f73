"""Products with ``wgmma`` whose tiles come by ``cp.async``: what the bulk copy engine cannot address still reaches Hopper's
tensor cores.  An engine of :class:`~mlirstack.schedules.cuda.product.product_kernel.ProductKernel`.

All warpgroups copy and multiply.  One group of wgmmas is always in flight; a stage is written again two tiles after it was
read, when every thread has seen its wgmmas end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlirstack.bindings import ir
from mlirstack.schedules.cuda.instructions import shared_memory, tensor_core, tma, warpgroup
from mlirstack.schedules.cuda.instructions.tensor_core import CHUNK, Operands, SharedTile
from mlirstack.schedules.cuda.instructions.warpgroup import SharedOperand
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.copies import Copies, GatheredCopies, LineCopies, RowContiguousCopies
from mlirstack.schedules.cuda.product.factors import Factor
from mlirstack.schedules.cuda.product.mma_engine import gathers
from mlirstack.schedules.cuda.product.pipelined_loop import Stages
from mlirstack.schedules.cuda.product.product_kernel import Corner, TensorCoreEngine
from mlirstack.schedules.cuda.product.sums import Sums
from mlirstack.schedules.cuda.values import Int


@dataclass(frozen=True)
class WgmmaCopyTile:
    """What a block computes: ``rows`` x ``columns`` results, rows shared among ``warpgroups``; ``stages`` tiles of K."""

    rows: int
    columns: int
    warpgroups: int
    stages: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warpgroups * warpgroup.WARPGROUP

    @property
    def blocks(self) -> int:
        """Blocks of 64 rows of a warpgroup."""
        return self.rows // (warpgroup.WGMMA_ROWS * self.warpgroups)

    @property
    def accumulators(self) -> int:
        """Sums of a thread in one block of 64 rows."""
        return self.columns // 2

    @property
    def memory(self) -> Stages:
        """The stages in shared memory."""
        return Stages(self.stages, self.rows * warpgroup.SWIZZLE, self.columns * warpgroup.SWIZZLE)


@dataclass(frozen=True)
class WgmmaCopyEngine(TensorCoreEngine[WgmmaCopyTile]):
    """See :class:`~mlirstack.schedules.cuda.product.product_kernel.Engine`."""

    tile: WgmmaCopyTile
    operands: Operands

    @property
    def k(self) -> int:
        """Elements of K in a stage: 128 bytes."""
        return warpgroup.SWIZZLE * 8 // self.operands.bits

    def run(
        self,
        kernel: Kernel,
        factors: tuple[Factor, Factor],
        addresses: Sequence[Any],
        corner: Corner,
        first_tile: Int,
        k_tiles: int,
        padded_k: int,
    ) -> Sums:
        """See :class:`~mlirstack.schedules.cuda.product.product_kernel.Engine`."""
        tile, thread = self.tile, kernel.thread()
        a, a_shared = self._operand(factors[0], tile.rows, padded_k)
        b, b_shared = self._operand(factors[1], tile.columns, padded_k)
        a.place(kernel, addresses[0], thread, corner.row)
        b.place(kernel, addresses[1], thread, corner.column)
        loop = _Loop(kernel, tile, self.operands, (a, b), (a_shared, b_shared))
        return self._sums(loop.run(first_tile, k_tiles), thread)

    def _operand(self, factor: Factor, rows: int, padded_k: int) -> tuple[Copies, SharedOperand]:
        """How tiles of ``rows`` rows of a factor come, and how they lie in shared memory."""
        size, layout, width, threads = self.operands.bits // 8, factor.layout, factor.copy_bytes, self.tile.threads
        if layout is not None and not layout.k_major and size == 2 and width and rows % 64 == 0:
            target = partial(_rows_contiguous, self.k, width)
            copies = RowContiguousCopies(layout, rows, self.k, threads, target, checks_k=padded_k != layout.k)
            return copies, SharedOperand(self.operands, k_major=False)
        shared, lines = SharedOperand(self.operands, k_major=True), factor.lines(rows, padded_k)
        tile = SharedTile(rows, warpgroup.SWIZZLE)
        along_k = layout is None or layout.k_major
        if along_k and not gathers(factor):
            return LineCopies(lines, rows, self.k, size, width, threads, partial(_along_k, tile, width)), shared
        element, target = ir.IntegerType.get_signless(self.operands.bits), partial(_along_k, tile, CHUNK)
        along_rows = not along_k and threads % rows == 0
        return GatheredCopies(lines, rows, self.k, element, CHUNK // size, threads, target, along_rows=along_rows), shared

    def _sums(self, blocks: Sequence[Sequence[Any]], thread: Int) -> Sums:
        """Where a thread's accumulators belong: see :func:`warpgroup.wgmma`."""
        own, lane = thread % warpgroup.WARPGROUP, thread & 31
        row = thread // warpgroup.WARPGROUP * (self.tile.blocks * warpgroup.WGMMA_ROWS) + (own >> 5) * 16 + (lane >> 2)
        pieces = [
            (block * warpgroup.WGMMA_ROWS + 8 * half, 8 * j, tuple(values[4 * j + 2 * half : 4 * j + 2 * half + 2]))
            for block, values in enumerate(blocks)
            for j in range(self.tile.columns // 8)
            for half in range(2)
        ]
        return Sums(row, (lane & 3) << 1, tuple(pieces))


def _along_k(tile: SharedTile, width: int, line: Int, piece: Int) -> Int:
    """Where piece ``piece`` (of ``width`` bytes) of row ``line`` stands, K contiguous."""
    per_chunk = CHUNK // width
    return tile.offset(line, piece // per_chunk) + (piece % per_chunk) * width


def _rows_contiguous(tile_k: int, width: int, k: Int, piece: Int) -> Int:
    """The same where rows are contiguous: blocks of 64 rows, each ``tile_k`` lines of 128 bytes."""
    per_chunk = CHUNK // width
    chunk = piece // per_chunk
    block = SharedTile(tile_k, warpgroup.SWIZZLE)
    return chunk // 8 * block.bytes + block.offset(k, chunk % 8) + (piece % per_chunk) * width


class _Loop:
    """The main loop: copies ``stages - 2`` tiles ahead, wgmmas one tile behind."""

    def __init__(
        self,
        kernel: Kernel,
        tile: WgmmaCopyTile,
        operands: Operands,
        copies: tuple[Copies, Copies],
        shared: tuple[SharedOperand, SharedOperand],
    ) -> None:
        if tile.stages < 3:
            raise ValueError("two tiles are being multiplied while a third arrives")
        self._kernel, self._tile, self._operands = kernel, tile, operands
        self._copies, self._layouts = copies, shared
        self._ahead = tile.stages - 2

    def run(self, first: Int, k_tiles: int) -> list[list[Any]]:
        """The accumulators of each block of 64 rows; then no thread needs shared memory any more."""
        kernel, ahead, count = self._kernel, self._ahead, self._tile.accumulators
        for stage in range(ahead):
            if stage < k_tiles:
                self._copy(first + stage, kernel.integer(stage))
            tensor_core.commit_copies()
        zeros = [warpgroup.zero_accumulators(kernel, count, self._operands) for _ in range(self._tile.blocks)]
        carried: list[Any] = [kernel.integer(0), kernel.integer(ahead), *zeros]
        if k_tiles > ahead:
            carried = kernel.loop(0, k_tiles - ahead, 1, carried, lambda i, *c: self._body(c, first + i + ahead))
        carried = kernel.loop(0, min(ahead, k_tiles), 1, carried, lambda i, *c: self._body(c, None))
        warpgroup.wgmma_finish()
        kernel.barrier()
        return [warpgroup.accumulator_values(kernel, s, count, self._operands) for s in carried[2:]]

    def _body(self, carried: Sequence[Any], tile_ahead: Int | None) -> list[Any]:
        """One tile of K; starts the copy of ``tile_ahead`` (None: there is none left)."""
        read, write, *sums = carried
        tensor_core.wait_for_copies(self._ahead - 1)
        tma.fence_shared()
        self._kernel.barrier()
        sums = self._multiply(read, sums)
        warpgroup.wgmma_commit()
        if tile_ahead is not None:
            self._copy(tile_ahead, write)
        tensor_core.commit_copies()  # an empty group counts too
        warpgroup.wgmma_wait(1)
        return [self._next(read), self._next(write), *sums]

    def _multiply(self, slot: Int, sums: Sequence[Any]) -> list[Any]:
        kernel, tile, operands = self._kernel, self._tile, self._operands
        base = shared_memory.shared_address(kernel, kernel.shared()) + slot * tile.memory.stage_bytes
        group = kernel.thread() // warpgroup.WARPGROUP * (tile.blocks * warpgroup.WGMMA_ROWS)
        left, right = self._layouts
        b = right.descriptor(kernel, base + tile.memory.a_bytes)
        results = [warpgroup.pin(kernel, s, tile.accumulators, operands) for s in sums] if tile.blocks > 1 else list(sums)
        warpgroup.wgmma_fence()
        for block in range(tile.blocks):
            # 64 rows are 64 lines of 128 bytes, or one block of rows: the same number of bytes for either layout.
            rows = base + group * warpgroup.SWIZZLE + block * warpgroup.WGMMA_ROWS * warpgroup.SWIZZLE
            a = left.descriptor(kernel, rows)
            for part in range(warpgroup.SWIZZLE // warpgroup.WGMMA_BYTES):
                layout = (left.k_major, right.k_major)
                at = left.advanced(a, part), right.advanced(b, part)
                results[block] = warpgroup.wgmma(results[block], *at, tile.columns, operands, layout)
        return results

    def _copy(self, k_tile: Int, slot: Int) -> None:
        stage = self._kernel.offset(self._kernel.shared(), slot * self._tile.memory.stage_bytes)
        places = (stage, self._kernel.offset(stage, self._tile.memory.a_bytes))
        staged = [copies.start(k_tile, place) for copies, place in zip(self._copies, places, strict=True)]
        for copies, values, place in zip(self._copies, staged, places, strict=True):
            copies.finish(values, place)

    def _next(self, slot: Int) -> Int:
        following = slot + 1
        return following.equals(self._tile.stages).select(self._kernel.integer(0), following)
