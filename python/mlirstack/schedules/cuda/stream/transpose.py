"""Elementwise kernels whose inputs are transposed against the results: tiles go through shared memory.

Takes what ``elementwise`` takes, where some inputs are contiguous along another loop than the
results.  Both sides are read and written in 16-byte vectors along their own loop; the turn is made in shared memory, whose
rows are one word longer than the tile so that columns fall into different banks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.extent import Extent, Size, times
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.vectors import Cache
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.stream.bindings import Bindings
from mlirstack.schedules.cuda.stream.elementwise import Plan, plan_of
from mlirstack.schedules.cuda.stream.loops import Access, split_index, vector_limit
from mlirstack.schedules.cuda.stream.tile import Nest, Tile
from mlirstack.schedules.cuda.values import Bool, Int

_SMALLEST = 16  # shorter loops: strided reads by neighbouring threads are as good
_WORD = 4  # bytes of a bank of shared memory


@dataclass(frozen=True)
class Turn:
    """``turned`` inputs are contiguous along loop ``source`` of the plan, results along loop ``target``."""

    plan: Plan
    turned: tuple[Access, ...]
    source: int
    target: int

    def vector(self, loop: int, accesses: Sequence[Access]) -> int:
        """Elements of a vector along a loop: 16 bytes of the widest of ``accesses`` that lie along it."""
        along = self.plan.loops[loop].members[-1]
        lying = [access for access in accesses if access.strides[along] == 1]
        most = min(vectors.elements_per_access(access.tensor.element) for access in lying)
        limit = vector_limit(self.plan.loops, loop, lying, most)
        while self.plan.loops[loop].size % limit:
            limit //= 2
        return limit

    @property
    def batches(self) -> Size:
        """Planes of the two loops, as there are at run time."""
        return self.plan.space.points(
            [loop for n, loop in enumerate(self.plan.loops) if n not in (self.source, self.target)]
        )


def turn_of(graph: KernelGraph) -> Turn | None:
    """The transposition in an elementwise graph; None where there is none, or more than one."""
    plan = plan_of(graph)
    if plan is None or len(plan.loops) < 2:
        return None
    target = len(plan.loops) - 1
    nearest = {access: _nearest_loop(plan, access) for access in plan.full if access in plan.reads}
    turned = tuple(access for access, loop in nearest.items() if loop is not None and loop != target)
    results = [plan.space.writes[tensor] for tensor in plan.results]
    sources = {nearest[access] for access in turned}
    if len(sources) != 1 or any(plan.lane_stride(access) != 1 for access in results):
        return None
    (source,) = sources
    if source is None or min(plan.loops[source].size, plan.loops[target].size) < _SMALLEST:
        return None
    turn = Turn(plan, turned, source, target)
    return turn if plan.space.extent is None or isinstance(turn.batches, Extent) else None


def _nearest_loop(plan: Plan, access: Access) -> int | None:
    """The loop along which a tensor is contiguous."""
    return next((n for n, loop in enumerate(plan.loops) if access.strides[loop.members[-1]] == 1), None)


class Transpose:
    """Parameters: ``tile`` elements of both sides of a tile, ``threads`` of a block, ``stream`` past the caches."""

    name = "transpose"
    takes_extents = True

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        turn = turn_of(graph)
        return None if turn is None else _parameters(turn)

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """Other tiles and blocks, with and without cache hints."""
        turn = turn_of(graph)
        if turn is None:
            return []
        best = _parameters(turn)
        changes: list[Parameters] = [
            {}, {"tile": 32}, {"threads": 128}, {"threads": 256}, {"tile": 32, "threads": 128}, {"stream": True},
        ]  # fmt: skip
        return list({tuple(sorted(p.items())): p for p in ({**best, **change} for change in changes)}.values())

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """One kernel; see :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        turn = turn_of(graph)
        assert turn is not None, "the graph is the one that the parameters were chosen for"
        _Writer(function, turn, parameters).write()


def _parameters(turn: Turn) -> Parameters:
    wide = max(vectors.bytes_of(access.tensor.element) for access in turn.turned) == 8
    straight = [access for access in turn.plan.accesses if access not in turn.turned]
    lanes = max(turn.vector(turn.source, turn.turned), turn.vector(turn.target, straight))
    # At least two vectors a thread.
    return {"tile": 32 if wide else 64, "threads": 512 if lanes <= 4 else 256, "stream": False}


class _Writer:
    """Writes the kernel of a turn."""

    def __init__(self, function: Any, turn: Turn, parameters: Parameters) -> None:
        self.turn, self.plan = turn, turn.plan
        self.side, threads = int(parameters["tile"]), int(parameters["threads"])
        plan = turn.plan
        self.read_lanes = min(self.side, turn.vector(turn.source, turn.turned))
        straight = [access for access in plan.accesses if access not in turn.turned]
        self.write_lanes = min(self.side, turn.vector(turn.target, straight))
        self.threads = min(threads, self.side * self.side // max(self.read_lanes, self.write_lanes))
        self.kernel = Kernel(function, threads=self.threads, schedule=Transpose.name)
        tensors = [access.tensor for access in plan.accesses]
        self.bindings = Bindings(self.kernel, plan.graph, tensors, plan.results)
        self.cache = Cache.STREAM if parameters["stream"] else Cache.NORMAL
        self.caches = {access.tensor: self.cache for access in plan.full} if parameters["stream"] else {}
        self.starts = [0]  # where the tile of each turned input starts in shared memory
        for access in turn.turned:
            self.starts.append(self.starts[-1] + -(-self.side * self._pitch(access) // 16) * 16)

    def write(self) -> None:
        """Read tiles into shared memory; then compute along the other loop."""
        plan, turn, kernel = self.plan, self.turn, self.kernel
        tiles = [
            -(-loop.size // self.side) if n in (turn.source, turn.target) else loop.size for n, loop in enumerate(plan.loops)
        ]
        with kernel.body():
            block = kernel.block_index()
            self.origin = split_index(block.wide() if plan.is_large else block, tiles)
            contiguous = [access for access in plan.accesses if _nearest_loop(plan, access) is not None]
            pointers = dict.fromkeys(self.bindings.pointer(access.tensor) for access in contiguous)
            self.aligned = vectors.aligned(kernel, list(pointers)) if max(self.read_lanes, self.write_lanes) > 1 else None
            self.shared = kernel.shared()
            self._read()
            kernel.barrier()
            self._compute()
        blocks = times(turn.batches, tiles[turn.source] * tiles[turn.target])
        kernel.launch((blocks,), shared_bytes=self.starts[-1])

    def _read(self) -> None:
        """Turned inputs into shared memory, in vectors along the source loop.  Beyond the edge, the last ones again."""
        lanes = self.read_lanes
        places = self._places(lanes)
        tile = self._tile(self.turn.source, lanes, places)
        tile.preload(self.turn.turned, range(len(places)))
        for access, start in zip(self.turn.turned, self.starts, strict=False):
            for number, (far, near) in enumerate(places):
                for lane in range(lanes):
                    place = self._shared_place(access, start, far, near + lane)
                    vectors.store(self.kernel, [tile.element(access, (number, lane))], place)

    def _compute(self) -> None:
        """Results, in vectors along the target loop, with the turned inputs from shared memory."""
        lanes = self.write_lanes
        places = self._places(lanes)
        tile = self._tile(self.turn.target, lanes, places)
        tile.preload([access for access in self.plan.reads if access not in self.turn.turned], range(len(places)))
        for access, start in zip(self.turn.turned, self.starts, strict=False):
            for number, (far, near) in enumerate(places):
                for lane in range(lanes):
                    place = self._shared_place(access, start, near + lane, far)
                    (value,) = vectors.load(self.kernel, access.tensor.element, place)
                    tile.provide(access, (number, lane), value)
        for number, place in enumerate(places):
            inside = self._inside(self.turn.target, place)
            for tensor in self.plan.results:
                tile.store(tensor, number, self.cache, inside)

    def _places(self, lanes: int) -> list[tuple[Int, Int]]:
        """Where in the tile each of the thread's vectors is: index across the vectors, index along them."""
        along = self.side // lanes
        thread = self.kernel.thread()
        numbers = [thread + start for start in range(0, self.side * along, self.threads)]
        return [(number // along, number % along * lanes) for number in numbers]

    def _tile(self, along: int, lanes: int, places: Sequence[tuple[Int, Int]]) -> Tile:
        loops = self.plan.loops
        nest = Nest(self.plan.space, loops, along, lanes, frozenset({self.turn.source, self.turn.target}))
        return Tile(self.kernel, nest, self.bindings, self._indices(along, lanes, places), self.caches, self.aligned)

    def _indices(self, along: int, lanes: int, places: Sequence[tuple[Int, Int]]) -> Callable[[int], Sequence[Int]]:
        """Indices of the loops at each place of the tile, never beyond the last vector."""
        across = self._other(along)

        def indices(number: int) -> Sequence[Int]:
            far, near = places[number]
            found = list(self.origin)
            for loop, inside, step in ((across, far, 1), (along, near, lanes)):
                size = self.plan.loops[loop].size
                index = self._index(loop, inside)
                found[loop] = index if size % self.side == 0 else index.minimum(size - step)
            return found

        return indices

    def _inside(self, along: int, place: tuple[Int, Int]) -> list[Bool | None]:
        """Is a place of the tile inside of the loops?"""
        conditions: list[Bool | None] = []
        for loop, inside in zip((self._other(along), along), place, strict=True):
            size = self.plan.loops[loop].size
            if size % self.side:
                conditions.append(self._index(loop, inside) < size)
        return conditions

    def _index(self, loop: int, inside: Int) -> Int:
        start = self.origin[loop] * self.side
        return start + (inside.wide() if self.plan.is_large else inside)

    def _other(self, loop: int) -> int:
        return self.turn.target if loop == self.turn.source else self.turn.source

    def _pitch(self, access: Access) -> int:
        """Bytes from a row of the tile to the next: an odd number of banks."""
        size = vectors.bytes_of(access.tensor.element)
        return self.side * size + max(size, _WORD)

    def _shared_place(self, access: Access, start: int, row: Int, column: Int) -> Any:
        """Where the element at an index of the target loop (row) and of the source loop (column) lies in shared memory."""
        size = vectors.bytes_of(access.tensor.element)
        return self.kernel.offset(self.shared, row * self._pitch(access) + column * size + start)
