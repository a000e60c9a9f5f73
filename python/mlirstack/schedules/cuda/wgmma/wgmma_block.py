"""What all threads of a block of a warp-specialised product know: its ring, its place in the cluster, its tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.schedules.cuda.instructions import mbarrier, shared_memory, tma, warpgroup
from mlirstack.schedules.cuda.instructions.mbarrier import Ring, Stage
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int, Number
from mlirstack.schedules.cuda.wgmma.raster import Place, Raster
from mlirstack.schedules.cuda.wgmma.wgmma_tile import PIECE_BYTES, WgmmaProblem


@dataclass(frozen=True)
class Share:
    """Half number ``half`` of what two blocks of a cluster share; ``mask`` has the bits of both."""

    half: Int
    mask: Number


class WgmmaBlock:
    """A block of the kernel being written; made at the begin of the kernel's body.

    ``steps``: a parameter that holds the problem's steps of K.  ``clusters``: clusters of the grid.
    """

    def __init__(self, kernel: Kernel, problem: WgmmaProblem, steps: Int, clusters: int) -> None:
        tile = problem.tile
        self.kernel = kernel
        self.problem = problem
        self.tile = tile
        self.shared = kernel.shared()
        self.thread = kernel.thread()
        self.rank = shared_memory.block_in_cluster(kernel) if tile.cluster > 1 else kernel.integer(0)
        # Blocks that share the K of a tile are neighbours in the cluster; those of the tile below follow, then on the right.
        self.part = self.rank % tile.split if tile.multicast != "none" else self.rank
        place = self.rank // tile.split
        self.down = place % tile.cluster_tiles[0]
        self._across = place // tile.cluster_tiles[0]
        self.first = kernel.block_index() // tile.cluster  # tile of the cluster
        self.clusters = clusters
        self.ring = Ring(kernel, kernel.offset(self.shared, problem.barriers), tile.stages, tile.releases)
        self._steps = steps
        rows, columns = (kernel.number(size) for size in problem.tile_points)
        self._raster = Raster(rows, columns, tile.group)

    def begin(self, tensor_maps: list[Any]) -> None:
        """Make the barriers, and let every thread of the cluster see them."""
        kernel, tile = self.kernel, self.tile

        def initialize() -> None:
            self.ring.initialize()
            for consumer in range(tile.consumers if tile.split > 1 else 0):
                mbarrier.initialize_barrier(kernel, self.arrived(kernel.integer(consumer)), 1)
            mbarrier.publish_barriers()
            for tensor_map in tensor_maps:
                tma.prefetch_tensor_map(tensor_map)
            if tile.split > 1:
                self._expect_sums()

        kernel.when(warpgroup.is_first_thread(self.thread), initialize)
        kernel.barrier()
        if tile.cluster > 1:
            shared_memory.cluster_barrier(aligned=True)

    def end(self) -> None:
        """Leave when no neighbour writes here any more."""
        if self.tile.cluster > 1:
            shared_memory.cluster_barrier(aligned=False)

    def arrived(self, consumer: Int) -> Any:
        """The barrier on which the sums of the cluster's other blocks count."""
        return self.kernel.offset(self.shared, consumer * mbarrier.BARRIER_BYTES + self.problem.arrivals)

    def _expect_sums(self) -> None:
        """Announce the sums that each warpgroup gets from the other blocks; their number may depend on the block."""
        kernel, tile = self.kernel, self.tile
        sizes = [(tile.split - 1) * len(tile.owned(block)) * PIECE_BYTES for block in range(tile.split)]
        expected = kernel.integer(sizes[0])
        for block, size in enumerate(sizes):
            if size != sizes[0]:
                expected = self.part.equals(block).select(kernel.integer(size), expected)
        for consumer in range(tile.consumers):
            mbarrier.arrive_expecting(kernel, self.arrived(kernel.integer(consumer)), expected)

    def each_tile(self, first: Int, step: Int | int, stage: Stage, body: Callable[[Int, Int, Int], Sequence[Any]]) -> None:
        """``body(tile, stage's index, its phase)`` for the cluster's tiles; it returns the next stage's index and phase.

        Blocks that share K have one tile each.
        """
        if self.tile.split > 1:
            body(first, stage.index, stage.phase)
            return
        work = self.kernel.number(self.problem.work_points)
        self.kernel.loop(first, work, step, [stage.index, stage.phase], body)

    def place(self, work: Int) -> Place:
        """First row and column of this block's tile in the cluster's tile ``work``, and its product."""
        place, tile = self._raster.place(work), self.tile
        down, across = tile.cluster_tiles
        row = place.row * down + self.down if down > 1 else place.row
        column = place.column * across + self._across if across > 1 else place.column
        return Place(row * self.problem.result_rows, column * self.problem.result_columns, place.batch)

    def left_share(self) -> Share | None:
        """Which half of the left factor this block copies, and for whom; None where it shares none."""
        tile = self.tile
        first = self.part + self.down * tile.split
        return self._share(self._across, first, tile.split * tile.cluster_tiles[0]) if tile.shares_left else None

    def right_share(self) -> Share | None:
        """The same of the right factor."""
        tile = self.tile
        first = self.part + self._across * (tile.split * tile.cluster_tiles[0]) if tile.shares_left else self.part
        return self._share(self.down, first, tile.split) if tile.shares_right else None

    def _share(self, half: Int, first: Int, distance: int) -> Share:
        """Of block ``first`` of the cluster and the one ``distance`` further."""
        both = 1 | 1 << distance
        return Share(half, both if self.tile.cluster == 2 else self.kernel.integer(both) << first)

    def partner(self, number: Int) -> Int:
        """The blocks that fill this one's ring, by number: itself, then those that it shares a factor with."""
        return self.rank ^ (number * self.tile.split)

    def of_part(self, part: int) -> Int:
        """The block of the cluster that has this part of the K of the same tile."""
        return self.kernel.integer(part) if self.tile.multicast == "none" else self.rank - self.part + part

    def k_range(self) -> tuple[Int, Int]:
        """The steps of K that are this block's."""
        split, steps = self.tile.split, self._steps
        if split == 1:
            return self.kernel.integer(0), steps
        return self.part * steps // split, (self.part + 1) * steps // split

    def batch_axes(self, batch: Int) -> list[Int]:
        """The index along each batch axis."""
        axes: list[Int] = []
        for size in reversed(self.problem.contraction.batches):
            axes.insert(0, batch % size)
            batch = batch // size
        return axes
