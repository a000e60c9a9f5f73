"""Rows that pass through shared memory: blocks stay for many rows, and fetch the next ones while they reduce one.

Every thread copies what it will read itself (``cp.async``), so a row needs no barrier beyond those of its reductions.  What
is the same for all rows, such as the weights of a norm, is read once and stays in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.tensor_core import commit_copies, copy_async, wait_for_copies
from mlirstack.schedules.cuda.stream.loops import Access
from mlirstack.schedules.cuda.stream.row_kernel import RowKernel
from mlirstack.schedules.cuda.stream.row_plan import RowPlan
from mlirstack.schedules.cuda.stream.row_team import Shape
from mlirstack.schedules.cuda.stream.tile import Tile
from mlirstack.schedules.cuda.values import Int

_COPY_BYTES = (4, 8, 16)  # what one asynchronous copy may move


def can_stay(plan: RowPlan, vector: int) -> bool:
    """Can the rows of a plan pass through shared memory, in vectors of so many elements?"""
    along = plan.loops[plan.lane_loop].members[-1]
    return plan.along_columns and all(
        access.strides[along] == 1 and _piece(access, vector) * vectors.bytes_of(access.tensor.element) in _COPY_BYTES
        for access in plan.full_reads
    )


def stage_bytes(plan: RowPlan, shape: Shape) -> int:
    """Shared memory of one row, as far as a block has it."""
    each = sum(vectors.bytes_of(access.tensor.element) for access in plan.full_reads)
    return each * shape.vector * shape.count * shape.threads


def _piece(access: Access, vector: int) -> int:
    """Elements of a vector that one copy moves."""
    return min(vector, vectors.elements_per_access(access.tensor.element))


@dataclass(frozen=True)
class _Slot:
    """A place in a stage: ``start`` bytes from its beginning, one piece for each thread."""

    access: Access
    vector: int
    first_lane: int
    lanes: int
    start: int

    @property
    def bytes(self) -> int:
        """Size of one thread's piece."""
        return self.lanes * vectors.bytes_of(self.access.tensor.element)


class StayingRows(RowKernel):
    """The kernel of mode "staying".  Use: make it, then :meth:`write`.

    Stage s holds rows s, s + stages, … of those that a team has.  The copy of a row goes to the stage that was read in the
    round before: the reductions in between have waited for what was read there.
    """

    def write(self) -> None:
        """Fetch ``stages - 1`` rows; then, row by row: wait for one, fetch another, reduce, store."""
        plan, shape, kernel, team = self.plan, self.shape, self.kernel, self.team
        teams = shape.blocks // shape.cluster * shape.teams
        assert isinstance(team.row_vectors, int), "rows are counted before the kernel runs"
        rounds = -(-team.row_vectors // teams)
        self._is_ragged = team.row_vectors % teams != 0
        self._slots = self._layout()
        needed = plan.reads_for(reduction.node for reduction in plan.reductions)
        with kernel.body():
            first = team.first_row()
            self._base = kernel.shared()
            team.move_to(first, is_ragged=self._is_ragged)
            fixed = self._fixed()
            for ahead in range(min(shape.stages - 1, rounds)):
                self._fetch(fixed, first + ahead * teams, kernel.integer(ahead))
                commit_copies()
            for _ in range(rounds, shape.stages - 1):
                commit_copies()  # an empty group: the counting below stays the same
            team.meet(shape.stages * self._stage_bytes)

            def one(number: Int) -> None:
                team.count_from(number * len(plan.waves))
                row = first + number * teams
                wait_for_copies(shape.stages - 2)
                team.move_to(row, is_ragged=self._is_ragged)
                tile = self._moved(fixed)
                self._read(tile, number % shape.stages)
                later = number + (shape.stages - 1)
                kernel.when(
                    later < rounds, lambda: self._fetch(fixed, row + (shape.stages - 1) * teams, later % shape.stages)
                )
                commit_copies()
                team.move_to(row, is_ragged=self._is_ragged)
                early = [access for access in needed if access not in plan.full_reads]
                tile.preload([*early, *plan.row_reads], range(shape.count))
                self._whole_row(tile, [*plan.full_reads, *early, *self._kept])

            kernel.loop(0, rounds, 1, [], one)
        self.team.launch(1)

    # ------------------------------------------------------------------------------------------------------------- columns

    def _fixed(self) -> Tile:
        """What is the same for all rows, read as far as registers have room for it."""
        tile, shape = self._tile(()), self.shape
        room = shape.values_per_thread - shape.count * shape.vector * len(self.plan.full_reads)
        kept: list[Access] = []
        for access in self._same_for_all_rows():
            words = shape.count * shape.vector * max(1, vectors.bytes_of(access.tensor.element) // 4)
            if words <= room:
                kept.append(access)
                room -= words
        tile.preload(kept, range(shape.count))
        self._kept = kept
        return tile

    def _same_for_all_rows(self) -> list[Access]:
        rows = [member for loop in self.plan.rows for member in loop.members]
        return [
            access
            for access in self.plan.reads
            if self.plan.has_columns(access) and not any(access.strides[row] for row in rows)
        ]

    def _moved(self, tile: Tile) -> Tile:
        """The tile of the row that the team works on now."""
        shape, team = self.shape, self.team
        clamp = team.column_vectors % (shape.count * shape.team) != 0
        return tile.inner(team.indices(0, clamp=clamp), moved=frozenset(range(len(self.plan.rows))))

    # -------------------------------------------------------------------------------------------------------------- stages

    @property
    def _stage_bytes(self) -> int:
        return stage_bytes(self.plan, self.shape)

    def _layout(self) -> list[_Slot]:
        slots, start = [], 0
        for access in self.plan.full_reads:
            lanes = _piece(access, self.shape.vector)
            for vector in range(self.shape.count):
                for first_lane in range(0, self.shape.vector, lanes):
                    slot = _Slot(access, vector, first_lane, lanes, start)
                    slots.append(slot)
                    start += slot.bytes * self.shape.threads
        return slots

    def _place(self, slot: _Slot, stage: Int) -> Any:
        thread = self.kernel.thread()
        return self.kernel.offset(self._base, stage * self._stage_bytes + (thread * slot.bytes + slot.start))

    def _fetch(self, fixed: Tile, row: Int, stage: Int) -> None:
        """Start to copy a row to a stage; element by element where tensors start at odd addresses."""
        kernel = self.kernel
        self.team.move_to(row, is_ragged=self._is_ragged)
        tile = self._moved(fixed)
        starts = [tile.address(slot.access, slot.vector) for slot in self._slots]
        pairs = [(slot, start, self._place(slot, stage)) for slot, start in zip(self._slots, starts, strict=True)]

        def source(slot: _Slot, start: Any, lane: int = 0) -> Any:
            return kernel.offset(start, slot.first_lane + lane, vectors.storage_type(slot.access.tensor.element))

        def whole() -> None:
            for slot, start, target in pairs:
                copy_async(kernel, target, source(slot, start), slot.bytes)

        def single() -> None:
            for slot, start, target in pairs:
                element = slot.access.tensor.element
                values = [vectors.load(kernel, element, source(slot, start, lane))[0] for lane in range(slot.lanes)]
                vectors.store(kernel, values, target)

        if self.team.aligned is None:
            whole()
        else:
            kernel.either(self.team.aligned, whole, single)

    def _read(self, tile: Tile, stage: Int) -> None:
        """Tell the tile what a stage holds."""
        for slot in self._slots:
            values = vectors.load(self.kernel, slot.access.tensor.element, self._place(slot, stage), slot.lanes)
            for lane, value in enumerate(values):
                tile.provide(slot.access, (slot.vector, slot.first_lane + lane), value)
