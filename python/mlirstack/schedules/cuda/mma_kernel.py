"""A whole product with ``mma.sync`` as a kernel: tiles to blocks, the main loop, the way out.

What is multiplied is behind :class:`Factor`: a matrix, or the pixels under a convolution's window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, Protocol

from mlirstack.schedules.cuda.contraction import Contraction, Matrix
from mlirstack.schedules.cuda.epilogue import Epilogue
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.matrix_tiles import MatrixLayout, MatrixTiles
from mlirstack.schedules.cuda.mma_loop import MmaLoop, MmaTile, Sums
from mlirstack.schedules.cuda.split_k import PartialSums
from mlirstack.schedules.cuda.tensor_core import CHUNK, Operands
from mlirstack.schedules.cuda.tile_output import Staging, staging_for
from mlirstack.schedules.cuda.values import Int


class Factor(Protocol):
    """One factor of a product, rows x K."""

    def parameters(self, kernel: Kernel) -> Any:
        """Add what the kernel has to be given; returns it."""

    def tiles(self, rows: int, k: int, threads: int, padded_k: int) -> MatrixTiles:
        """Tiles of ``rows`` x ``k`` elements; tiles reach up to ``padded_k``."""

    def product(self, kernel: Kernel, parameters: Any, batch: Int | None, sizes: Sequence[int]) -> Any:
        """The address of the factor of product number ``batch``."""


@dataclass(frozen=True)
class MatrixFactor:
    """A matrix of a contraction."""

    matrix: Matrix
    k: int

    def parameters(self, kernel: Kernel) -> Any:
        """See :class:`Factor`."""
        return kernel.pointer(self.matrix.tensor.value)

    def tiles(self, rows: int, k: int, threads: int, padded_k: int) -> MatrixTiles:
        """See :class:`Factor`."""
        return MatrixTiles(layout_of(self.matrix, self.k), rows, k, threads, padded_k)

    def product(self, kernel: Kernel, parameters: Any, batch: Int | None, sizes: Sequence[int]) -> Any:
        """See :class:`Factor`."""
        if batch is None:
            return parameters
        rest, offset = batch, kernel.integer(0, kernel.i64)
        for size, stride in reversed(list(zip(sizes, self.matrix.batch_strides, strict=True))):
            if stride:
                offset = offset + (rest % size).wide() * stride
            rest = rest // size
        return kernel.offset(parameters, offset, self.matrix.element)


def layout_of(matrix: Matrix, k: int) -> MatrixLayout:
    """What tiles need to know of a matrix."""
    size = int(matrix.element.width) // 8
    alignment = gcd(CHUNK, *(stride * size for stride in matrix.batch_strides))
    return MatrixLayout(matrix.rows, k, matrix.row_stride, matrix.k_stride, size, alignment)


@dataclass(frozen=True)
class Raster:
    """Blocks to tiles: ``group`` rows of tiles are walked column by column, so that what is in the L2 cache is used again."""

    tiles_down: int
    tiles_across: int
    group: int

    @property
    def tiles(self) -> int:
        """Tiles of one product."""
        return self.tiles_down * self.tiles_across

    def place(self, kernel: Kernel, number: Int) -> tuple[Int, Int]:
        """Row and column of tile ``number``."""
        group = min(self.group, self.tiles_down)
        size = group * self.tiles_across
        first = number // size * group
        inner = number % size
        if self.tiles_down % group == 0:
            return first + inner % group, inner // group
        height = (kernel.integer(self.tiles_down) - first).minimum(group)
        return first + inner % height, inner // height


@dataclass(frozen=True)
class MmaKernel:
    """One product: what is multiplied, what comes after it, and how it is cut."""

    contraction: Contraction
    a: Factor
    b: Factor
    operands: Operands
    tile: MmaTile
    splits: int
    group: int
    schedule: str

    @property
    def tile_k(self) -> int:
        """Elements of K in a stage."""
        return self.tile.k_bytes * 8 // self.operands.bits

    @property
    def k_tiles(self) -> int:
        """Tiles of K that one block multiplies."""
        return -(-(-(-self.contraction.k // self.tile_k)) // self.splits)

    def write(self, function: Any) -> None:
        """Write the kernel (two, if K is split) and its launch into a kernel function over memrefs."""
        c, tile = self.contraction, self.tile
        kernel = Kernel(function, threads=tile.threads, schedule=self.schedule, min_blocks=1)
        element = kernel.i32 if self.operands.is_integer else kernel.f32
        partial = PartialSums.allocate(function, c, self.splits, element) if self.splits > 1 else None
        epilogue = None
        if partial is None:
            epilogue = Epilogue(kernel, c, tile_rows=tile.rows, tile_columns=tile.columns)
        given = [factor.parameters(kernel) for factor in (self.a, self.b)]
        target = kernel.pointer(partial.buffer) if partial is not None else None
        staging = staging_for(c, tile.rows, tile.columns) if partial is None else Staging(tile.rows, tile.columns, partial.run)
        raster = Raster(-(-c.m // tile.rows), -(-c.n // tile.columns), self.group)

        with kernel.body():
            thread, block = kernel.thread(), kernel.block_index()
            down, across = raster.place(kernel, block % raster.tiles)
            outer = block // raster.tiles
            batch = outer % c.batch if c.batch > 1 else None
            split = outer // c.batch
            first_row, first_column = down * tile.rows, across * tile.columns
            shared = kernel.shared()
            sums = self._multiply(kernel, given, shared, thread, batch, split, first_row, first_column)
            staging.write(kernel, sums, shared, thread & 31, *tile.warp_place(thread))
            kernel.barrier()

            def out(values: Sequence[Any], row: Int, column: Int) -> None:
                row, column = first_row + row, first_column + column
                if partial is not None:
                    partial.store(kernel, target, split, batch, values, row, column)
                    return
                assert epilogue is not None
                results = epilogue.tile(batch)
                for output, run in enumerate(results.apply(values, row, column)):
                    results.store(output, run, row, column)

            staging.read(kernel, element, shared, thread, tile.threads, out)
        kernel.launch((raster.tiles * c.batch * self.splits,), shared_bytes=max(tile.loop_bytes, staging.bytes))
        if partial is not None:
            partial.reduce(function, self.schedule)

    def _multiply(
        self,
        kernel: Kernel,
        given: Sequence[Any],
        shared: Any,
        thread: Int,
        batch: Int | None,
        split: Int,
        first_row: Int,
        first_column: Int,
    ) -> Sums:
        tile, sizes = self.tile, self.contraction.batches
        padded = self.splits * self.k_tiles * self.tile_k
        tiles = []
        warp_places = tile.warp_place(thread)
        for factor, parameters, rows, per_warp, first, warp in (
            (self.a, given[0], tile.rows, tile.rows_per_warp, first_row, warp_places[0]),
            (self.b, given[1], tile.columns, tile.columns_per_warp, first_column, warp_places[1]),
        ):
            made = factor.tiles(rows, self.tile_k, tile.threads, padded)
            made.place_copies(kernel, factor.product(kernel, parameters, batch, sizes), thread, first)
            made.place_fragments(kernel, thread & 31, warp, per_warp)
            tiles.append(made)
        first_tile = split * self.k_tiles if self.splits > 1 else kernel.integer(0)
        return MmaLoop(kernel, tile, self.operands, tiles[0], tiles[1], shared).run(first_tile, self.k_tiles)
