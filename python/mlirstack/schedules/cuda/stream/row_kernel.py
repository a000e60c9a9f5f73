"""The kernels of reductions: rows held in registers, or read once per pass, or shared by blocks that leave partial results.

What a thread has is :mod:`.row_team`'s business; here is what it does with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.reduce import Combine
from mlirstack.schedules.cuda.instructions.vectors import Cache
from mlirstack.schedules.cuda.stream.loops import Access
from mlirstack.schedules.cuda.stream.reductions import Reduction
from mlirstack.schedules.cuda.stream.row_plan import RowPlan
from mlirstack.schedules.cuda.stream.row_team import RowTeam, Shape
from mlirstack.schedules.cuda.stream.tile import Tile, outputs_of
from mlirstack.schedules.cuda.values import Bool, Int, Number

TileOfRow = tuple[Tile, Bool | None]  # values of a row, and whether there is such a row


class RowKernel:
    """One kernel over the rows of a plan.  Use: make it, then call one of the ``write_*`` methods."""

    def __init__(self, function: Any, plan: RowPlan, shape: Shape, accesses: Sequence[Access], *, suffix: str = "") -> None:
        self.plan, self.shape = plan, shape
        self.team = RowTeam(function, plan, shape, accesses, suffix)
        self.kernel = self.team.kernel
        self._cache = Cache.STREAM if shape.stream else Cache.NO_L1 if shape.past_l1 else Cache.NORMAL

    # ------------------------------------------------------------------------------------------------------- whole kernels

    def write_resident(self) -> None:
        """Every thread holds its part of the rows in registers; memory is read once."""
        plan, team, shape = self.plan, self.team, self.shape
        early = plan.reads_for(reduction.node for reduction in plan.reductions)
        with self.kernel.body():
            first = team.first_row()
            team.move_to(first)
            common = self._tile(plan.full_reads)
            if shape.rows == 1:
                tiles = [(common, team.row_valid)]
            else:
                common.preload([access for access in early if access in plan.column_reads], range(shape.count))
                numbers = [first + number * shape.teams for number in range(shape.rows)]
                tiles = [(self._tile_of(common, row), team.row_valid) for row in numbers]
            for tile, _ in tiles:
                tile.preload([*early, *plan.row_reads], range(shape.count))
            team.meet()
            self._reduce_rows([tile for tile, _ in tiles])
            self._store_results(tiles, early, common if shape.rows > 1 else None)
        team.launch(1)

    def write_looped(self) -> None:
        """One pass over the columns per wave of reductions, and one for results that differ from column to column."""
        plan = self.plan
        with self.kernel.body():
            self.team.place()
            tile = self._tile(plan.full_reads if len(plan.waves) == 1 and not plan.full_results else ())
            tile.preload(plan.row_reads, [0])
            self.team.meet()
            self._settle(tile, 0)
            for number, wave in enumerate(plan.waves):
                self._reduce([tile], wave, [self._pass(tile, wave, 0, self.team.column_vectors)])
                self._settle(tile, number + 1)
            self._store_rows(tile, self.team.row_valid)
            if plan.full_results:
                self._final_pass(tile)
        self.team.launch(1)

    def write_partial(self, partials: Sequence[Any]) -> None:
        """One of ``splits`` parts of the columns per block; memrefs take the partial results, in order of the scalars."""
        plan, splits = self.plan, self.shape.splits
        (wave,) = plan.waves
        each = -(-self.team.column_vectors // splits)
        pointers = [self.kernel.pointer(memref) for memref in partials]
        with self.kernel.body():
            self.team.place()
            tile = self._tile(plan.full_reads)
            tile.preload(plan.row_reads, [0])
            self.team.meet()
            part = self.team.wide(self.kernel.block_index("y"))
            begin = part * each
            total = self._across(
                self._merge(wave), self._pass(tile, wave, begin, (begin + each).minimum(self.team.column_vectors))
            )
            self._store_partials(pointers, part, total)
        self.team.launch(splits)

    def write_final(self, partials: Sequence[Any], splits: int) -> None:
        """Rows from the partial results of ``splits`` parts."""
        plan, count = self.plan, self.shape.count
        (wave,) = plan.waves
        pointers = [self.kernel.pointer(memref) for memref in partials]
        with self.kernel.body():
            self.team.place()
            tile = self._tile(())
            tile.preload(plan.row_reads, [0])
            self.team.meet()
            terms = self._load_partials(tile, wave, pointers, splits, count)
            self._reduce([tile], wave, [terms])
            self._store_rows(tile, self.team.row_valid)
        self.team.launch(1)

    # ------------------------------------------------------------------------------------------------------------- threads

    def _tile(self, streamed: Sequence[Access]) -> Tile:
        """The thread's values, of vectors counted from the first column."""
        team, shape = self.team, self.shape
        caches = {access.tensor: self._cache for access in streamed} if self._cache is not Cache.NORMAL else {}
        clamp = team.column_vectors % (shape.count * shape.team) != 0
        return Tile(self.kernel, team.nest, team.bindings, team.indices(0, clamp=clamp), caches, team.aligned)

    def _tile_of(self, common: Tile, row: Int, *, exists: bool = False) -> Tile:
        """The values in a row, which the team works on from now on; what is the same for all rows ``common`` may know."""
        shape, team = self.shape, self.team
        team.move_to(row, exists=exists)
        clamp = team.column_vectors % (shape.count * shape.team) != 0
        return common.inner(team.indices(0, clamp=clamp), moved=self._moved)

    @property
    def _moved(self) -> frozenset[int]:
        """Numbers of the loops that are rows."""
        return frozenset(range(len(self.plan.rows)))

    # ---------------------------------------------------------------------------------------------------------- reductions

    def _reduce_rows(self, tiles: Sequence[Tile], after_first: Callable[[], None] | None = None) -> None:
        """All reductions of rows whose columns the team's registers hold.  ``after_first`` follows the first wave."""
        valid = self._valid()
        for number, wave in enumerate(self.plan.waves):
            self._reduce(tiles, wave, [[self._terms(tile, reduction, valid) for reduction in wave] for tile in tiles])
            if number == 0 and after_first is not None:
                after_first()

    def _valid(self) -> list[Bool | None]:
        """Which of the thread's vectors are inside of the row."""
        return [
            self.team.valid(self.team.column(0, vector), self.team.column_vectors, vector)
            for vector in range(self.shape.count)
        ]

    def _terms(self, tile: Tile, reduction: Reduction, valid: Sequence[Bool | None]) -> list[list[Any]]:
        """A thread's partial results of one reduction, one per row that it works on."""
        node = reduction.node
        needs_index = "linalg.index" in node.body_ops()
        partial = []
        for row_lane in range(self.team.row_lanes):
            parts = []
            neutral = self._neutral(tile, reduction, row_lane)
            for vector, ok in enumerate(valid):
                for column_lane in range(self.team.column_lanes):
                    point = (vector, row_lane + column_lane)
                    indices = tile.index_values(point, node) if needs_index else ()
                    term = reduction.term(tile.operands(node, point), indices, self.team.bindings.forms(node))
                    if ok is not None:
                        term = [ok.select(value, other) for value, other in zip(term, neutral, strict=True)]
                    parts.append(term)
            partial.append(reduction.fold(parts))
        return partial

    def _pass(self, tile: Tile, wave: Sequence[Reduction], begin: Number, end: Number) -> list[list[list[Any]]]:
        """Partial results of a wave over the columns from ``begin`` to ``end``: per reduction, per row of the thread."""
        kernel, step = self.kernel, self.shape.count * self.shape.team
        accumulators = [
            list(self._neutral(tile, reduction, lane)) for reduction in wave for lane in range(self.team.row_lanes)
        ]
        widths = [len(values) for values in accumulators]

        def some(position: Number, end: Number | None, carried: Sequence[Any]) -> list[Any]:
            inner = tile.inner(self.team.indices(position, clamp=end is not None))
            inner.preload(self.plan.reads_for(reduction.node for reduction in wave), range(self.shape.count))
            valid: list[Bool | None] = [None] * self.shape.count
            if end is not None:
                valid = [self.team.column(position, vector) < end for vector in range(self.shape.count)]
            rest = iter(carried)
            old = [[next(rest) for _ in range(width)] for width in widths]
            new = [part for reduction in wave for part in self._terms(inner, reduction, valid)]
            by_row = [reduction for reduction in wave for _ in range(self.team.row_lanes)]
            pairs = zip(by_row, old, new, strict=True)
            return [value for reduction, a, b in pairs for value in reduction.append(a, b)]

        carried = [value for values in accumulators for value in values]
        if isinstance(begin, int) and isinstance(end, int):
            whole: Number = end - end % step
            has_rest = end % step != 0
        else:
            length = end - begin
            whole = begin + length // step * step
            has_rest = True
        low, high = self._number(begin), self._number(whole)
        carried = kernel.loop(low, high, self._number(step), carried, lambda position, *values: some(position, None, values))
        if has_rest:
            carried = some(high, end, carried)
        rest = iter(carried)
        parts = [[next(rest) for _ in range(width)] for width in widths]
        return [parts[start : start + self.team.row_lanes] for start in range(0, len(parts), self.team.row_lanes)]

    def _neutral(self, tile: Tile, reduction: Reduction, lane: int) -> list[Any]:
        return reduction.neutral(self.kernel, self._start(tile, reduction, lane))

    def _start(self, tile: Tile, reduction: Reduction, lane: int) -> list[Any]:
        """What the outputs of a reduction hold before it."""
        node = reduction.node
        return [tile.initial(node, position, (0, lane)) for position in range(len(node.outputs))]

    def _reduce(
        self, tiles: Sequence[Tile], wave: Sequence[Reduction], partial: Sequence[Sequence[Sequence[list[Any]]]]
    ) -> None:
        """Combine the members' partial results of a wave, of all tiles at once, and tell the tiles the outputs."""
        several = [*wave] * len(tiles)
        total = iter(self._across(self._merge(several), [part for parts in partial for part in parts]))
        for tile in tiles:
            for reduction in wave:
                for lane, values in enumerate(next(total)):
                    outputs = reduction.finish(values, self._start(tile, reduction, lane))
                    for tensor, value in zip(outputs_of(reduction.node), outputs, strict=True):
                        tile.set(tensor, (0, lane), value)

    def _merge(self, wave: Sequence[Reduction]) -> Combine:
        """Combines two lists of scalars: all rows of all reductions of a wave, one after the other."""

        def merge(a: list[Any], b: list[Any]) -> list[Any]:
            merged: list[Any] = []
            for reduction in wave:
                width = len(reduction.types)
                for _ in range(self.team.row_lanes):
                    start = len(merged)
                    merged += reduction.merge(a[start : start + width], b[start : start + width])
            return merged

        return merge

    def _across(self, merge: Combine, partial: Sequence[Sequence[list[Any]]]) -> list[list[list[Any]]]:
        """Combined over the members of a team; every member gets the result."""
        values = [value for rows in partial for row in rows for value in row]
        if self.shape.team > 1:
            values = self.team.combine(values, merge)
        rest = iter(values)
        return [[[next(rest) for _ in row] for row in rows] for rows in partial]

    # ------------------------------------------------------------------------------------------------------------- results

    def _settle(self, tile: Tile, waves: int) -> None:
        """Compute what is the same for all columns and known after so many waves, outside of the loops that use it."""
        done = {reduction.node for wave in self.plan.waves[:waves] for reduction in wave}
        for node in self.plan.graph.nodes:
            is_row = not any(self.plan.space.loops_of(t) & self.plan.column_members for t in outputs_of(node))
            if is_row and not node.reductions and self.plan.needs[node] <= done:
                for lane in range(self.team.row_lanes):
                    for tensor in outputs_of(node):
                        tile.at(tensor, (0, lane))

    def _store_results(self, tiles: Sequence[TileOfRow], early: Sequence[Access], common: Tile | None = None) -> None:
        """Results of rows whose columns the team's registers hold; ``early``: what their tiles have been told already.

        What differs from column to column comes as many vectors at a time as registers have room for what it needs; what is
        the same for all rows is read once, by the tile ``common`` of several.
        """
        for tile, row_valid in tiles:
            self._store_rows(tile, row_valid)
        plan, shape, valid = self.plan, self.shape, self._valid()
        late = [access for access in plan.result_reads() if access not in early]
        words = shape.vector * sum(max(1, vectors.bytes_of(access.tensor.element) // 4) for access in late)
        held = shape.vector * shape.count * max(1, len(early)) * len(tiles)
        together = max(1, (shape.values_per_thread - held) // max(1, words))
        for start in range(0, len(valid), together):
            numbers = range(start, min(start + together, len(valid)))
            if common is not None:
                common.preload([access for access in late if access in plan.column_reads], numbers)
            for tile, row_valid in tiles:
                if common is not None:
                    tile.learn(common, self._moved)
                tile.preload(late, numbers)
                for vector in numbers:
                    for tensor in plan.full_results:
                        tile.store(tensor, vector, self._cache, [valid[vector], row_valid])

    def _store_rows(self, tile: Tile, row_valid: Bool | None) -> None:
        """Results that are the same for all columns."""
        first = self.team.member.equals(0) if self.shape.team > 1 else None
        for tensor in self.plan.results:
            if tensor not in self.plan.full_results:
                tile.store(tensor, 0, guards=[first, row_valid], unguarded=self.team.nest.apart)

    def _final_pass(self, tile: Tile) -> None:
        """Results that differ from column to column."""
        kernel, count, end = self.kernel, self.shape.count, self.team.column_vectors
        step = count * self.shape.team
        whole = end - end % step

        def some(position: Number, *, is_rest: bool) -> None:
            inner = tile.inner(self.team.indices(position, clamp=is_rest))
            inner.preload(self.plan.result_reads(), range(count))
            for vector in range(count):
                ok = self.team.column(position, vector) < end if is_rest else None
                for tensor in self.plan.full_results:
                    inner.store(tensor, vector, self._cache, [ok, self.team.row_valid])

        low, high, by = (self._number(number) for number in (0, whole, step))
        kernel.loop(low, high, by, [], lambda position: some(position, is_rest=False))
        if end % step:
            some(high, is_rest=True)

    # ------------------------------------------------------------------------------------------------------------ partials

    def _store_partials(self, pointers: Sequence[Any], part: Int, total: Sequence[Sequence[list[Any]]]) -> None:
        kernel, lanes = self.kernel, self.team.row_lanes

        def write() -> None:
            for lane in range(lanes):
                place = self._partial_place(self.team.row * lanes + lane, part, self.shape.splits)
                for pointer, value in zip(pointers, (value for rows in total for value in rows[lane]), strict=True):
                    vectors.store(kernel, [value], kernel.offset(pointer, place, vectors.storage_type(value.type)))

        first = self.team.member.equals(0)
        kernel.when(first if self.team.row_valid is None else first & self.team.row_valid, write)

    def _load_partials(
        self, tile: Tile, wave: Sequence[Reduction], pointers: Sequence[Any], splits: int, count: int
    ) -> list[list[list[Any]]]:
        kernel, found = self.kernel, []
        rest = iter(pointers)
        for reduction in wave:
            mine = [next(rest) for _ in reduction.types]
            neutral = self._neutral(tile, reduction, 0)
            parts = []
            for vector in range(count):
                part = self.team.column(0, vector)
                ok = self.team.valid(part, splits, vector)
                place = self._partial_place(self.team.row, part if ok is None else part.minimum(splits - 1), splits)
                values = [
                    vectors.load(kernel, kind, kernel.offset(pointer, place, vectors.storage_type(kind)))[0]
                    for pointer, kind in zip(mine, reduction.types, strict=True)
                ]
                parts.append(values if ok is None else [ok.select(v, n) for v, n in zip(values, neutral, strict=True)])
            found.append([reduction.fold(parts)])
        return found

    def _partial_place(self, row: Int, part: Int, splits: int) -> Int:
        """Where a partial result lies, so that neighbouring threads of the last kernel read neighbours."""
        return row * splits + part if self.plan.along_columns else part * self.plan.row_count + row

    def _number(self, number: Number) -> Int:
        if isinstance(number, Int):
            return number
        return self.kernel.integer(number, self.kernel.i64 if self.plan.is_large else self.kernel.i32)


def allocate_partials(function: Any, plan: RowPlan, splits: int) -> list[Any]:
    """Memrefs of rows x splits elements in the host function, one for each scalar of the only wave of reductions."""
    (wave,) = plan.waves
    with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]), function.location:
        return [
            dialect("memref").AllocOp(ir.MemRefType.get([plan.row_count * splits], kind), [], []).result
            for reduction in wave
            for kind in reduction.types
        ]
