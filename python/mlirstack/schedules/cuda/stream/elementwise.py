"""Elementwise kernels: every thread computes a few neighbouring elements of all results, in 16-byte vectors.

Takes graphs of parallel ops over one iteration space, with any number of results, broadcasts along any loop and scalars.
Loops that are contiguous everywhere are walked as one, so that most kernels have a single loop and no division.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.extent import Size, ceil_div, is_multiple
from mlirstack.schedules.cuda.graph import KernelGraph, Tensor
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.vectors import Cache
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.stream.bindings import Bindings, has_plain_bodies, is_computable
from mlirstack.schedules.cuda.stream.gathers import can_gather, sources_of
from mlirstack.schedules.cuda.stream.loops import Access, Loop, Space, collapse, match_loops, split_index, vector_limit
from mlirstack.schedules.cuda.stream.tile import Nest, Tile, initial_reads
from mlirstack.schedules.cuda.values import Bool, Int

_INT32 = 1 << 31


@dataclass(frozen=True)
class Plan:
    """A graph ready to be written: its space, loops that are walked as one, what is read and what is stored."""

    graph: KernelGraph
    space: Space
    loops: tuple[Loop, ...]
    reads: tuple[Access, ...]
    results: tuple[Tensor, ...]

    @property
    def accesses(self) -> list[Access]:
        """All accesses to memory."""
        return [*self.reads, *(self.space.writes[tensor] for tensor in self.results)]

    @property
    def elements(self) -> int:
        """Points of the space, at most."""
        return prod(loop.size for loop in self.loops)

    @property
    def points(self) -> Size:
        """Points of the space, as they are at run time."""
        return self.space.points(self.loops)

    @property
    def bytes(self) -> int:
        """What is moved at least: every tensor once."""
        return sum(tensor.bytes for tensor in {access.tensor for access in self.accesses})

    @property
    def is_large(self) -> bool:
        """Do indices need 64 bits?"""
        return max([self.elements, *(access.tensor.count for access in self.accesses)]) >= _INT32

    def lane_stride(self, access: Access) -> int:
        """How far neighbours along the innermost loop lie apart."""
        return access.strides[self.loops[-1].members[-1]] if self.loops else 0

    def vector_limit(self) -> int:
        """The longest vector (in elements) that every contiguous access allows: aligned, inside the innermost loop."""
        if not self.loops:
            return 1
        limit = vector_limit(self.loops, len(self.loops) - 1, self.accesses, vectors.ACCESS_BYTES)
        while len(self.loops) > 1 and self.loops[-1].size % limit:
            limit //= 2
        return limit

    @property
    def full(self) -> list[Access]:
        """Accesses that differ at every point: the bulk of the bytes."""
        return [access for access in self.accesses if all(access.strides[loop.members[-1]] for loop in self.loops)]

    def widest(self) -> int:
        """Bytes of the widest element of the bulk."""
        return max(vectors.bytes_of(access.tensor.element) for access in self.full)


def plan_of(graph: KernelGraph) -> Plan | None:
    """The plan of a graph that is elementwise; None for all others."""
    if not graph.nodes or not graph.is_plain or any(node.reductions for node in graph.nodes):
        return None
    if not has_plain_bodies(graph.nodes, gathers=True) or not can_gather(graph):
        return None
    space = match_loops(graph)
    results = graph.results
    if space is None or not results or any(size == 0 for size in space.sizes):
        return None
    reads = list(dict.fromkeys([*space.reads.values(), *initial_reads(graph, space)]))
    if not all(is_computable(t.element) for t in (*(a.tensor for a in reads), *space.writes)):
        return None
    largest = max((space.writes[tensor] for tensor in results), key=lambda access: access.tensor.count)
    if any(size > 1 and not stride for size, stride in zip(space.sizes, largest.strides, strict=True)):
        return None
    order = sorted(range(len(space.sizes)), key=lambda loop: -largest.strides[loop])
    accesses = [*reads, *(space.writes[tensor] for tensor in results)]
    loops = collapse(space.sizes, order, accesses)
    if not space.is_outermost_varying(loops):
        return None
    return Plan(graph, space, tuple(loops), tuple(reads), tuple(results))


class Elementwise:
    """Parameters: ``vector`` elements of a vector, ``unroll`` vectors of a thread, ``threads`` of a block, ``stream`` past
    the caches."""

    name = "elementwise"
    takes_extents = True

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """One 16-byte vector a thread; see :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        plan = plan_of(graph)
        return None if plan is None else self._parameters(plan, device)

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """Other sizes of blocks, several vectors a thread, with and without cache hints."""
        plan = plan_of(graph)
        if plan is None:
            return []
        best = self._parameters(plan, device)
        changes: list[Parameters] = [
            {}, {"threads": 128}, {"threads": 512}, {"unroll": 2}, {"unroll": 4}, {"stream": True},
            {"vector": min(plan.vector_limit(), 2 * int(best["vector"]))},
        ]  # fmt: skip
        return list({tuple(sorted(p.items())): p for p in ({**best, **change} for change in changes)}.values())

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """One kernel; see :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        plan = plan_of(graph)
        assert plan is not None, "the graph is the one that the parameters were chosen for"
        _Writer(function, plan, parameters).write()

    @staticmethod
    def _parameters(plan: Plan, device: Device) -> Parameters:
        vector = min(plan.vector_limit(), vectors.ACCESS_BYTES // plan.widest())
        threads = 256
        while threads > 64 and plan.elements < vector * threads * device.multiprocessors:
            threads //= 2  # small tensors: rather more blocks than fuller ones
        # Hints to evict first cost 2 to 5 % on an H200, whatever is moved.
        return {"vector": vector, "unroll": 1, "threads": threads, "stream": False}


class _Writer:
    """Writes the kernel of a plan."""

    def __init__(self, function: Any, plan: Plan, parameters: Parameters) -> None:
        self.plan = plan
        self.vector, self.unroll, self.threads = (int(parameters[name]) for name in ("vector", "unroll", "threads"))
        self.kernel = Kernel(function, threads=self.threads, schedule=Elementwise.name)
        tensors = [access.tensor for access in plan.accesses]
        self.bindings = Bindings(self.kernel, plan.graph, tensors, plan.results)
        self.cache = Cache.STREAM if parameters["stream"] else Cache.NORMAL
        self.caches = {access.tensor: self.cache for access in plan.full} if parameters["stream"] else {}

    def write(self) -> None:
        """Vectors where all of the thread's are there and aligned, element by element otherwise."""
        plan, kernel = self.plan, self.kernel
        block = self.threads * self.unroll * self.vector  # elements of a block
        with kernel.body():
            self.elements = kernel.number(plan.points, kernel.i64 if plan.is_large else kernel.i32)
            first = self._wide(kernel.block_index()) * (self.threads * self.unroll) + self._wide(kernel.thread())
            fast = self._fits(first, is_multiple(plan.points, block)) if self.vector * self.unroll > 1 else None
            if fast is None:
                self._when_inside(first, lambda: self._vectors(first))
            else:
                kernel.either(fast, lambda: self._vectors(first), lambda: self._elements(first))
        kernel.launch((ceil_div(plan.points, block),))

    def _fits(self, first: Int, is_whole: bool) -> Bool:
        """May this thread use vectors?"""
        plan = self.plan
        conditions = []
        if self.vector > 1:
            pointers = [self.bindings.pointer(a.tensor) for a in plan.accesses if plan.lane_stride(a) == 1]
            pointers += [self.bindings.source(source) for source in sources_of(plan.graph.nodes)]
            conditions.append(vectors.aligned(self.kernel, list(dict.fromkeys(pointers))))
        if not is_whole or not conditions:
            last = first + (self.unroll - 1) * self.threads
            conditions.append(last < self.elements // self.vector)
        return conditions[0] if len(conditions) == 1 else conditions[0] & conditions[1]

    def _vectors(self, first: Int) -> None:
        """All vectors of the thread: loads first, then a computation and a store each."""
        plan = self.plan
        lane_loop = len(plan.loops) - 1 if plan.loops else None
        nest = Nest(plan.space, plan.loops, lane_loop, self.vector, frozenset(range(len(plan.loops))))
        sizes = [loop.size for loop in plan.loops]
        if sizes:
            sizes[-1] //= self.vector

        def indices(vector: int) -> Sequence[Int]:
            found = split_index(first + vector * self.threads, sizes)
            return [*found[:-1], *(index * self.vector for index in found[-1:])]

        tile = Tile(self.kernel, nest, self.bindings, indices, self.caches)
        tile.preload(plan.reads, range(self.unroll))
        for vector in range(self.unroll):
            for tensor in plan.results:
                tile.store(tensor, vector, self.cache)

    def _elements(self, first: Int) -> None:
        """The same elements, one after the other."""
        kernel, plan = self.kernel, self.plan
        sizes = [loop.size for loop in plan.loops]
        nest = Nest(plan.space, plan.loops, None, 1, frozenset())

        def one(number: Int) -> None:
            number = self._wide(number)
            element = (first + number // self.vector * self.threads) * self.vector + number % self.vector

            def compute() -> None:
                tile = Tile(kernel, nest, self.bindings, lambda _: split_index(element, sizes))
                tile.preload(plan.reads, [0])
                for tensor in plan.results:
                    tile.store(tensor, 0)

            kernel.when(element < self.elements, compute)

        kernel.loop(0, self.vector * self.unroll, 1, [], one)

    def _when_inside(self, first: Int, body: Any) -> None:
        if is_multiple(self.plan.points, self.threads):
            body()
        else:
            self.kernel.when(first < self.elements, body)

    def _wide(self, number: Int) -> Int:
        return number.wide() if self.plan.is_large else number
