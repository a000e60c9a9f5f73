"""A consumer of a warp-specialised product: the warpgroup that multiplies what the ring holds, and finishes tiles.

Some groups of wgmmas are always in flight: a stage is released when those after its own have been started.  With
``pingpong`` two consumers take tiles in turns; they multiply one at a time, and each one's epilogue hides behind the other's
main loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mlirstack.schedules.cuda.instructions import mbarrier, shared_memory, warpgroup
from mlirstack.schedules.cuda.instructions.mbarrier import Stage
from mlirstack.schedules.cuda.product.epilogue import Epilogue
from mlirstack.schedules.cuda.values import Int
from mlirstack.schedules.cuda.wgmma.raster import Place
from mlirstack.schedules.cuda.wgmma.wgmma_block import WgmmaBlock
from mlirstack.schedules.cuda.wgmma.wgmma_boxes import Thread
from mlirstack.schedules.cuda.wgmma.wgmma_exchange import Pieces, exchange
from mlirstack.schedules.cuda.wgmma.wgmma_fragments import RegisterLoop
from mlirstack.schedules.cuda.wgmma.wgmma_store import StoreTile

_TURN = 4  # the named barrier of consumer c's turn is 4 + c; 1 to 3 are the stores'
_PAIR = 2 * warpgroup.WARPGROUP


class Consumer:
    """Warpgroup ``number`` (0, 1, …) of the consumers of ``block``."""

    def __init__(self, block: WgmmaBlock, epilogue: Epilogue, output_maps: Sequence[Any], number: Int) -> None:
        tile = block.tile
        own = block.thread % warpgroup.WARPGROUP
        self._block = block
        self._kernel = block.kernel
        self._epilogue = epilogue
        self._thread = Thread(number, own, own // 32, own % 32, interleaved=block.problem.left_in_registers)
        part = block.kernel.integer(0) if tile.pingpong else number
        down, across = part // tile.warpgroups[1], part % tile.warpgroups[1]
        # Where this warpgroup's part begins, in the factors of a tile and in its results.
        self._left_row, self._right_row = down * (tile.blocks * warpgroup.WGMMA_ROWS), across * tile.warpgroup_columns
        self._row = down * (block.problem.result_blocks * warpgroup.WGMMA_ROWS)
        self._column = across * block.problem.warpgroup_columns
        self._store = StoreTile(block.kernel, block.problem, output_maps, self._thread, block.shared)

    def run(self) -> None:
        """All tiles of this consumer."""
        block, kernel = self._block, self._kernel
        first, step, stage = block.first, block.clusters, block.ring.first()
        if block.tile.pingpong:
            number = self._thread.warpgroup
            kernel.when(number.equals(1), lambda: self._end_turn(kernel.integer(1)))  # consumer 0 begins
            skipped = self._skip(stage)
            second = number.equals(1)
            stage = Stage(second.select(skipped.index, stage.index), second.select(skipped.phase, stage.phase))
            first, step = first + number * step, 2 * step

        def compute_tile(work: Int, index: Int, phase: Int) -> Sequence[Any]:
            place, stage = block.place(work), Stage(index, phase)
            if block.tile.pingpong:
                self._begin_turn()
            stage, sums = self._multiply(stage)
            if block.tile.pingpong:
                self._end_turn(self._thread.warpgroup)
                stage = self._skip(stage)
            self._finish(sums, place)
            return stage.index, stage.phase

        block.each_tile(first, step, stage, compute_tile)
        self._store.finish()

    # ------------------------------------------------------------------------------------------------------------- turns

    def _begin_turn(self) -> None:
        warpgroup.named_barrier(self._kernel, self._thread.warpgroup + _TURN, _PAIR)

    def _end_turn(self, number: Int) -> None:
        """Let the other consumer multiply.

        Not only for speed: a consumer that waited for a stage several rounds ahead would take an old parity for the new one.
        """
        warpgroup.arrive_at_named_barrier(self._kernel, (_TURN + 1) - number, _PAIR)

    def _skip(self, stage: Stage) -> Stage:
        """The stage after the other consumer's tile."""
        steps, stages = self._block.problem.steps, self._block.tile.stages
        position = stage.index + steps
        return Stage(position % stages, (stage.phase + position // stages) & 1)

    # --------------------------------------------------------------------------------------------------------- main loop

    def _multiply(self, stage: Stage) -> tuple[Stage, list[list[Any]]]:
        """The main loop of a tile: the next stage, and the accumulators of each block of 64 rows."""
        kernel, block, ring = self._kernel, self._block, self._block.ring
        problem, tile = block.problem, block.tile
        base = shared_memory.shared_address(kernel, block.shared)
        left = base + self._left_row * warpgroup.SWIZZLE
        right = base + self._right_row * warpgroup.SWIZZLE + problem.left_bytes
        low, high = block.k_range()
        if problem.left_in_registers:
            loop = RegisterLoop(block, self._thread, self._left_row * warpgroup.SWIZZLE, right)
            after, structs = loop.run(stage, low, high, self._release)
            return after, [warpgroup.accumulator_values(kernel, s, tile.accumulators, problem.operands) for s in structs]
        ahead = tile.groups_ahead

        def step(number: Int, index: Int, phase: Int, *sums: Any) -> Sequence[Any]:
            here = Stage(index, phase)
            ring.wait_full(here)
            offset = index * problem.stage_bytes
            results = self._multiply_stage(left + offset, right + offset, sums)
            warpgroup.wgmma_commit()
            warpgroup.wgmma_wait(ahead)
            kernel.when(number >= low + ahead, lambda: self._release(ring.before(here, ahead)))
            following = ring.next(here)
            return following.index, following.phase, *results

        zeros = [warpgroup.zero_accumulators(kernel, tile.accumulators, problem.operands) for _ in range(tile.blocks)]
        index, phase, *sums = kernel.loop(low, high, 1, [stage.index, stage.phase, *zeros], step)
        warpgroup.wgmma_finish()
        after = Stage(index, phase)
        for distance in range(ahead, 0, -1):
            if distance == 1:
                self._release(ring.before(after, 1))
            else:
                kernel.when(high - low >= distance, partial(self._release, ring.before(after, distance)))
        return after, [warpgroup.accumulator_values(kernel, s, tile.accumulators, problem.operands) for s in sums]

    def _multiply_stage(self, left: Int, right: Int, sums: Sequence[Any]) -> list[Any]:
        """All wgmmas of a stage."""
        kernel, tile, problem = self._kernel, self._block.tile, self._block.problem
        count, operands = tile.accumulators, problem.operands
        lefts, rights = problem.left_shared, problem.right_shared
        descriptors = [
            lefts.descriptor(kernel, left + lefts.row_offset(block * warpgroup.WGMMA_ROWS)) for block in range(tile.blocks)
        ]
        other = rights.descriptor(kernel, right)
        results = [warpgroup.pin(kernel, s, count, operands) for s in sums] if tile.blocks > 1 else list(sums)
        warpgroup.wgmma_fence()
        layout = (lefts.k_major, rights.k_major)
        for block, descriptor in enumerate(descriptors):
            for part in range(warpgroup.SWIZZLE // warpgroup.WGMMA_BYTES):
                a, b = lefts.advanced(descriptor, part), rights.advanced(other, part)
                results[block] = warpgroup.wgmma(results[block], a, b, tile.warpgroup_columns, operands, layout)
        return results

    def _release(self, stage: Int) -> None:
        """Tell the producers that fill this stage that it may be overwritten."""
        kernel, barrier, number = self._kernel, self._block.ring.empty(stage), self._thread.number
        block = self._block
        if block.tile.multicast == "none":
            kernel.when(warpgroup.is_first_thread(number), lambda: mbarrier.arrive(barrier))
        else:
            kernel.when(
                number < block.tile.writers, lambda: mbarrier.arrive(shared_memory.of_block(barrier, block.partner(number)))
            )

    # -------------------------------------------------------------------------------------------------------------- tile

    def _finish(self, sums: Sequence[Sequence[Any]], place: Place) -> None:
        """Epilogue and stores of a tile."""
        block, store = self._block, self._store
        if block.problem.other is not None:
            sums = self._paired(sums)
        row, column = place.row + self._row, place.column + self._column
        batch = place.batch if block.problem.contraction.batches else None
        if block.tile.split == 1:
            store.write(sums, self._epilogue.tile(batch), row, column, block.batch_axes(place.batch))
            return

        def finish(pieces: Pieces) -> None:
            store.write_pieces(pieces, self._epilogue.tile(batch), row, column)

        exchange(block, [value for values in sums for value in values], self._thread, finish)

    def _paired(self, sums: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Of a pair of products both sums of each element: of the halves of its columns, or of blocks of rows in turns."""
        if self._block.problem.swapped:
            return [list(zip(one, other, strict=True)) for one, other in zip(sums[::2], sums[1::2], strict=True)]
        half = self._block.tile.accumulators // 2
        return [list(zip(values[:half], values[half:], strict=True)) for values in sums]
