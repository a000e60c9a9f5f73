"""The way of a warp-specialised product's accumulators to memory: epilogue, then a box per warpgroup or direct stores.

A warpgroup computes 64 rows by 64 columns of the epilogue at a time.  Outputs that the copy engine can write go through
shared memory, 64 rows of 128 (or 64) bytes a box, swizzled so that no bank is hit twice; all others are stored by the
threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from mlirstack.schedules.cuda.instructions import tma, vectors, warpgroup
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.epilogue import Tile
from mlirstack.schedules.cuda.values import Int
from mlirstack.schedules.cuda.wgmma.wgmma_boxes import GROUP, RowStores, Run, Thread, write_box
from mlirstack.schedules.cuda.wgmma.wgmma_tile import STORE_BUFFER, STORE_BUFFERS, STORE_COLUMNS, WgmmaProblem

_RUNS_AHEAD = 16  # runs whose operands are loaded before the first is computed and stored


class StoreTile:
    """Writes tiles of ``problem``; ``output_maps``: a tensor map for each staged output, None for the others."""

    def __init__(
        self, kernel: Kernel, problem: WgmmaProblem, output_maps: Sequence[Any], thread: Thread, shared: Any
    ) -> None:
        self._kernel = kernel
        self._problem = problem
        self._maps = output_maps
        self._thread = thread
        self._shared = shared
        self._boxes = 0  # boxes of the tile so far
        self._buffer: Any = None  # of the box in hand
        outputs = problem.contraction.outputs
        self._bytes = [vectors.bytes_of(output.access.tensor.element) for output in outputs]
        self._rows = RowStores(kernel, problem, thread, shared)
        staged = [size for size, out in zip(self._bytes, output_maps, strict=True) if out]
        columns = problem.warpgroup_columns
        self._boxes_of_tile = problem.result_blocks * sum(columns * size // problem.box_row(size) for size in staged)

    def write(self, sums: Sequence[Sequence[Any]], epilogue: Tile, row: Int, column: Int, batch: Sequence[Int]) -> None:
        """``sums``: accumulators of each block of 64 rows, or pairs of them; ``row``, ``column``: where the warpgroup's part
        begins.  ``batch``: the index along each batch axis.
        """
        thread, problem = self._thread, self._problem
        if not any(self._maps) and not any(problem.gathered):
            flat = [value for values in sums for value in values]
            self.write_pieces([(i, flat[4 * i : 4 * i + 4]) for i in range(len(flat) // 4)], epilogue, row, column)
            return
        self._boxes = 0
        columns = [column + (thread.column + group) for group in range(0, problem.warpgroup_columns, GROUP)]
        first_rows = [row + block * warpgroup.WGMMA_ROWS for block in range(problem.result_blocks)]
        rows = [[first + (thread.row + half) for half in thread.halves] for first in first_rows]
        # One output needs no more than half a box at a time: fewer registers.  Boxes of several would be open at once.
        halved = len(self._maps) == 1 or problem.warpgroup_columns % STORE_COLUMNS
        groups = STORE_COLUMNS // GROUP // (2 if halved else 1)
        chunks = [(block, group) for block in range(problem.result_blocks) for group in range(0, len(columns), groups)]
        for position, (block, group) in enumerate(chunks):
            for ahead, start in chunks[position : position + 2]:  # the next chunk's operands arrive during this one
                for own_row, place in product(rows[ahead], columns[start : start + groups]):
                    epilogue.prefetch(own_row, place, 2)
            parts = []
            for number in range(group, min(group + groups, len(columns))):
                pairs = (sums[block][4 * number : 4 * number + 2], sums[block][4 * number + 2 : 4 * number + 4])
                parts.append([epilogue.apply(pair, rows[block][i], columns[number]) for i, pair in enumerate(pairs)])
            for output, out in enumerate(self._maps):
                runs = [[half[output] for half in halves] for halves in parts]
                if out is not None:
                    self._stage(output, runs, group, first_rows[block], column, batch)
                    continue
                if problem.gathered[output]:
                    self._rows.write(output, runs, group, first_rows[block], column, epilogue)
                    continue
                for place, halves in zip(columns[group : group + groups], runs, strict=True):
                    for own_row, run in zip(rows[block], halves, strict=True):
                        epilogue.store(output, run, own_row, place)

    def write_pieces(self, pieces: Sequence[tuple[int, Sequence[Any]]], epilogue: Tile, row: Int, column: Int) -> None:
        """Pieces of the warpgroup's part, by their numbers: four accumulators each, stored by their threads.

        Where factors are swapped, rows of the wgmma are columns of the outputs, and values are stored one by one.
        """
        thread, groups = self._thread, self._problem.warpgroup_columns // GROUP
        blocks = sorted({number // groups for number, _ in pieces})
        rows = {
            block: [row + (thread.row + (block * warpgroup.WGMMA_ROWS + half)) for half in thread.halves] for block in blocks
        }
        used = sorted({number % groups for number, _ in pieces})
        columns = {group: [column + (thread.column + (group * GROUP + k)) for k in range(2)] for group in used}
        runs: list[tuple[Sequence[Any], Int, Int]] = []  # values, row and first column in the outputs
        for number, values in pieces:
            for half in range(2):
                place, places = rows[number // groups][half], columns[number % groups]
                pair = values[2 * half : 2 * half + 2]
                if self._problem.swapped:
                    runs += [([value], other, place) for value, other in zip(pair, places, strict=True)]
                else:
                    runs.append((pair, place, places[0]))
        contraction = self._problem.contraction
        scattered = any(output.access.column_stride(contraction.n) != 1 for output in contraction.outputs)
        ahead = _RUNS_AHEAD // 4 if scattered else _RUNS_AHEAD  # an address for each value
        for start in range(0, len(runs), ahead):
            batch = runs[start : start + ahead]
            for values, own_row, place in batch:
                epilogue.prefetch(own_row, place, len(values))
            for values, own_row, place in batch:
                for output, results in enumerate(epilogue.apply(values, own_row, place)):
                    epilogue.store(output, results, own_row, place)

    def finish(self) -> None:
        """Wait until shared memory may be given up."""
        if any(self._maps):
            self._kernel.when(warpgroup.is_first_thread(self._thread.number), lambda: tma.wait_stores(0))

    def _stage(
        self, output: int, runs: Sequence[Sequence[Run]], group: int, row: Int, column: Int, batch: Sequence[Int]
    ) -> None:
        """Some groups of 8 columns, ``group`` the first, of an output whose boxes begin at ``row`` and ``column``.

        A box is sent when its last group is written.
        """
        groups = self._problem.box_row(self._bytes[output]) // self._bytes[output] // GROUP  # of a box
        for start in range(0, len(runs), groups):
            part, first = runs[start : start + groups], group + start
            if first % groups == 0:
                self._buffer = self._acquire()
            row_bytes = self._problem.box_row(self._bytes[output])
            write_box(self._kernel, self._thread, self._buffer, part, first % groups, self._bytes[output], row_bytes)
            if (first + len(part)) % groups == 0:
                place = [column + (first // groups * groups) * GROUP, row, *reversed(batch)]
                self._send(self._maps[output], place)

    def _send(self, output_map: Any, place: Sequence[Int]) -> None:
        """Let the copy engine store the box in hand."""
        tma.fence_shared()
        self._meet()

        def store() -> None:
            tma.tensor_store(output_map, self._buffer, place)
            tma.commit_stores()

        self._kernel.when(warpgroup.is_first_thread(self._thread.number), store)

    def _acquire(self) -> Any:
        """The next buffer, once the copy engine has read it.

        Boxes of a tile take the buffers in turns.  Where their number is odd, the next tile begins with the buffer used
        last, and must wait for all stores.
        """
        kernel, turn = self._kernel, self._boxes % STORE_BUFFERS
        restarts = self._boxes == 0 and self._boxes_of_tile % STORE_BUFFERS != 0
        pending = 0 if restarts else STORE_BUFFERS - 1
        kernel.when(warpgroup.is_first_thread(self._thread.number), lambda: tma.wait_stores(pending))
        self._meet()
        self._boxes += 1
        own = self._thread.warpgroup * (STORE_BUFFERS * STORE_BUFFER) + (self._problem.stores + turn * STORE_BUFFER)
        return kernel.offset(self._shared, own)

    def _meet(self) -> None:
        warpgroup.named_barrier(self._kernel, self._thread.warpgroup + 1, warpgroup.WARPGROUP)
