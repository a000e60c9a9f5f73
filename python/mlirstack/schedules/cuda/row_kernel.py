"""The kernels of reductions: a team of threads per row, rows held in registers or read once per pass.

Threads of a block are teams; a team's members share the columns of its rows.  Where neighbours in memory lie in one row
(``along_columns``), vectors lie along the columns and a team has one row.  Where they lie in one column, vectors lie along
the rows: a team has as many rows as a vector has lanes, and its members are threads far apart, so that a warp reads
neighbouring rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda import vectors
from mlirstack.schedules.cuda.graph import Tensor
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.loops import Access, split_index
from mlirstack.schedules.cuda.reduce import WARP, BlockReducer, across_lanes
from mlirstack.schedules.cuda.reductions import Reduction
from mlirstack.schedules.cuda.row_plan import RowPlan
from mlirstack.schedules.cuda.tile import Bindings, Nest, Tile, outputs_of
from mlirstack.schedules.cuda.values import Bool, Int, Number
from mlirstack.schedules.cuda.vectors import Cache

SCHEDULE = "rows"


@dataclass(frozen=True)
class Shape:
    """Sizes of a kernel.

    ``threads`` of a block, ``team`` members of a team, ``vector`` elements of a vector, ``count`` vectors that a thread has
    in flight, ``splits`` blocks that share the columns of a row; ``stream``: past the caches.
    """

    threads: int
    team: int
    vector: int
    count: int
    splits: int = 1
    stream: bool = False

    @property
    def teams(self) -> int:
        """Teams of a block."""
        return self.threads // self.team


class RowKernel:
    """One kernel over the rows of a plan.  Use: make it, then call one of the ``write_*`` methods."""

    def __init__(self, function: Any, plan: RowPlan, shape: Shape, accesses: Sequence[Access], *, suffix: str = "") -> None:
        self.plan, self.shape, self.accesses = plan, shape, accesses
        self.kernel = Kernel(function, threads=shape.threads, schedule=SCHEDULE, suffix=suffix)
        self.bindings = Bindings(self.kernel, plan.graph, (access.tensor for access in accesses), plan.results)
        self.row_lanes = 1 if plan.along_columns else shape.vector
        self.column_lanes = shape.vector if plan.along_columns else 1
        self.row_vectors = plan.row_count // self.row_lanes
        self.column_vectors = plan.column_count // self.column_lanes
        apart = frozenset(range(len(plan.rows), len(plan.loops)))
        self.nest = Nest(plan.space, plan.loops, plan.lane_loop, shape.vector, apart)
        self._reducer: BlockReducer | None = None
        self._cache = Cache.STREAM if shape.stream else Cache.NORMAL
        self._scalars = self.row_lanes * max(sum(len(reduction.types) for reduction in wave) for wave in plan.waves)

    @property
    def row_blocks(self) -> int:
        """Blocks that it takes for all rows."""
        return -(-self.row_vectors // self.shape.teams)

    # ------------------------------------------------------------------------------------------------------- whole kernels

    def write_resident(self) -> None:
        """Every thread holds its part of the rows in registers; memory is read once."""
        plan, count = self.plan, self.shape.count
        with self.kernel.body():
            self._place_threads()
            tile = self._tile(plan.full_reads)
            tile.preload([*plan.reads_for(reduction.node for reduction in plan.reductions), *plan.row_reads], count)
            valid = [self._valid(self._column(0, vector), self.column_vectors, vector) for vector in range(count)]
            for wave in plan.waves:
                terms = [self._terms(tile, reduction, valid) for reduction in wave]
                self._reduce(tile, wave, terms)
            tile.preload(plan.result_reads(), count)
            self._store_all(tile, valid)
        self._launch(1)

    def write_looped(self) -> None:
        """One pass over the columns per wave of reductions, and one for results that differ from column to column."""
        plan = self.plan
        with self.kernel.body():
            self._place_threads()
            tile = self._tile(plan.full_reads if len(plan.waves) == 1 and not plan.full_results else ())
            tile.preload(plan.row_reads, 1)
            self._settle(tile, 0)
            for number, wave in enumerate(plan.waves):
                self._reduce(tile, wave, self._pass(tile, wave, 0, self.column_vectors))
                self._settle(tile, number + 1)
            self._store_rows(tile)
            if plan.full_results:
                self._final_pass(tile)
        self._launch(1)

    def write_partial(self, partials: Sequence[Any]) -> None:
        """One of ``splits`` parts of the columns per block; memrefs take the partial results, in order of the scalars."""
        plan, splits = self.plan, self.shape.splits
        (wave,) = plan.waves
        each = -(-self.column_vectors // splits)
        pointers = [self.kernel.pointer(memref) for memref in partials]
        with self.kernel.body():
            self._place_threads()
            tile = self._tile(plan.full_reads)
            tile.preload(plan.row_reads, 1)
            part = self._wide(self.kernel.block_index("y"))
            begin = part * each
            total = self._across(
                self._merge(wave), self._pass(tile, wave, begin, (begin + each).minimum(self.column_vectors))
            )
            self._store_partials(pointers, part, total)
        self._launch(splits)

    def write_final(self, partials: Sequence[Any], splits: int) -> None:
        """Rows from the partial results of ``splits`` parts."""
        plan, count = self.plan, self.shape.count
        (wave,) = plan.waves
        pointers = [self.kernel.pointer(memref) for memref in partials]
        with self.kernel.body():
            self._place_threads()
            tile = self._tile(())
            tile.preload(plan.row_reads, 1)
            terms = self._load_partials(tile, wave, pointers, splits, count)
            self._reduce(tile, wave, terms)
            self._store_rows(tile)
        self._launch(1)

    # ------------------------------------------------------------------------------------------------------------- threads

    def _place_threads(self) -> None:
        """Which rows and which columns this thread has."""
        kernel, shape = self.kernel, self.shape
        thread = kernel.thread()
        if self.plan.along_columns:
            team, self.member = thread // shape.team, thread % shape.team
        else:
            team, self.member = thread % shape.teams, thread // shape.teams
        row = kernel.block_index() if shape.teams == 1 else kernel.block_index() * shape.teams + team
        self.row_valid: Bool | None = None
        if self.row_vectors % shape.teams:
            # Threads without a row work on the last one, and store nothing.
            self.row_valid = row < self.row_vectors
            row = row.minimum(self.row_vectors - 1)
        self.row = self._wide(row)
        sizes = [loop.size for loop in self.plan.rows]
        self.row_indices = self._split(self.row, sizes, self.row_lanes)
        self.aligned = self._alignment()

    def _alignment(self) -> Bool | None:
        """Do all tensors start at multiples of 16 bytes?  None where it does not matter."""
        if self.shape.vector == 1:
            return None
        along = self.plan.loops[self.plan.lane_loop].members[-1]
        contiguous = [access for access in self.accesses if access.strides[along] == 1]
        pointers = [self.bindings.pointer(access.tensor) for access in contiguous]
        return vectors.aligned(self.kernel, list(dict.fromkeys(pointers))) if pointers else None

    def _column(self, base: Number, vector: int) -> Int:
        """Number of a thread's column vector, counted from ``base``."""
        member = self._wide(self.member)
        return member + (
            vector * self.shape.team if isinstance(base, int) and base == 0 else base + vector * self.shape.team
        )

    def _indices(self, base: Number, *, clamp: bool) -> Callable[[int], Sequence[Int]]:
        """Indices of the nest's loops, of a thread's vectors counted from ``base``."""
        sizes = [loop.size for loop in self.plan.columns]

        def indices(vector: int) -> Sequence[Int]:
            column = self._column(base, vector)
            is_inside = isinstance(base, int) and base + (vector + 1) * self.shape.team <= self.column_vectors
            if clamp and not is_inside:
                column = column.minimum(self.column_vectors - 1)
            return [*self.row_indices, *self._split(column, sizes, self.column_lanes)]

        return indices

    def _valid(self, column: Int, end: Number, vector: int) -> Bool | None:
        """Is the thread's column vector below ``end``?  None where all threads' are."""
        if isinstance(end, int) and (vector + 1) * self.shape.team <= end:
            return None
        return column < end

    @staticmethod
    def _split(number: Int, sizes: Sequence[int], lanes: int) -> list[Int]:
        if not sizes:
            return []
        *outer, inner = split_index(number, [*sizes[:-1], sizes[-1] // lanes])
        return [*outer, inner * lanes]

    def _tile(self, streamed: Sequence[Access]) -> Tile:
        caches = {access.tensor: self._cache for access in streamed} if self.shape.stream else {}
        clamp = self.column_vectors % (self.shape.count * self.shape.team) != 0
        return Tile(self.kernel, self.nest, self.bindings, self._indices(0, clamp=clamp), caches, self.aligned)

    def _wide(self, number: Int) -> Int:
        return number.wide() if self.plan.is_large else number

    def _launch(self, splits: int) -> None:
        shape, shared = self.shape, 0
        if not self.plan.along_columns and shape.team > 1:
            shared = shape.threads * 8 * self._scalars
        elif self._reducer is not None:
            shared = BlockReducer.scratch_bytes(shape.threads, self._scalars)
        self.kernel.launch((self.row_blocks, splits), shared_bytes=shared)

    # ---------------------------------------------------------------------------------------------------------- reductions

    def _terms(self, tile: Tile, reduction: Reduction, valid: Sequence[Bool | None]) -> list[list[Any]]:
        """A thread's partial results of one reduction, one per row that it works on."""
        node = reduction.node
        needs_index = "linalg.index" in node.body_ops()
        partial = []
        for row_lane in range(self.row_lanes):
            parts = []
            neutral = self._neutral(tile, reduction, row_lane)
            for vector, ok in enumerate(valid):
                for column_lane in range(self.column_lanes):
                    point = (vector, row_lane + column_lane)
                    indices = tile.index_values(point, node) if needs_index else ()
                    term = reduction.term(tile.operands(node, point), indices, self.bindings.forms(node))
                    if ok is not None:
                        term = [ok.select(value, other) for value, other in zip(term, neutral, strict=True)]
                    parts.append(term)
            partial.append(reduction.fold(parts))
        return partial

    def _pass(self, tile: Tile, wave: Sequence[Reduction], begin: Number, end: Number) -> list[list[list[Any]]]:
        """Partial results of a wave over the columns from ``begin`` to ``end``: per reduction, per row of the thread."""
        kernel, step = self.kernel, self.shape.count * self.shape.team
        accumulators = [list(self._neutral(tile, reduction, lane)) for reduction in wave for lane in range(self.row_lanes)]
        widths = [len(values) for values in accumulators]

        def some(position: Number, end: Number | None, carried: Sequence[Any]) -> list[Any]:
            inner = tile.inner(self._indices(position, clamp=end is not None))
            inner.preload(self.plan.reads_for(reduction.node for reduction in wave), self.shape.count)
            valid: list[Bool | None] = [None] * self.shape.count
            if end is not None:
                valid = [self._column(position, vector) < end for vector in range(self.shape.count)]
            rest = iter(carried)
            old = [[next(rest) for _ in range(width)] for width in widths]
            new = [part for reduction in wave for part in self._terms(inner, reduction, valid)]
            by_row = [reduction for reduction in wave for _ in range(self.row_lanes)]
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
        return [parts[start : start + self.row_lanes] for start in range(0, len(parts), self.row_lanes)]

    def _neutral(self, tile: Tile, reduction: Reduction, lane: int) -> list[Any]:
        return reduction.neutral(self.kernel, self._start(tile, reduction, lane))

    def _start(self, tile: Tile, reduction: Reduction, lane: int) -> list[Any]:
        """What the outputs of a reduction hold before it."""
        node = reduction.node
        return [tile.initial(node, position, (0, lane)) for position in range(len(node.outputs))]

    def _reduce(self, tile: Tile, wave: Sequence[Reduction], partial: Sequence[Sequence[list[Any]]]) -> None:
        """Combine the members' partial results of a wave, and tell the tile the outputs."""
        total = self._across(self._merge(wave), partial)
        for reduction, rows in zip(wave, total, strict=True):
            for lane, values in enumerate(rows):
                outputs = reduction.finish(values, self._start(tile, reduction, lane))
                for tensor, value in zip(outputs_of(reduction.node), outputs, strict=True):
                    tile.set(tensor, (0, lane), value)

    def _merge(self, wave: Sequence[Reduction]) -> Callable[[list[Any], list[Any]], list[Any]]:
        """Combines two lists of scalars: all rows of all reductions of a wave, one after the other."""

        def merge(a: list[Any], b: list[Any]) -> list[Any]:
            merged: list[Any] = []
            for reduction in wave:
                width = len(reduction.types)
                for _ in range(self.row_lanes):
                    start = len(merged)
                    merged += reduction.merge(a[start : start + width], b[start : start + width])
            return merged

        return merge

    def _across(
        self, merge: Callable[[list[Any], list[Any]], list[Any]], partial: Sequence[Sequence[list[Any]]]
    ) -> list[list[list[Any]]]:
        """Combined over the members of a team; every member gets the result."""
        values = [value for rows in partial for row in rows for value in row]
        if self.shape.team > 1:
            values = self._exchange(values, merge)
        rest = iter(values)
        return [[[next(rest) for _ in row] for row in rows] for rows in partial]

    def _exchange(self, values: list[Any], merge: Callable[[list[Any], list[Any]], list[Any]]) -> list[Any]:
        kernel, shape = self.kernel, self.shape
        if not self.plan.along_columns:
            return self._exchange_far(values, merge)
        if shape.team <= WARP:
            return across_lanes(kernel, values, merge, shape.team)
        assert shape.team == shape.threads, "a team is a part of a warp, or the block"
        if self._reducer is None:
            self._reducer = BlockReducer(kernel, kernel.shared(), self._scalars)
        return self._reducer(values, merge)

    def _exchange_far(self, values: list[Any], merge: Callable[[list[Any], list[Any]], list[Any]]) -> list[Any]:
        """Over members that are whole rows of threads: each writes, all read all."""
        kernel, shape = self.kernel, self.shape
        thread, each = kernel.thread(), shape.threads * 8  # bytes that one scalar of all threads takes
        base = kernel.shared()

        def place(position: int, thread: Int) -> Any:
            return kernel.offset(base, thread * 8 + position * each)

        for position, value in enumerate(values):
            vectors.store(kernel, [value], place(position, thread))
        kernel.barrier()
        parts = []
        for member in range(shape.team):
            other = thread % shape.teams + member * shape.teams
            parts.append([vectors.load(kernel, v.type, place(position, other))[0] for position, v in enumerate(values)])
        kernel.barrier()  # the next exchange may write
        combined = parts[0]
        for part in parts[1:]:
            combined = merge(combined, part)
        return combined

    # ------------------------------------------------------------------------------------------------------------- results

    def _settle(self, tile: Tile, waves: int) -> None:
        """Compute what is the same for all columns and known after so many waves, outside of the loops that use it."""
        done = {reduction.node for wave in self.plan.waves[:waves] for reduction in wave}
        for node in self.plan.graph.nodes:
            is_row = not any(self.plan.space.loops_of(t) & self.plan.column_members for t in outputs_of(node))
            if is_row and not node.reductions and self.plan.needs[node] <= done:
                for lane in range(self.row_lanes):
                    for tensor in outputs_of(node):
                        tile.at(tensor, (0, lane))

    def _store_rows(self, tile: Tile) -> None:
        """Results that are the same for all columns."""
        for tensor in self.plan.results:
            if tensor not in self.plan.full_results:
                self._store_row(tile, tensor)

    def _store_row(self, tile: Tile, tensor: Tensor) -> None:
        first = self.member.equals(0) if self.shape.team > 1 else None
        tile.store(tensor, 0, guards=[first, self.row_valid], unguarded=self.nest.apart)

    def _store_all(self, tile: Tile, valid: Sequence[Bool | None]) -> None:
        self._store_rows(tile)
        for vector, ok in enumerate(valid):
            for tensor in self.plan.full_results:
                tile.store(tensor, vector, self._cache, [ok, self.row_valid])

    def _final_pass(self, tile: Tile) -> None:
        """Results that differ from column to column."""
        kernel, count, end = self.kernel, self.shape.count, self.column_vectors
        step = count * self.shape.team
        whole = end - end % step

        def some(position: Number, *, is_rest: bool) -> None:
            inner = tile.inner(self._indices(position, clamp=is_rest))
            inner.preload(self.plan.result_reads(), count)
            for vector in range(count):
                ok = self._column(position, vector) < end if is_rest else None
                for tensor in self.plan.full_results:
                    inner.store(tensor, vector, self._cache, [ok, self.row_valid])

        low, high, by = (self._number(number) for number in (0, whole, step))
        kernel.loop(low, high, by, [], lambda position: some(position, is_rest=False))
        if end % step:
            some(high, is_rest=True)

    # ------------------------------------------------------------------------------------------------------------ partials

    def _store_partials(self, pointers: Sequence[Any], part: Int, total: Sequence[Sequence[list[Any]]]) -> None:
        kernel, lanes = self.kernel, self.row_lanes

        def write() -> None:
            for lane in range(lanes):
                place = self._partial_place(self.row * lanes + lane, part, self.shape.splits)
                for pointer, value in zip(pointers, (value for rows in total for value in rows[lane]), strict=True):
                    vectors.store(kernel, [value], kernel.offset(pointer, place, vectors.storage_type(value.type)))

        first = self.member.equals(0)
        kernel.when(first if self.row_valid is None else first & self.row_valid, write)

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
                part = self._column(0, vector)
                ok = self._valid(part, splits, vector)
                place = self._partial_place(self.row, part if ok is None else part.minimum(splits - 1), splits)
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
