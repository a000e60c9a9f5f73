"""A matrix product on Hopper: one warpgroup that copies, others that multiply, blocks that stay for many tiles.

Takes a :class:`WgmmaProblem`, writes the kernel and its launch.  The producer's one thread keeps a ring of shared-memory
buffers full with the copy engine; consumers issue wgmmas on them, one group of wgmmas always in flight, and run the epilogue
while the ring already fills for the next tile.  In a cluster, two blocks may share one factor by multicast, or several may
share the K of one tile, whose sums then meet in the first block's shared memory in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlirstack.schedules.cuda import hopper
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.epilogue import Epilogue
from mlirstack.schedules.cuda.hopper import Ring, SharedOperand, Stage
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.raster import Place, Raster
from mlirstack.schedules.cuda.values import Float, Int
from mlirstack.schedules.cuda.wgmma_store import StoreTile, Thread
from mlirstack.schedules.cuda.wgmma_tile import WgmmaProblem, factor_map, output_map

_REGISTERS = {2: (40, 232), 3: (24, 160)}  # of producer and consumers, by the number of consumer warpgroups
_MANY_ACCUMULATORS = 64  # from here on a thread needs more registers than an even share


def write_wgmma(function: Any, problem: WgmmaProblem, device: Device, schedule: str) -> None:
    """Write the kernel of ``function`` and launch it."""
    _Writer(function, problem, schedule).write(device)


class _Writer:
    def __init__(self, function: Any, problem: WgmmaProblem, schedule: str) -> None:
        tile, contraction = problem.tile, problem.contraction
        self._problem = problem
        self._tile = tile
        kernel = Kernel(function, threads=tile.threads, schedule=schedule, cluster=tile.cluster, min_blocks=1)
        self._kernel = kernel
        self._maps = (
            kernel.tensor_map(
                problem.left.tensor.value,
                factor_map(problem, problem.left, tile.rows, shared_by_two=tile.multicast == "a"),
            ),
            kernel.tensor_map(
                problem.right.tensor.value,
                factor_map(problem, problem.right, tile.columns, shared_by_two=tile.multicast == "b"),
            ),
        )
        self._output_maps = [
            kernel.tensor_map(output.access.tensor.value, output_map(contraction, output.access)) if staged else None
            for output, staged in zip(contraction.outputs, problem.staged, strict=True)
        ]
        sizes = (tile.columns, tile.rows) if problem.swapped else (tile.rows, tile.columns)
        direct = [number for number, staged in enumerate(problem.staged) if not staged]
        self._epilogue = Epilogue(kernel, contraction, tile_rows=sizes[0], tile_columns=sizes[1], stores=direct)
        self._raster = Raster(*problem.tiles, tile.group)

    def write(self, device: Device) -> None:
        kernel, tile = self._kernel, self._tile
        with kernel.body():
            self._begin()
            group = self._thread // hopper.WARPGROUP
            kernel.either(group.equals(0), self._produce, lambda: self._consume(group - 1))
            if tile.cluster > 1:
                hopper.cluster_barrier(aligned=False)  # neighbours may still write here
        work = self._problem.work * tile.cluster
        resident = device.multiprocessors // tile.cluster * tile.cluster
        kernel.launch((work if tile.split > 1 else min(work, resident),), shared_bytes=self._problem.shared_bytes)

    def _begin(self) -> None:
        """Barriers and what all threads know."""
        kernel, tile = self._kernel, self._tile
        self._shared = kernel.shared()
        self._thread = kernel.thread()
        self._rank = hopper.block_in_cluster(kernel) if tile.cluster > 1 else kernel.integer(0)
        self._first = kernel.block_index() // tile.cluster
        self._clusters = kernel.grid_size() // tile.cluster
        blocks = 2 if tile.multicast != "none" else 1
        self._ring = Ring(kernel, kernel.offset(self._shared, self._problem.barriers), tile.stages, tile.consumers * blocks)

        def initialize() -> None:
            self._ring.initialize()
            for consumer in range(tile.consumers if tile.split > 1 else 0):
                hopper.initialize_barrier(kernel, self._arrived(kernel.integer(consumer)), 1)
            hopper.publish_barriers()
            for tensor_map in (*self._maps, *self._output_maps):
                if tensor_map is not None:
                    hopper.prefetch_tensor_map(tensor_map)
            if tile.split > 1:
                kernel.when(self._rank.equals(0), self._expect_sums)

        kernel.when(hopper.is_first_thread(self._thread), initialize)
        kernel.barrier()
        if tile.cluster > 1:
            hopper.cluster_barrier(aligned=True)

    def _expect_sums(self) -> None:
        for consumer in range(self._tile.consumers):
            barrier = self._arrived(self._kernel.integer(consumer))
            hopper.arrive_expecting(self._kernel, barrier, (self._tile.split - 1) * self._problem.partial_bytes)

    def _arrived(self, consumer: Int) -> Any:
        """The barrier on which the other blocks' sums count."""
        return self._kernel.offset(self._shared, consumer * hopper.BARRIER_BYTES + self._problem.arrivals)

    def _place(self, work: Int) -> Place:
        """The tile of this block in the cluster's tile ``work``."""
        place, multicast = self._raster.place(work), self._tile.multicast
        row = place.row * 2 + self._rank if multicast == "b" else place.row
        column = place.column * 2 + self._rank if multicast == "a" else place.column
        return Place(row * self._tile.rows, column * self._tile.columns, place.batch)

    def _k_range(self) -> tuple[Int, Int]:
        """The steps of K that are this block's."""
        kernel, split, steps = self._kernel, self._tile.split, self._problem.steps
        if split == 1:
            return kernel.integer(0), kernel.integer(steps)
        return self._rank * steps // split, (self._rank + 1) * steps // split

    def _batch_axes(self, batch: Int) -> list[Int]:
        axes: list[Int] = []
        for size in reversed(self._problem.contraction.batches):
            axes.insert(0, batch % size)
            batch = batch // size
        return axes

    # ---------------------------------------------------------------------------------------------------------- producer

    def _produce(self) -> None:
        tile = self._tile
        if self._trades_registers:
            hopper.set_registers(_REGISTERS[tile.consumers][0], more=False)
        self._kernel.when(hopper.is_first_thread(self._thread), self._copy_tiles)

    def _copy_tiles(self) -> None:
        kernel, ring = self._kernel, self._ring
        low, high = self._k_range()

        def copy_tile(work: Int, index: Int, phase: Int) -> Sequence[Any]:
            place = self._place(work)
            axes = self._batch_axes(place.batch)

            def copy_step(step: Int, index: Int, phase: Int) -> Sequence[Any]:
                stage = Stage(index, phase)
                ring.wait_empty(stage)
                hopper.arrive_expecting(kernel, ring.full(index), self._problem.stage_bytes)
                self._copy_stage(stage, step, place, axes)
                following = ring.next(stage)
                return following.index, following.phase

            return kernel.loop(low, high, 1, [index, phase], copy_step)

        first = ring.first()
        kernel.loop(self._first, self._problem.work, self._clusters, [first.index, first.phase], copy_tile)

    def _copy_stage(self, stage: Stage, step: Int, place: Place, axes: Sequence[Int]) -> None:
        problem, tile = self._problem, self._tile
        base = stage.index * problem.stage_bytes
        for matrix, layout, row, rows, offset, tensor_map, shared in (
            (problem.left, problem.left_shared, place.row, tile.rows, 0, self._maps[0], tile.multicast == "a"),
            (problem.right, problem.right_shared, place.column, tile.columns, problem.left_bytes, self._maps[1],
             tile.multicast == "b"),
        ):  # fmt: skip
            batch = [axis for axis, stride in zip(axes, matrix.batch_strides, strict=True) if stride]
            target, k = base + offset, step * layout.tile_k
            if matrix.k_major:
                self._copy_rows(target, tensor_map, k, row, rows, batch, self._ring.full(stage.index), shared)
            else:
                self._copy_columns(target, tensor_map, layout, k, row, rows, batch, self._ring.full(stage.index), shared)

    def _copy_rows(
        self, target: Int, tensor_map: Any, k: Int, row: Int, rows: int, batch: Sequence[Int], barrier: Any, shared: bool
    ) -> None:
        """A K-major tile: one box, or this block's half of it for both blocks."""
        if shared:
            row = row + self._rank * (rows // 2)
            target = target + self._rank * (rows // 2 * hopper.SWIZZLE)
        place = self._kernel.offset(self._shared, target)
        coordinates = [k, row, *reversed(batch)]
        hopper.tensor_load(self._kernel, place, tensor_map, coordinates, barrier, 3 if shared else None)

    def _copy_columns(
        self, target: Int, tensor_map: Any, layout: SharedOperand, k: Int, row: Int, rows: int, batch: Sequence[Int],
        barrier: Any, shared: bool,
    ) -> None:  # fmt: skip
        """A tile whose rows are contiguous: a box for every 64 of them, or this block's half of the boxes for both."""
        boxes = rows // layout.block_rows // (2 if shared else 1)
        for number in range(boxes):
            box = self._rank * boxes + number if shared else self._kernel.integer(number)
            place = self._kernel.offset(self._shared, target + box * (layout.tile_k * hopper.SWIZZLE))
            coordinates = [row + box * layout.block_rows, k, *reversed(batch)]
            hopper.tensor_load(self._kernel, place, tensor_map, coordinates, barrier, 3 if shared else None)

    # --------------------------------------------------------------------------------------------------------- consumers

    @property
    def _trades_registers(self) -> bool:
        return self._tile.blocks * self._tile.accumulators >= _MANY_ACCUMULATORS and self._tile.consumers in _REGISTERS

    def _consume(self, warpgroup: Int) -> None:
        kernel, tile, problem = self._kernel, self._tile, self._problem
        if self._trades_registers:
            hopper.set_registers(_REGISTERS[tile.consumers][1], more=True)
        number = self._thread % hopper.WARPGROUP
        thread = Thread(warpgroup, number, number // 32, number % 32)
        row = warpgroup // tile.warpgroups[1] * (tile.blocks * hopper.WGMMA_ROWS)
        column = warpgroup % tile.warpgroups[1] * tile.warpgroup_columns
        store = StoreTile(kernel, problem, self._output_maps, thread, self._shared)

        def compute_tile(work: Int, index: Int, phase: Int) -> Sequence[Any]:
            place = self._place(work)
            stage, sums = self._multiply(Stage(index, phase), thread, row, column)
            values = [hopper.accumulator_values(kernel, s, tile.accumulators, problem.operands) for s in sums]

            def finish(values: Sequence[Sequence[Any]]) -> None:
                self._finish(store, values, thread, place, row, column)

            if tile.split > 1:
                self._combine(values, thread, finish)
            else:
                finish(values)
            return stage.index, stage.phase

        first = self._ring.first()
        kernel.loop(self._first, problem.work, self._clusters, [first.index, first.phase], compute_tile)
        store.finish()

    def _multiply(self, stage: Stage, thread: Thread, row: Int, column: Int) -> tuple[Stage, list[Any]]:
        """The main loop of a tile: the next stage, and the accumulators of each block of 64 rows."""
        kernel, tile, problem, ring = self._kernel, self._tile, self._problem, self._ring
        base = hopper.shared_address(kernel, self._shared)
        left = base + row * hopper.SWIZZLE
        right = base + column * hopper.SWIZZLE + problem.left_bytes
        low, high = self._k_range()
        count, operands = tile.accumulators, problem.operands

        def step(number: Int, index: Int, phase: Int, *sums: Any) -> Sequence[Any]:
            here = Stage(index, phase)
            ring.wait_full(here)
            offset = index * problem.stage_bytes
            results = self._multiply_stage(left + offset, right + offset, sums)
            hopper.wgmma_commit()
            hopper.wgmma_wait(1)
            kernel.when(number > low, lambda: self._release(ring.previous(here), thread))
            following = ring.next(here)
            return following.index, following.phase, *results

        zeros = [hopper.zero_accumulators(kernel, count, operands) for _ in range(tile.blocks)]
        index, phase, *sums = kernel.loop(low, high, 1, [stage.index, stage.phase, *zeros], step)
        hopper.wgmma_wait(0)
        after = Stage(index, phase)
        self._release(ring.previous(after), thread)
        return after, sums

    def _multiply_stage(self, left: Int, right: Int, sums: Sequence[Any]) -> list[Any]:
        """All wgmmas of a buffer."""
        kernel, tile, problem = self._kernel, self._tile, self._problem
        count, operands = tile.accumulators, problem.operands
        lefts, rights = problem.left_shared, problem.right_shared
        descriptors = [
            lefts.descriptor(kernel, left + lefts.row_offset(block * hopper.WGMMA_ROWS)) for block in range(tile.blocks)
        ]
        other = rights.descriptor(kernel, right)
        results = [hopper.pin(kernel, s, count, operands) for s in sums] if tile.blocks > 1 else list(sums)
        hopper.wgmma_fence()
        layout = (lefts.k_major, rights.k_major)
        for block, descriptor in enumerate(descriptors):
            for part in range(hopper.SWIZZLE // hopper.WGMMA_BYTES):
                a, b = lefts.advanced(descriptor, part), rights.advanced(other, part)
                results[block] = hopper.wgmma(results[block], a, b, tile.warpgroup_columns, operands, layout)
        return results

    def _release(self, stage: Int, thread: Thread) -> None:
        """Tell the producers that read this buffer's data for us that it may be overwritten."""
        kernel, barrier = self._kernel, self._ring.empty(stage)
        if self._tile.multicast == "none":
            kernel.when(hopper.is_first_thread(thread.number), lambda: hopper.arrive(barrier))
        else:
            kernel.when(thread.number < 2, lambda: hopper.arrive(hopper.of_block(barrier, thread.number)))

    def _finish(
        self, store: StoreTile, values: Sequence[Sequence[Any]], thread: Thread, place: Place, row: Int, column: Int
    ) -> None:
        """Epilogue and stores of a tile."""
        batches = self._problem.contraction.batches
        epilogue = self._epilogue.tile(place.batch if batches else None)
        row, column = place.row + row, place.column + column
        if self._problem.swapped:
            store.write_swapped(values, epilogue, row, column)
        else:
            store.write(values, epilogue, row, column, self._batch_axes(place.batch))

    # ----------------------------------------------------------------------------------------------------------- split K

    def _combine(self, values: Sequence[Sequence[Any]], thread: Thread, finish: Any) -> None:
        """Send the sums to the cluster's first block, which adds them in the blocks' order and finishes the tile.

        Each thread's sums go to the same thread there, in pieces of 16 bytes that lie side by side for neighbouring threads.
        """
        kernel, problem, split = self._kernel, self._problem, self._tile.split
        pieces = len(values) * len(values[0]) // 4
        own = thread.warpgroup * problem.partial_bytes + thread.number * 16
        of_one_block = self._tile.consumers * problem.partial_bytes
        flat = [value for block in values for value in block]

        def send() -> None:
            zero = kernel.integer(0)
            target = own + (self._rank - 1) * of_one_block + problem.partial
            barrier = hopper.of_block(self._arrived(thread.warpgroup), zero)
            for piece in range(pieces):
                place = kernel.offset(self._shared, target + piece * 16 * hopper.WARPGROUP)
                hopper.store_remote(kernel, flat[4 * piece : 4 * piece + 4], hopper.of_block(place, zero), barrier)

        def receive() -> None:
            hopper.wait(kernel, self._arrived(thread.warpgroup), 0)
            totals: list[Any] = []
            for piece in range(pieces):
                parts = [flat[4 * piece : 4 * piece + 4]]
                for other in range(split - 1):
                    offset = own + (problem.partial + other * of_one_block + piece * 16 * hopper.WARPGROUP)
                    parts.append(hopper.load_shared(kernel, kernel.offset(self._shared, offset)))
                totals += [_sum(column) for column in zip(*parts, strict=True)]
            size = len(values[0])
            finish([totals[first : first + size] for first in range(0, len(totals), size)])

        kernel.either(self._rank.equals(0), receive, send)


def _sum(values: Sequence[Any]) -> Any:
    """f32 values added from first to last."""
    total = Float(values[0])
    for value in values[1:]:
        total = total + Float(value)
    return total.value
