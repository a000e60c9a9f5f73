"""Products on tensor cores, as an engine of :class:`~mlirstack.schedules.cuda.product.product_kernel.ProductKernel`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlirstack.bindings import ir
from mlirstack.schedules.cuda.instructions.tensor_core import CHUNK, Operands
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.copies import Copies, GatheredCopies, LineCopies, RowContiguousCopies
from mlirstack.schedules.cuda.product.factors import Factor
from mlirstack.schedules.cuda.product.mma_loop import MmaLoop, MmaTile
from mlirstack.schedules.cuda.product.mma_tiles import MmaTiles
from mlirstack.schedules.cuda.product.product_kernel import Corner, TensorCoreEngine
from mlirstack.schedules.cuda.product.sums import Sums
from mlirstack.schedules.cuda.values import Int


@dataclass(frozen=True)
class MmaEngine(TensorCoreEngine[MmaTile]):
    """``mma.sync`` on tiles that come by ``cp.async``, or element by element where alignment forbids it."""

    tile: MmaTile
    operands: Operands

    @property
    def k(self) -> int:
        """Elements of K in a stage."""
        return self.tile.k_bytes * 8 // self.operands.bits

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
        warp_row, warp_column = tile.warp_place(thread)
        a_copies, a_tiles = self._operand(factors[0], tile.rows, padded_k, is_b=False)
        b_copies, b_tiles = self._operand(factors[1], tile.columns, padded_k, is_b=True)
        a_copies.place(kernel, addresses[0], thread, corner.row)
        b_copies.place(kernel, addresses[1], thread, corner.column)
        a_tiles.place(thread & 31, warp_row, tile.rows_per_warp)
        b_tiles.place(thread & 31, warp_column, tile.columns_per_warp)
        loop = MmaLoop(kernel, tile, self.operands, (a_copies, b_copies), (a_tiles, b_tiles), kernel.shared())
        return loop.sums(loop.run(first_tile, k_tiles), thread)

    def _operand(self, factor: Factor, rows: int, padded_k: int, *, is_b: bool) -> tuple[Copies, MmaTiles]:
        """How tiles of ``rows`` rows of a factor come, and how they lie in shared memory."""
        tile, size, layout, width = self.tile, self.operands.bits // 8, factor.layout, factor.copy_bytes
        if layout is not None and not layout.k_major and width and size > 1:
            tiles = MmaTiles(rows, tile.k_bytes, size, k_major=False, is_b=is_b)
            target = partial(tiles.target, width)
            checks_k = padded_k != layout.k
            return RowContiguousCopies(layout, rows, self.k, tile.threads, target, checks_k=checks_k), tiles
        tiles = MmaTiles(rows, tile.k_bytes, size, k_major=True, is_b=is_b)
        lines = factor.lines(rows, padded_k)
        if not gathers(factor):
            return LineCopies(lines, rows, self.k, size, width, tile.threads, partial(tiles.target, width)), tiles
        element = ir.IntegerType.get_signless(self.operands.bits)
        along_rows = layout is not None and not layout.k_major and tile.threads % rows == 0
        target, each = partial(tiles.target, CHUNK), CHUNK // size
        return GatheredCopies(lines, rows, self.k, element, each, tile.threads, target, along_rows=along_rows), tiles


def gathers(factor: Factor) -> bool:
    """Must tensor cores be fed with this factor element by element?"""
    layout = factor.layout
    return factor.copy_bytes == 0 or (layout is not None and not layout.k_major and layout.size == 1)
