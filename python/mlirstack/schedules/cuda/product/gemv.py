"""Products of a few rows with a large matrix: the matrix is streamed once, nothing is staged, K is summed across lanes.

A warp takes ``columns`` adjacent rows of the streamed factor and all rows of the small one.  Its lanes read 16 bytes each
of 512 contiguous ones, several loads in flight; sums meet by shuffles, and, where several warps share K, in shared memory in
the warps' order.  The result does not depend on timing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.reduce import across_lanes
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.contraction import Contraction, Matrix
from mlirstack.schedules.cuda.product.epilogue import Epilogue
from mlirstack.schedules.cuda.values import Float, Int

WARP = 32
WARPS = 8  # of a block


@dataclass(frozen=True)
class Streaming:
    """How a streamed product is cut: a warp's rows of the streamed factor, the warps that share K, loads in flight."""

    columns: int
    k_warps: int
    unroll: int


class StreamedProduct:
    """Writes the kernel.  ``transposed``: A is streamed, and B is the small factor."""

    def __init__(self, function: Any, contraction: Contraction, cut: Streaming, *, transposed: bool, schedule: str) -> None:
        self._contraction = contraction
        self._cut = cut
        self._transposed = transposed
        self._large = contraction.a if transposed else contraction.b
        self._small = contraction.b if transposed else contraction.a
        kernel = Kernel(function, threads=WARP * WARPS, schedule=schedule)
        self._kernel = kernel
        self._pointers = (kernel.pointer(self._large.tensor.value), kernel.pointer(self._small.tensor.value))
        rows, columns = (cut.columns, 1) if transposed else (1, cut.columns)
        self._epilogue = Epilogue(kernel, contraction, tile_rows=rows, tile_columns=columns)
        self._width = _load_width(contraction, self._large, self._small)
        # Short loads, where rows are not aligned to long ones, keep as many bytes in flight by their number.
        self._unroll = cut.unroll * (vectors.elements_per_access(self._large.element) // self._width)

    def write(self) -> None:
        """Body and launch."""
        kernel, cut, contraction = self._kernel, self._cut, self._contraction
        per_block = self._columns_of_block
        blocks = -(-self._large.rows // per_block)
        shares = cut.k_warps > 1
        with kernel.body():
            thread, block = kernel.thread(), kernel.block_index()
            warp, lane = thread // WARP, thread % WARP
            batch = block // blocks
            column = (block % blocks) * per_block + warp // cut.k_warps * cut.columns
            sums = self._sums(column, warp % cut.k_warps, lane, self._axes(batch))
            if shares:
                sums = self._across_warps(sums, warp, lane)

            def finish() -> None:
                self._finish(sums, column, lane, batch if contraction.batches else None)

            mine = lane < self._small.rows
            if shares:
                mine = mine & (warp % cut.k_warps).equals(0)
            if self._large.rows % per_block:
                mine = mine & (column < self._large.rows)
            kernel.when(mine, finish)
        size = WARPS * cut.columns * self._small.rows * 4 if shares else 0
        kernel.launch((blocks * contraction.batch,), shared_bytes=size)

    @property
    def _columns_of_block(self) -> int:
        """Rows of the streamed factor."""
        return WARPS // self._cut.k_warps * self._cut.columns

    # -------------------------------------------------------------------------------------------------------------- sums

    def _sums(self, column: Int, part: Int, lane: Int, axes: Sequence[Int]) -> list[Float]:
        """The warp's share of the sums, small rows outermost, the same in all lanes."""
        kernel, cut = self._kernel, self._cut
        count = cut.columns * self._small.rows
        stride = WARP * self._width * cut.k_warps
        whole = self._contraction.k // (stride * self._unroll) * (stride * self._unroll)
        first = (part * WARP + lane) * self._width
        large, small = self._bases(column, axes)

        def step(k: Int, *sums: Any) -> Sequence[Any]:
            return self._add(sums, large, small, [first + k + stride * i for i in range(self._unroll)], None)

        sums: list[Any] = [kernel.real(0.0)] * count
        if whole:
            sums = kernel.loop(0, whole, stride * self._unroll, sums, step)
        rest = range(whole, self._contraction.k, stride)
        if rest:
            sums = self._add(sums, large, small, [first + k for k in rest], self._contraction.k)
        return [Float(s) for s in across_lanes(kernel, [s.value for s in sums], _sums)]

    def _bases(self, column: Int, axes: Sequence[Int]) -> tuple[list[Any], list[Any]]:
        """Pointers to the warp's rows of the streamed factor (clamped at the edge), and to all rows of the small one."""
        last, whole = self._large.rows - 1, self._large.rows % self._columns_of_block == 0
        columns = [column + i if whole else (column + i).minimum(last) for i in range(self._cut.columns)]
        large = [self._row(0, self._large, c, axes) for c in columns]
        return large, [self._row(1, self._small, self._kernel.integer(r), axes) for r in range(self._small.rows)]

    def _row(self, number: int, matrix: Matrix, row: Int, axes: Sequence[Int]) -> Any:
        offset = row.wide() * matrix.row_stride
        for axis, stride in zip(axes, matrix.batch_strides, strict=True):
            offset = offset + axis.wide() * stride
        return self._kernel.offset(self._pointers[number], offset, matrix.element)

    def _add(
        self, sums: Sequence[Any], large: Sequence[Any], small: Sequence[Any], places: Sequence[Int], end: int | None
    ) -> list[Any]:
        """``sums`` and the products at some places of K; those at or beyond ``end`` count as zero."""
        streamed = [[self._load(self._large, row, k, end, vectors.Cache.STREAM) for row in large] for k in places]
        totals = list(sums)
        for k, parts in zip(places, streamed, strict=True):
            for r, row in enumerate(small):
                values = self._load(self._small, row, k, end, vectors.Cache.NORMAL)
                for c, others in enumerate(parts):
                    place = r * len(large) + c
                    for value, other in zip(values, others, strict=True):
                        totals[place] = value.fma(other, totals[place])
        return totals

    def _load(self, matrix: Matrix, row: Any, k: Int, end: int | None, cache: vectors.Cache) -> list[Float]:
        """A run along K as f32."""
        kernel = self._kernel
        at = k if end is None else k.minimum(end - self._width)
        pointer = kernel.offset(row, at, matrix.element)
        values = [Float(v).to(kernel.f32) for v in vectors.load(kernel, matrix.element, pointer, self._width, cache=cache)]
        if end is None:
            return values
        inside, zero = k < end, kernel.real(0.0)
        return [inside.select(value, zero) for value in values]

    def _across_warps(self, sums: Sequence[Float], warp: Int, lane: Int) -> list[Float]:
        """Sums of the warps that share K, added in their order."""
        kernel, count = self._kernel, len(sums)
        shared = kernel.shared()

        def put() -> None:
            for position, value in enumerate(sums):
                kernel.store(value, kernel.offset(shared, warp * count + position, kernel.f32), 4)

        kernel.when(lane.equals(0), put)
        kernel.barrier()
        first = warp // self._cut.k_warps * (self._cut.k_warps * count)
        totals: list[Float] = []
        for position in range(count):
            parts = [
                Float(kernel.load(kernel.f32, kernel.offset(shared, first + (other * count + position), kernel.f32), 4))
                for other in range(self._cut.k_warps)
            ]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            totals.append(total)
        return totals

    # ----------------------------------------------------------------------------------------------------------- results

    def _finish(self, sums: Sequence[Float], column: Int, lane: Int, batch: Int | None) -> None:
        """Lane r has row r of the small factor."""
        count = self._cut.columns
        own = [self._chosen([sums[r * count + c] for r in range(self._small.rows)], lane) for c in range(count)]
        tile = self._epilogue.tile(batch)
        if not self._transposed:
            for output, run in enumerate(tile.apply([value.value for value in own], lane, column)):
                tile.store(output, run, lane, column)
            return
        for position, value in enumerate(own):
            row = column + position
            for output, run in enumerate(tile.apply([value.value], row, lane)):
                tile.store(output, run, row, lane)

    def _chosen(self, values: Sequence[Float], number: Int) -> Float:
        chosen = values[0]
        for position in range(1, len(values)):
            chosen = number.equals(position).select(values[position], chosen)
        return chosen

    def _axes(self, batch: Int) -> list[Int]:
        axes: list[Int] = []
        for size in reversed(self._contraction.batches):
            axes.insert(0, batch % size)
            batch = batch // size
        return axes


def _sums(ours: list[Any], theirs: list[Any]) -> list[Any]:
    return [(Float(x) + Float(y)).value for x, y in zip(ours, theirs, strict=True)]


def _load_width(contraction: Contraction, *matrices: Matrix) -> int:
    """Elements of K that one load takes: at most 16 bytes of every factor, all rows aligned to it."""
    width = vectors.elements_per_access(matrices[0].element)
    for matrix in matrices:
        width = gcd(width, contraction.k, *(s for s in (matrix.row_stride, *matrix.batch_strides) if s))
    return width
