"""The producer of a warp-specialised product: one thread that keeps the ring full with the copy engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mlirstack.schedules.cuda.instructions import mbarrier, tma, warpgroup
from mlirstack.schedules.cuda.instructions.mbarrier import Stage
from mlirstack.schedules.cuda.instructions.warpgroup import SharedOperand
from mlirstack.schedules.cuda.kernel import TensorMapLayout
from mlirstack.schedules.cuda.product.contraction import Matrix
from mlirstack.schedules.cuda.values import Int
from mlirstack.schedules.cuda.wgmma.wgmma_block import Share, WgmmaBlock
from mlirstack.schedules.cuda.wgmma.wgmma_maps import factor_map
from mlirstack.schedules.cuda.wgmma.wgmma_tile import TURNS, WgmmaProblem


@dataclass(frozen=True)
class Source:
    """A factor on its way into shared memory: ``rows`` of it a stage, ``offset`` bytes from the stage's begin.

    ``shared``: this block's half of it, where another block of the cluster brings the rest.  ``in_turns``: the blocks of the
    cluster bring all of it, for all, in turns.
    """

    matrix: Matrix
    layout: SharedOperand
    tensor_map: Any
    rows: int
    offset: int
    shared: Share | None
    in_turns: bool = False


class FactorCopies(Protocol):
    """What the factors are, and who brings them."""

    def tensor_maps(self, problem: WgmmaProblem) -> Sequence[TensorMapLayout]:
        """Those of the left and of the right factor, and of the other one of a pair."""

    def producer(self, block: WgmmaBlock, maps: Sequence[Any]) -> Producer:
        """What keeps the ring full; ``maps``: the kernel's tensor maps of the factors."""


class MatrixCopies:
    """All factors are matrices."""

    def tensor_maps(self, problem: WgmmaProblem) -> Sequence[TensorMapLayout]:
        """See :class:`FactorCopies`."""
        tile = problem.tile
        left = factor_map(problem, problem.left, problem.result_rows, shared_by_two=tile.shares_left)
        right = factor_map(problem, problem.right, problem.result_columns, shared_by_two=tile.shares_right)
        if problem.other is None:
            return left, right
        return left, right, left if problem.swapped else right  # the same but for the address

    def producer(self, block: WgmmaBlock, maps: Sequence[Any]) -> Producer:
        """See :class:`FactorCopies`."""
        return Producer(block, maps)


class Producer:
    """Copies the tiles of ``block``; ``maps``: tensor maps of the left and of the right factor, and of the other one."""

    def __init__(self, block: WgmmaBlock, maps: Sequence[Any]) -> None:
        problem = block.problem
        rows, columns = problem.result_rows, problem.result_columns
        self._block = block
        self._left = Source(problem.left, problem.left_shared, maps[0], rows, 0, block.left_share())
        self._right = Source(
            problem.right, problem.right_shared, maps[1], columns, problem.left_bytes, block.right_share(),
            in_turns=problem.tile.takes_turns,
        )  # fmt: skip
        self._lefts, self._rights = [self._left], [self._right]
        if problem.other is not None:
            beside = self._lefts if problem.swapped else self._rights
            further = beside[0].offset + beside[0].rows * warpgroup.SWIZZLE
            beside.append(replace(beside[0], matrix=problem.other, tensor_map=maps[2], offset=further))

    def run(self) -> None:
        """By one thread: all steps of all tiles of this block."""
        block, kernel, ring = self._block, self._block.kernel, self._block.ring
        low, high = block.k_range()

        def copy_tile(work: Int, index: Int, phase: Int) -> Sequence[Any]:
            place = block.place(work)
            axes = block.batch_axes(place.batch)

            def copy_step(step: Int, index: Int, phase: Int) -> Sequence[Any]:
                stage = Stage(index, phase)
                ring.wait_empty(stage)
                mbarrier.arrive_expecting(kernel, ring.full(index), block.problem.stage_bytes)
                for source in self._lefts:
                    self._copy(source, index, step, place.row, axes)
                for source in self._rights:
                    self._copy(source, index, step, place.column, axes)
                following = ring.next(stage)
                return following.index, following.phase

            return kernel.loop(low, high, 1, [index, phase], copy_step)

        block.each_tile(block.first, block.clusters, ring.first(), copy_tile)

    def _copy(self, source: Source, stage: Int, step: Int, row: Int, axes: Sequence[Int]) -> None:
        """One factor's part of a stage."""
        target = stage * self._block.problem.stage_bytes + source.offset
        k = step * source.layout.tile_k
        batch = [axis for axis, stride in zip(axes, source.matrix.batch_strides, strict=True) if stride]
        barrier = self._block.ring.full(stage)
        copy = self._copy_rows if source.matrix.k_major else self._copy_columns
        copy(source, target, k, row, list(reversed(batch)), barrier)

    def _copy_rows(self, source: Source, target: Int, k: Int, row: Int, batch: list[Int], barrier: Any) -> None:
        """K is contiguous: one box, or this block's half of it for both blocks."""
        if source.in_turns:
            turn = k // source.layout.tile_k % TURNS
            kernel = self._block.kernel
            kernel.when(turn.equals(self._block.down), lambda: self._load(source, target, [k, row, *batch], barrier))
            return
        if source.shared:
            rows = source.rows // 2
            row = row + source.shared.half * rows
            target = target + source.shared.half * (rows * warpgroup.SWIZZLE)
        self._load(source, target, [k, row, *batch], barrier)

    def _copy_columns(self, source: Source, target: Int, k: Int, row: Int, batch: list[Int], barrier: Any) -> None:
        """Rows are contiguous: a box for every 64 of them, or this block's half of the boxes for both."""
        layout = source.layout
        boxes = source.rows // layout.block_rows // (2 if source.shared else 1)
        for number in range(boxes):
            box = source.shared.half * boxes + number if source.shared else self._block.kernel.integer(number)
            place = target + box * (layout.tile_k * warpgroup.SWIZZLE)
            self._load(source, place, [row + box * layout.block_rows, k, *batch], barrier)

    def _load(self, source: Source, target: Int, coordinates: list[Int], barrier: Any, offsets: Sequence[Int] = ()) -> None:
        kernel = self._block.kernel
        place = kernel.offset(self._block.shared, target)
        mask = (1 << TURNS) - 1 if source.in_turns else source.shared.mask if source.shared else None
        tma.tensor_load(kernel, place, source.tensor_map, coordinates, barrier, mask, offsets)
