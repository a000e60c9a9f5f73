"""Teams of threads: which rows and columns a thread has, and how the members of a team combine what they have.

A team's members share the columns of its rows.  Where neighbours in memory lie in one row (``along_columns``), vectors lie
along the columns and a team, which is a part of a warp, a block or a cluster of blocks, has one row.  Where they lie in one
column, vectors lie along the rows: a team has as many rows as a vector has lanes, and its members are threads far apart, so
that a warp reads neighbouring rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from mlirstack.schedules.cuda.extent import ceil_div, is_multiple, times
from mlirstack.schedules.cuda.instructions import shared_memory, vectors
from mlirstack.schedules.cuda.instructions.reduce import WARP, BlockReducer, ClusterReducer, Combine, across_lanes
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.stream.bindings import Bindings
from mlirstack.schedules.cuda.stream.loops import Access, split_index
from mlirstack.schedules.cuda.stream.row_plan import RowPlan
from mlirstack.schedules.cuda.stream.tile import Nest
from mlirstack.schedules.cuda.values import Bool, Int, Number

SCHEDULE = "rows"
_FEW = 8  # members that combine what a team has, where they are far apart
_OTHER_REGISTERS = 28  # of a thread, for addresses, indices, and what is computed with


@dataclass(frozen=True)
class Shape:
    """Sizes of a kernel.

    ``threads`` of a block, ``team`` members of a team, ``vector`` elements of a vector, ``count`` vectors that a thread has
    in flight, ``splits`` blocks that share the columns of a row by way of memory, ``cluster`` blocks that share a team;
    ``stream``: past the caches; ``past_l1``: past the L1 cache, which then keeps weights of the columns.  A team has
    ``rows``: all at once in registers, or, where blocks stay, one after the other with room for ``stages`` of them in shared
    memory.  A multiprocessor has ``together`` blocks, or as many as fit.
    """

    threads: int
    team: int
    vector: int
    count: int
    splits: int = 1
    cluster: int = 1
    stream: bool = False
    stages: int = 1
    rows: int = 1
    together: int = 0
    past_l1: bool = False

    @property
    def teams(self) -> int:
        """Teams of a block; 1 for a part of a team."""
        return max(1, self.threads // self.team)

    @property
    def values_per_thread(self) -> int:
        """Registers of a thread that may hold values of the row: 1024 threads of a multiprocessor have 64 each."""
        if self.together:
            return min(255, 65536 // (self.threads * self.together)) - _OTHER_REGISTERS
        return 64 if self.threads <= 512 and self.cluster == 1 else 40


class RowTeam:
    """The threads of a kernel over rows.  Inside of the kernel's body, :meth:`place` comes first.

    ``row_lanes`` and ``column_lanes``: lanes of a vector that are rows, and columns; one of them is 1.  ``row_vectors`` and
    ``column_vectors``: how many vectors all rows, and all columns, are.
    """

    def __init__(self, function: Any, plan: RowPlan, shape: Shape, accesses: Sequence[Access], suffix: str) -> None:
        self.plan, self.shape, self._accesses = plan, shape, accesses
        self.kernel = Kernel(
            function,
            threads=shape.threads,
            schedule=SCHEDULE,
            suffix=suffix,
            cluster=shape.cluster,
            min_blocks=shape.together or (max(1, 1024 // shape.threads) if shape.cluster > 1 else None),
        )
        self.bindings = Bindings(self.kernel, plan.graph, (access.tensor for access in accesses), plan.results)
        self.row_lanes = 1 if plan.along_columns else shape.vector
        self.column_lanes = shape.vector if plan.along_columns else 1
        self.row_vectors = ceil_div(plan.row_points, self.row_lanes)
        self.column_vectors = plan.column_count // self.column_lanes
        apart = frozenset(range(len(plan.rows), len(plan.loops)))
        self.nest = Nest(plan.space, plan.loops, plan.lane_loop, shape.vector, apart)
        self._reducer: BlockReducer | ClusterReducer | None = None
        self._number: Number = 0  # of the next reduction
        self._scratch = 0  # where the reducer's shared memory starts
        self._scalars = self.row_lanes * max(sum(len(reduction.types) for reduction in wave) for wave in plan.waves)
        self._scalars *= shape.rows if shape.stages == 1 else 1  # reduced together

    def place(self) -> None:
        """Which row (or vector of rows) and which columns this thread has."""
        self.move_to(self.first_row())

    def first_row(self) -> Int:
        """The first row that the number of the block gives this thread's team; says which columns it has, too.

        The next rows of the team are ``shape.teams`` apart.
        """
        kernel, shape = self.kernel, self.shape
        thread = kernel.thread()
        if self.plan.along_columns:
            team, self.member = thread // shape.team, thread % shape.team
        else:
            team, self.member = thread % shape.teams, thread // shape.teams
        block = kernel.block_index()
        if shape.cluster > 1:
            block, self.member = block // shape.cluster, thread + shared_memory.block_in_cluster(kernel) * shape.threads
        self.aligned = self._alignment()
        each = shape.teams * shape.rows
        start = block if each == 1 else block * each
        return start if shape.teams == 1 else start + team

    def move_to(self, row: Int, *, exists: bool = False) -> None:
        """Work on ``row`` from now on.  If there is no such row (which ``exists`` rules out), this is the last one, and
        nothing may be stored."""
        self.row_valid: Bool | None = None
        if not exists and not is_multiple(self.row_vectors, self.shape.teams * self.shape.rows):
            count = self.kernel.number(self.row_vectors)
            self.row_valid = row < count
            row = row.minimum(count - 1)
        self.row = self.wide(row)
        sizes = [loop.size for loop in self.plan.rows]
        self.row_indices = self._split(self.row, sizes, self.row_lanes)

    def meet(self, first_byte: int = 0) -> None:
        """Before the first :meth:`combine`: what it needs in shared memory, from ``first_byte`` on, is there."""
        self._scratch = first_byte
        if self.shape.team <= WARP or not self.plan.along_columns:
            return
        scratch = self.kernel.offset(self.kernel.shared(), first_byte)
        if self.shape.cluster > 1:
            self._reducer = ClusterReducer(self.kernel, scratch, self._scalars, self.shape.cluster)
            self._reducer.start()
        else:
            self._reducer = BlockReducer(self.kernel, scratch, self._scalars)

    def count_from(self, number: Int) -> None:
        """The next reduction is the one of this number."""
        self._number = number

    def _alignment(self) -> Bool | None:
        """Do all tensors start at multiples of 16 bytes?  None where it does not matter."""
        if self.shape.vector == 1:
            return None
        along = self.plan.loops[self.plan.lane_loop].members[-1]
        contiguous = [access for access in self._accesses if access.strides[along] == 1]
        pointers = [self.bindings.pointer(access.tensor) for access in contiguous]
        return vectors.aligned(self.kernel, list(dict.fromkeys(pointers))) if pointers else None

    def column(self, base: Number, vector: int) -> Int:
        """Number of a thread's column vector, counted from ``base``."""
        member = self.wide(self.member)
        return member + (
            vector * self.shape.team if isinstance(base, int) and base == 0 else base + vector * self.shape.team
        )

    def indices(self, base: Number, *, clamp: bool) -> Callable[[int], Sequence[Int]]:
        """Indices of the nest's loops, of a thread's vectors counted from ``base``, in the present row."""
        sizes, row = [loop.size for loop in self.plan.columns], self.row_indices

        def at(vector: int) -> Sequence[Int]:
            column = self.inside(vector, base) if clamp else self.column(base, vector)
            return [*row, *self._split(column, sizes, self.column_lanes)]

        return at

    def inside(self, vector: int, base: Number = 0) -> Int:
        """As :meth:`column`; the last vector of the row in the place of those beyond it."""
        column = self.column(base, vector)
        is_inside = isinstance(base, int) and base + (vector + 1) * self.shape.team <= self.column_vectors
        return column if is_inside else column.minimum(self.column_vectors - 1)

    def valid(self, column: Int, end: Number, vector: int) -> Bool | None:
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

    def wide(self, number: Int) -> Int:
        """With 64 bits where the kernel needs them."""
        return number.wide() if self.plan.is_large else number

    def launch(self, splits: int) -> None:
        """Launch with teams for all rows, and ``splits`` times as many blocks."""
        shape, shared = self.shape, self._scratch
        if not self.plan.along_columns and shape.team > 1:
            shared += shape.threads * 8 * self._scalars
        elif self._reducer is not None:
            shared += self._reducer.scratch_bytes(shape.threads, self._scalars)
        blocks = times(ceil_div(self.row_vectors, shape.teams * shape.rows), shape.cluster)
        self.kernel.launch((blocks, splits), shared_bytes=shared)

    def combine(self, values: list[Any], merge: Combine) -> list[Any]:
        """The members' ``values`` as one; every member gets it."""
        kernel, shape = self.kernel, self.shape
        if not self.plan.along_columns:
            return self._combine_far(values, merge)
        if shape.team <= WARP:
            return across_lanes(kernel, values, merge, shape.team)
        assert shape.team == shape.threads * shape.cluster, "a team is a part of a warp, a block, or a cluster"
        assert self._reducer is not None, "meet() comes first"
        number = self._number
        self._number = number + 1
        return self._reducer(values, merge, number)

    def _combine_far(self, values: list[Any], merge: Combine) -> list[Any]:
        """Over members that are whole rows of threads, in two steps: a few of them combine what all have, then every thread
        what those have."""
        kernel, shape = self.kernel, self.shape
        thread, types = kernel.thread(), [value.type for value in values]
        base, each = kernel.shared(), shape.threads * 8  # bytes that one scalar of all threads may take
        few = min(shape.team, _FEW)

        def place(position: int, thread: Int) -> Any:
            return kernel.offset(base, thread * vectors.bytes_of(types[position]) + position * each)

        def write(values: Sequence[Any]) -> None:
            for position, value in enumerate(values):
                vectors.store(kernel, [value], place(position, thread))

        def read(thread: Int) -> list[Any]:
            return [vectors.load(kernel, kind, place(position, thread))[0] for position, kind in enumerate(types)]

        def combined(first: Int, count: int, distance: int) -> list[Any]:
            return reduce(merge, (read(first + number * distance) for number in range(count)))

        write(values)
        kernel.barrier()
        if few < shape.team:
            distance = few * shape.teams
            kernel.when(thread < distance, lambda: write(combined(thread, shape.team // few, distance)))
            kernel.barrier()
        total = combined(thread % shape.teams, few, shape.teams)
        kernel.barrier()  # the next exchange may write
        return total
