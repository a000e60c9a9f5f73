"""What all threads of a block of a warp-specialised product know: its ring, its place in the cluster, its tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlirstack.schedules.cuda.instructions import hopper
from mlirstack.schedules.cuda.instructions.hopper import Ring, Stage
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int
from mlirstack.schedules.cuda.wgmma.raster import Place, Raster
from mlirstack.schedules.cuda.wgmma.wgmma_tile import PIECE_BYTES, WgmmaProblem


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
        self.rank = hopper.block_in_cluster(kernel) if tile.cluster > 1 else kernel.integer(0)
        self.first = kernel.block_index() // tile.cluster  # tile of the cluster
        self.clusters = clusters
        self.ring = Ring(kernel, kernel.offset(self.shared, problem.barriers), tile.stages, tile.releases)
        self._steps = steps
        self._raster = Raster(*problem.tiles, tile.group)

    def begin(self, tensor_maps: list[Any]) -> None:
        """Make the barriers, and let every thread of the cluster see them."""
        kernel, tile = self.kernel, self.tile

        def initialize() -> None:
            self.ring.initialize()
            for consumer in range(tile.consumers if tile.split > 1 else 0):
                hopper.initialize_barrier(kernel, self.arrived(kernel.integer(consumer)), 1)
            hopper.publish_barriers()
            for tensor_map in tensor_maps:
                hopper.prefetch_tensor_map(tensor_map)
            if tile.split > 1:
                self._expect_sums()

        kernel.when(hopper.is_first_thread(self.thread), initialize)
        kernel.barrier()
        if tile.cluster > 1:
            hopper.cluster_barrier(aligned=True)

    def end(self) -> None:
        """Leave when no neighbour writes here any more."""
        if self.tile.cluster > 1:
            hopper.cluster_barrier(aligned=False)

    def arrived(self, consumer: Int) -> Any:
        """The barrier on which the sums of the cluster's other blocks count."""
        return self.kernel.offset(self.shared, consumer * hopper.BARRIER_BYTES + self.problem.arrivals)

    def _expect_sums(self) -> None:
        """Announce the sums that each warpgroup gets from the other blocks; their number may depend on the block."""
        kernel, tile = self.kernel, self.tile
        sizes = [(tile.split - 1) * len(tile.owned(block)) * PIECE_BYTES for block in range(tile.split)]
        expected = kernel.integer(sizes[0])
        for block, size in enumerate(sizes):
            if size != sizes[0]:
                expected = self.rank.equals(block).select(kernel.integer(size), expected)
        for consumer in range(tile.consumers):
            hopper.arrive_expecting(kernel, self.arrived(kernel.integer(consumer)), expected)

    def each_tile(self, first: Int, step: Int | int, stage: Stage, body: Callable[[Int, Int, Int], Sequence[Any]]) -> None:
        """``body(tile, stage's index, its phase)`` for the cluster's tiles; it returns the next stage's index and phase.

        Blocks that share K have one tile each.
        """
        if self.tile.split > 1:
            body(first, stage.index, stage.phase)
            return
        self.kernel.loop(first, self.problem.work, step, [stage.index, stage.phase], body)

    def place(self, work: Int) -> Place:
        """First row and column of this block's tile in the cluster's tile ``work``, and its product."""
        place, multicast = self._raster.place(work), self.tile.multicast
        row = place.row * 2 + self.rank if multicast == "b" else place.row
        column = place.column * 2 + self.rank if multicast == "a" else place.column
        return Place(row * self.tile.rows, column * self.tile.columns, place.batch)

    def k_range(self) -> tuple[Int, Int]:
        """The steps of K that are this block's."""
        split, steps = self.tile.split, self._steps
        if split == 1:
            return self.kernel.integer(0), steps
        return self.rank * steps // split, (self.rank + 1) * steps // split

    def batch_axes(self, batch: Int) -> list[Int]:
        """The index along each batch axis."""
        axes: list[Int] = []
        for size in reversed(self.problem.contraction.batches):
            axes.insert(0, batch % size)
            batch = batch // size
        return axes
