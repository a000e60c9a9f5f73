"""What one thread computes: scalars of a graph at the points of a small grid, made on demand.

A thread holds ``vectors`` times ``lanes`` points of the iteration space: lanes are neighbours along one loop (one vector
access), vectors are apart.  A value that does not depend on the lane, or not on the vector, is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from mlirstack.bindings import ir
from mlirstack.passes import functions
from mlirstack.passes.regions import external_values
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Tensor
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.approximate import Approximation, rounded_tensors
from mlirstack.schedules.cuda.instructions.vectors import Cache
from mlirstack.schedules.cuda.stream.loops import Access, Loop, Space
from mlirstack.schedules.cuda.values import Bool, Int, Number

if TYPE_CHECKING:
    from mlirstack.schedules.cuda.kernel import Kernel

Point = tuple[int, int]  # number of the vector, lane in it
_ANY = -1  # coordinate of a value that is the same for all of them


@dataclass(frozen=True)
class Nest:
    """The loops of a space as a kernel walks them.

    ``vector_loop``: number (in ``loops``) of the loop that lanes lie along; None: one lane.  ``apart``: numbers of the loops
    whose index differs between the vectors of a thread.
    """

    space: Space
    loops: tuple[Loop, ...]
    vector_loop: int | None
    lanes: int
    apart: frozenset[int]

    def strides(self, access: Access) -> tuple[int, ...]:
        """Strides along the loops of the nest."""
        return tuple(access.strides[loop.members[-1]] for loop in self.loops)

    def depends(self, members: Iterable[int]) -> frozenset[int]:
        """The loops of the nest that some of these loops of the space are part of."""
        wanted = set(members)
        return frozenset(number for number, loop in enumerate(self.loops) if wanted & set(loop.members))


class Bindings:
    """What the values of a graph are in a kernel: pointers and scalars that the host passes, fast forms of functions.

    ``tensors``: what the kernel reads and writes; ``results``: the tensors of the graph that are stored.
    """

    def __init__(self, kernel: Kernel, graph: KernelGraph, tensors: Iterable[Tensor], results: Collection[Tensor]) -> None:
        self._pointers: dict[Any, Any] = {}
        self._scalars: dict[Any, Any] = {}
        for tensor in tensors:
            if tensor.value not in self._pointers:
                self._pointers[tensor.value] = kernel.pointer(tensor.value)
        for value in _scalars_of(graph.nodes):
            if functions.defining_op(value) is None and value not in self._scalars:
                self._scalars[value] = kernel.scalar(value)
        rounded = rounded_tensors(graph, results)
        self._forms = {node: Approximation(kernel, node, rounded) for node in graph.nodes}

    def pointer(self, tensor: Tensor) -> Any:
        """Where a tensor starts."""
        return self._pointers[tensor.value]

    def scalar(self, value: Any) -> Any:
        """A scalar of the host in the kernel: a parameter, or the constant made again."""
        if value in self._scalars:
            return self._scalars[value]
        producer = functions.defining_op(value)
        assert producer is not None, "scalars are parameters or constants"
        return producer.clone().operation.results[0]

    def forms(self, node: Node) -> Approximation:
        """What may take the place of ops in the body of a node."""
        return self._forms[node]


class Tile:
    """Values of the thread.  ``indices(vector)``: the index of each loop of the nest at lane 0, all of one integer type.

    ``aligned``: whether all tensors in memory start at multiples of 16 bytes; None where that is known.
    """

    def __init__(
        self,
        kernel: Kernel,
        nest: Nest,
        bindings: Bindings,
        indices: Callable[[int], Sequence[Int]],
        caches: Mapping[Tensor, Cache] | None = None,
        aligned: Bool | None = None,
    ) -> None:
        self.kernel, self.nest, self.bindings = kernel, nest, bindings
        self._indices, self._caches, self._aligned = indices, dict(caches or {}), aligned
        self._index_of: dict[int, Sequence[Int]] = {}
        self._known: dict[tuple[Tensor, Point], Any] = {}
        self._loaded: dict[tuple[Access, Point], Any] = {}

    def inner(self, indices: Callable[[int], Sequence[Int]]) -> Tile:
        """The values inside of a loop: other ``indices``; what does not depend on the vector is known there too."""
        tile = Tile(self.kernel, self.nest, self.bindings, indices, self._caches, self._aligned)
        tile._known = {key: value for key, value in self._known.items() if key[1][0] == _ANY}
        tile._loaded = {key: value for key, value in self._loaded.items() if key[1][0] == _ANY}
        return tile

    # ------------------------------------------------------------------------------------------------------------ values

    def at(self, tensor: Tensor, point: Point) -> Any:
        """The MLIR scalar of a computed tensor."""
        space = self.nest.space
        key = (tensor, self._project(self.nest.depends(space.loops_of(tensor)), point))
        if key not in self._known:
            assert tensor.producer is not None, "arguments are loaded"
            self._compute(tensor.producer, key[1])
        return self._known[key]

    def set(self, tensor: Tensor, point: Point, value: Any) -> None:
        """Say what a computed tensor is, for what cannot be computed point by point."""
        self._known[tensor, self._project(self.nest.depends(self.nest.space.loops_of(tensor)), point)] = value

    def operands(self, node: Node, point: Point) -> list[Any]:
        """The scalars that the inputs of a node are at a point."""
        found = []
        for position, operand in enumerate(node.inputs):
            if operand.tensor is None:
                found.append(self.bindings.scalar(operand.value))
            elif operand.tensor.is_argument:
                found.append(self.element(self.nest.space.reads[node, position], point))
            else:
                found.append(self.at(operand.tensor, point))
        return found

    def element(self, access: Access, point: Point) -> Any:
        """The scalar that a tensor in memory holds at a point."""
        key = (access, self._project(self._moves(access), point))
        if key not in self._loaded:
            self._load([(access, max(key[1][0], 0))])
        return self._loaded[key]

    def provide(self, access: Access, point: Point, value: Any) -> None:
        """Say what a tensor in memory holds at a point, where that is known already."""
        self._loaded[access, self._project(self._moves(access), point)] = value

    def initial(self, node: Node, position: int, point: Point) -> Any:
        """What output ``position`` of a node holds before the node runs."""
        start = node.initial[position]
        if start is None:
            return None
        if isinstance(start, Tensor):
            return self.element(self._initial_access(node, position), point)
        return self.bindings.scalar(start)

    def index_values(self, point: Point, node: Node) -> list[Any]:
        """What ``linalg.index`` of each loop of a node is."""
        by_loop = self.loop_indices(point)
        zero = self.kernel.integer(0)
        return [by_loop.get(loop, zero).index() for loop in self.nest.space.of_node[node]]

    def loop_indices(self, point: Point) -> dict[int, Int]:
        """The index of each loop of the space at a point; loops of size 1 are left out."""
        found: dict[int, Int] = {}
        for number, loop in enumerate(self.nest.loops):
            index = self._index(point[0])[number]
            if number == self.nest.vector_loop:
                index = index + point[1]
            for member in loop.members[:0:-1]:
                size = self.nest.space.sizes[member]
                found[member] = index % size
                index = index // size
            found[loop.members[0]] = index
        return found

    # ------------------------------------------------------------------------------------------------------------ memory

    def preload(self, accesses: Sequence[Access], numbers: Iterable[int]) -> None:
        """Load what the vectors of these numbers need of these tensors, before anything is computed from it."""
        missing: dict[tuple[Access, Point], None] = {}
        for vector in numbers:
            for access in accesses:
                point = self._project(self._moves(access), (vector, 0))
                if (access, point) not in self._loaded:
                    missing[access, point] = None
        self._load([(access, max(point[0], 0)) for access, point in missing])

    def store(
        self,
        tensor: Tensor,
        vector: int,
        cache: Cache = Cache.NORMAL,
        guards: Sequence[Bool | None] = (),
        unguarded: frozenset[int] = frozenset(),
    ) -> None:
        """Store the lanes of one vector of a computed tensor, where all ``guards`` hold.

        Where the tensor does not depend on a loop, only threads at index 0 of that loop store, ``unguarded`` loops aside.
        """
        access = self.nest.space.writes[tensor]
        values = [self.at(tensor, (vector, lane)) for lane in range(self.nest.lanes)]
        conditions = [guard for guard in guards if guard is not None]
        for number, stride in enumerate(self.nest.strides(access)):
            if stride == 0 and number not in unguarded:
                conditions.append(self._index(vector)[number].equals(0))
        pointer = self._address(access, vector)

        def write() -> None:
            each = self._elements_per_access(access)
            if self._aligned is None or each == 1:
                self._store(access, pointer, values, each, cache)
                return
            self.kernel.either(
                self._aligned,
                lambda: self._store(access, pointer, values, each, cache),
                lambda: self._store(access, pointer, values, 1, cache),
            )

        if conditions:
            self.kernel.when(reduce(Bool.__and__, conditions), write)
        else:
            write()

    def _load(self, wanted: Sequence[tuple[Access, int]]) -> None:
        """Load the lanes of these vectors, one after the other with nothing in between."""
        pointers = [self._address(access, vector) for access, vector in wanted]

        def read(is_aligned: bool) -> list[Any]:
            return [
                value
                for (access, _), pointer in zip(wanted, pointers, strict=True)
                for value in self._read(access, pointer, self._elements_per_access(access) if is_aligned else 1)
            ]

        if self._aligned is None or all(self._elements_per_access(access) == 1 for access, _ in wanted):
            values = read(True)
        else:
            types = [access.tensor.element for access, _ in wanted for _ in range(self._lanes_of(access))]
            values = self.kernel.either(self._aligned, lambda: read(True), lambda: read(False), types)
        rest = iter(values)
        for access, vector in wanted:
            for lane in range(self._lanes_of(access)):
                self._loaded[access, self._project(self._moves(access), (vector, lane))] = next(rest)

    def _read(self, access: Access, pointer: Any, each: int) -> list[Any]:
        """The lanes of a vector, ``each`` elements an access."""
        element, stride = access.tensor.element, self._lane_stride(access)
        # LLVM would take a vector apart to share its elements with the unaligned way.
        usual = Cache.NORMAL if each == 1 else Cache.PINNED
        kind, cache = vectors.storage_type(element), self._caches.get(access.tensor, usual)
        return [
            value
            for lane in range(0, self._lanes_of(access), each)
            for value in vectors.load(
                self.kernel, element, self.kernel.offset(pointer, lane * stride, kind), each, cache=cache
            )
        ]

    def _store(self, access: Access, pointer: Any, values: Sequence[Any], each: int, cache: Cache) -> None:
        kind, stride = vectors.storage_type(access.tensor.element), self._lane_stride(access)
        for lane in range(0, self._lanes_of(access), each):
            place = self.kernel.offset(pointer, lane * stride, kind)
            vectors.store(self.kernel, values[lane : lane + each], place, cache=cache)

    def _lanes_of(self, access: Access) -> int:
        """Elements that the lanes of a vector need."""
        return self.nest.lanes if self._lane_stride(access) else 1

    def _elements_per_access(self, access: Access) -> int:
        if self._lane_stride(access) != 1:
            return 1
        return min(self.nest.lanes, vectors.elements_per_access(access.tensor.element))

    def _address(self, access: Access, vector: int) -> Any:
        """Where lane 0 of a vector lies."""
        position: Number = access.offset
        for index, stride in zip(self._index(vector), self.nest.strides(access), strict=True):
            if stride:
                position = index * stride + position
        kind = vectors.storage_type(access.tensor.element)
        return self.kernel.offset(self.bindings.pointer(access.tensor), position, kind)

    # ----------------------------------------------------------------------------------------------------------- details

    def _compute(self, node: Node, point: Point) -> None:
        point = (max(point[0], 0), max(point[1], 0))
        starts = [self.initial(node, position, point) for position in range(len(node.outputs))]
        indices = self.index_values(point, node) if "linalg.index" in node.body_ops() else ()
        scalars = [*self.operands(node, point), *starts]
        results = node.inline(scalars, indices, replace=self.bindings.forms(node))
        for tensor, value in zip(outputs_of(node), results, strict=True):
            self.set(tensor, point, value)

    def _initial_access(self, node: Node, position: int) -> Access:
        return self.nest.space.writes[outputs_of(node)[position]].of(node.initial[position])

    def _index(self, vector: int) -> Sequence[Int]:
        if vector not in self._index_of:
            self._index_of[vector] = self._indices(vector)
        return self._index_of[vector]

    def _lane_stride(self, access: Access) -> int:
        return 0 if self.nest.vector_loop is None else self.nest.strides(access)[self.nest.vector_loop]

    def _moves(self, access: Access) -> frozenset[int]:
        return frozenset(number for number, stride in enumerate(self.nest.strides(access)) if stride)

    def _project(self, loops: frozenset[int], point: Point) -> Point:
        vector, lane = point
        return (vector if loops & self.nest.apart else _ANY, lane if self.nest.vector_loop in loops else _ANY)


def initial_reads(graph: KernelGraph, space: Space) -> list[Access]:
    """Accesses to the arguments that outputs start from."""
    return [
        space.writes[output.tensor].of(start)
        for node in graph.nodes
        for output, start in zip(node.outputs, node.initial, strict=True)
        if isinstance(start, Tensor) and output.tensor is not None
    ]


def outputs_of(node: Node) -> list[Tensor]:
    """The tensors that a node computes."""
    return [output.tensor for output in node.outputs if output.tensor is not None]


def _scalars_of(nodes: Sequence[Node]) -> Iterable[Any]:
    for node in nodes:
        yield from (operand.value for operand in node.inputs if operand.tensor is None)
        yield from (start for start in node.initial if start is not None and not isinstance(start, Tensor))


def is_computable(element: Any) -> bool:
    """Is it an element type that kernels compute with: booleans, integers of 8 to 64 bits, floats of 16 to 64 bits?"""
    if isinstance(element, ir.IntegerType):
        return element.width in (1, 8, 16, 32, 64)
    return isinstance(element, (ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type))


def has_plain_bodies(nodes: Iterable[Node]) -> bool:
    """Are all bodies made of arith and math ops (and linalg.index) on their operands and on constants alone?"""
    allowed = ("arith.", "math.", "linalg.index")
    return all(name.startswith(allowed) and name != "math.ipowi" for node in nodes for name in node.body_ops()) and all(
        _outside_is_constant(node) for node in nodes
    )


def _outside_is_constant(node: Node) -> bool:
    operands = set(node.op.operands)
    producers = [functions.defining_op(value) for value in external_values(node.op) if value not in operands]
    return all(producer is not None and producer.name == "arith.constant" for producer in producers)
