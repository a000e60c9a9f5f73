"""Rows that pass through shared memory: blocks stay for several rows, and the next ones come while they reduce one.

Takes a plan whose rows lie in one piece at multiples of 16 bytes, so that the copy engine (``cp.async.bulk``, sm_90) brings
each with one instruction of one thread; as many are under way as shared memory has room for, whatever the registers hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.extent import is_multiple
from mlirstack.schedules.cuda.instructions import mbarrier, tma, vectors
from mlirstack.schedules.cuda.instructions.vectors import Cache
from mlirstack.schedules.cuda.stream.loops import Access
from mlirstack.schedules.cuda.stream.row_kernel import RowKernel
from mlirstack.schedules.cuda.stream.row_plan import RowPlan
from mlirstack.schedules.cuda.stream.tile import Tile
from mlirstack.schedules.cuda.values import Bool, Int, Number

_ALIGNMENT = vectors.ACCESS_BYTES  # of what the copy engine takes: addresses and sizes


def can_stay(plan: RowPlan, device: Device) -> bool:
    """Is each row of every bulk input one piece of memory that begins and ends at multiples of 16 bytes?"""
    rows = [loop.members[-1] for loop in plan.rows]
    along = plan.loops[plan.lane_loop].members[-1]

    def is_whole(access: Access) -> bool:
        size = vectors.bytes_of(access.tensor.element)
        steps = (access.offset, plan.column_count, *(access.strides[row] for row in rows))
        return access.strides[along] == 1 and all(step * size % _ALIGNMENT == 0 for step in steps)

    is_one_loop = plan.along_columns and len(plan.columns) == 1 and plan.vector() > 1
    return device.has_tma and is_one_loop and all(is_whole(access) for access in plan.full_reads)


def stage_bytes(plan: RowPlan, cluster: int) -> int:
    """Shared memory of one row, as far as one of so many blocks has it."""
    return plan.column_count // cluster * sum(vectors.bytes_of(access.tensor.element) for access in plan.full_reads)


@dataclass(frozen=True)
class _Piece:
    """What one copy brings: ``columns`` from those of ``vector`` of the first thread on, ``start`` bytes into the stage."""

    access: Access
    vector: int
    columns: int
    start: int

    @property
    def bytes(self) -> int:
        """Size of the copy."""
        return self.columns * vectors.bytes_of(self.access.tensor.element)


class StayingRows(RowKernel):
    """The kernel of mode "staying"; a team is a block or a cluster.  Use: make it, then :meth:`write`.

    Stage s holds rows s, s + stages, … of those that a team has; a barrier for each counts the bytes that arrive.  All
    threads have read a stage when the block has met for the first reduction of its row: then one of them sends for another
    row.  Where tensors start at odd addresses, every thread reads its elements from memory itself.
    """

    def write(self) -> None:
        """Row by row: wait for it, reduce, send for another one meanwhile, store."""
        plan, shape, kernel, team = self.plan, self.shape, self.kernel, self.team
        early = plan.reads_for(reduction.node for reduction in plan.reductions)
        early = [access for access in early if access not in plan.full_reads]
        self._pieces = self._cut()
        with kernel.body():
            self._first = team.first_row()
            rest = kernel.number(team.row_vectors) - self._first
            self._rounds: Number = shape.rows if is_multiple(team.row_vectors, shape.rows) else rest.minimum(shape.rows)
            team.move_to(self._first, exists=True)
            self._common = self._tile(())
            kept = self._keep()
            team.meet(self._send_for_first())

            def one(number: Int) -> None:
                team.count_from(number * len(plan.waves))
                tile = self._tile_of(self._common, self._first + number, exists=True)
                self._receive(tile, number)
                tile.preload([*early, *plan.row_reads], range(shape.count))
                self._reduce_rows([tile], lambda: self._send_for_another(number))
                self._store_results([(tile, None)], [*plan.full_reads, *early, *kept])

            kernel.loop(0, self._rounds, 1, [], one)
        self.team.launch(1)

    def _keep(self) -> list[Access]:
        """Read what is the same for all rows, as far as registers have room for it; what that is."""
        shape = self.shape
        room = shape.values_per_thread - shape.count * shape.vector * len(self.plan.full_reads)
        kept: list[Access] = []
        for access in self.plan.column_reads:
            words = shape.count * shape.vector * max(1, vectors.bytes_of(access.tensor.element) // 4)
            if words <= room:
                kept.append(access)
                room -= words
        self._common.preload(kept, range(shape.count))
        return kept

    # -------------------------------------------------------------------------------------------------------------- stages

    def _send_for_first(self) -> int:
        """Make the barriers and send for the first rows; how many bytes of shared memory that takes."""
        shape, kernel = self.shape, self.kernel
        self._barriers = kernel.offset(kernel.shared(), shape.stages * self._stage_bytes)

        def start() -> None:
            for stage in range(shape.stages):
                mbarrier.initialize_barrier(kernel, self._barrier(kernel.integer(stage)), 1)
            mbarrier.publish_barriers()
            for number in range(min(shape.stages, shape.rows)):
                ahead = kernel.integer(number)
                kernel.when(self._aligned & (ahead < self._rounds), partial(self._send_for, ahead))

        kernel.when(kernel.thread().equals(0), start)
        kernel.barrier()
        return shape.stages * (self._stage_bytes + mbarrier.BARRIER_BYTES)

    def _receive(self, tile: Tile, number: Int) -> None:
        """Wait for the row of a round and tell the tile what it holds."""
        reads = [(access, vector) for access in self.plan.full_reads for vector in range(self.shape.count)]
        starts = [tile.address(access, vector) for access, vector in reads]

        def staged() -> list[list[Any]]:
            mbarrier.wait(self.kernel, self._barrier(number), number // self.shape.stages & 1)
            return [self._staged(access, vector, number) for access, vector in reads]

        def direct() -> list[list[Any]]:
            return [self._direct(access, start) for (access, _), start in zip(reads, starts, strict=True)]

        shapes = [(access.tensor.element, self.shape.vector) for access, _ in reads]
        found = vectors.either(self.kernel, self._aligned, staged, direct, shapes)
        for (access, vector), values in zip(reads, found, strict=True):
            for lane, value in enumerate(values):
                tile.provide(access, (vector, lane), value)

    def _send_for_another(self, number: Int) -> None:
        """When all threads have read the row of a round: another one may come to its stage."""
        later = number + self.shape.stages
        wanted = self._aligned & (later < self._rounds) & self.kernel.thread().equals(0)
        self.kernel.when(wanted, partial(self._send_for, later))

    # -------------------------------------------------------------------------------------------------------------- copies

    def _cut(self) -> list[_Piece]:
        """The copies of a row: one for each input, or one for each of its vectors where the row has a cluster."""
        shape, pieces, start = self.shape, list[_Piece](), 0
        for access in self.plan.full_reads:
            is_shared = shape.cluster > 1
            columns = shape.threads * shape.vector if is_shared else self.plan.column_count
            for vector in range(shape.count if is_shared else 1):
                pieces.append(_Piece(access, vector, columns, start))
                start += pieces[-1].bytes
        return pieces

    def _send_for(self, number: Int) -> None:
        """Let the copy engine bring the row of a round; for the first thread of the block."""
        kernel, barrier = self.kernel, self._barrier(number)
        mbarrier.arrive_expecting(kernel, barrier, self._stage_bytes)
        tile = self._tile_of(self._common, self._first + number, exists=True)
        for piece in self._pieces:
            source = tile.address(piece.access, piece.vector)
            tma.bulk_load(kernel, kernel.offset(self._stage(number), piece.start), source, piece.bytes, barrier)

    def _staged(self, access: Access, vector: int, number: Int) -> list[Any]:
        """A vector of the thread, from shared memory."""
        kernel, shape, element = self.kernel, self.shape, access.tensor.element
        piece = next(p for p in self._pieces if p.access is access and p.vector == (vector if shape.cluster > 1 else 0))
        column = kernel.thread() if shape.cluster > 1 else self.team.inside(vector)
        lanes = min(shape.vector, vectors.elements_per_access(element))
        size = vectors.bytes_of(element)
        start = kernel.offset(self._stage(number), column * (shape.vector * size) + piece.start)
        return [
            value
            for lane in range(0, shape.vector, lanes)
            for value in vectors.load(kernel, element, kernel.offset(start, lane * size), lanes, cache=Cache.PINNED)
        ]

    def _direct(self, access: Access, start: Any) -> list[Any]:
        """The same from where it comes."""
        kernel, element = self.kernel, access.tensor.element
        kind = vectors.storage_type(element)
        return [vectors.load(kernel, element, kernel.offset(start, lane, kind))[0] for lane in range(self.shape.vector)]

    @property
    def _stage_bytes(self) -> int:
        return stage_bytes(self.plan, self.shape.cluster)

    @property
    def _aligned(self) -> Bool:
        """Do all tensors start at multiples of 16 bytes?"""
        aligned = self.team.aligned
        assert aligned is not None, "rows that are brought are of vectors"
        return aligned

    def _stage(self, number: Int) -> Any:
        stage = number % self.shape.stages
        return self.kernel.offset(self.kernel.shared(), stage * self._stage_bytes)

    def _barrier(self, number: Int) -> Any:
        return self.kernel.offset(self._barriers, number % self.shape.stages * mbarrier.BARRIER_BYTES)
