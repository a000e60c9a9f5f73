"""What one thread computes: scalars of a graph at the points of a small grid, made on demand.

A thread holds ``vectors`` times ``lanes`` points of the iteration space: lanes are neighbours along one loop (one vector
access), vectors are apart.  A value that does not depend on the lane, or not on the vector, is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Tensor
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.vectors import Cache
from mlirstack.schedules.cuda.stream.bindings import Bindings
from mlirstack.schedules.cuda.stream.gathers import GATHERS, Run, follows, strides_of
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
        self._gathered: dict[tuple[Any, int], list[Any]] = {}  # read in a body, vector → all lanes

    def inner(self, indices: Callable[[int], Sequence[Int]], moved: frozenset[int] | None = None) -> Tile:
        """The values inside of a loop: other ``indices`` of the loops ``moved`` (those that vectors lie apart in, unless
        given); what does not depend on these is known there too."""
        tile = Tile(self.kernel, self.nest, self.bindings, indices, self._caches, self._aligned)
        tile.learn(self, self.nest.apart if moved is None else moved)
        return tile

    def learn(self, other: Tile, moved: frozenset[int]) -> None:
        """What another tile knows and what does not depend on the loops ``moved``."""
        for (tensor, point), value in other._known.items():
            if not self.nest.depends(self.nest.space.loops_of(tensor)) & moved:
                self._known[tensor, point] = value
        for (access, point), value in other._loaded.items():
            if not self._moves(access) & moved:
                self._loaded[access, point] = value

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
        pointer = self.address(access, vector)

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
        pointers = [self.address(access, vector) for access, vector in wanted]

        def read(is_aligned: bool) -> list[list[Any]]:
            return [
                self._read(access, pointer, self._elements_per_access(access) if is_aligned else 1)
                for (access, _), pointer in zip(wanted, pointers, strict=True)
            ]

        if self._aligned is None or all(self._elements_per_access(access) == 1 for access, _ in wanted):
            loaded = read(True)
        else:
            shapes = [(access.tensor.element, self._lanes_of(access)) for access, _ in wanted]
            loaded = vectors.either(self.kernel, self._aligned, lambda: read(True), lambda: read(False), shapes)
        for (access, vector), values in zip(wanted, loaded, strict=True):
            for lane, value in enumerate(values):
                self._loaded[access, self._project(self._moves(access), (vector, lane))] = value

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

    def address(self, access: Access, vector: int) -> Any:
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
        forms = self.bindings.forms(node)

        def replace(op: Any, value: Callable[[Any], Any]) -> Any:
            return self._gather(node, op, value, point) if op.name in GATHERS else forms(op, value)

        results = node.inline(scalars, indices, replace=replace)
        for tensor, value in zip(outputs_of(node), results, strict=True):
            self.set(tensor, point, value)

    def _gather(self, node: Node, op: Any, value: Callable[[Any], Any], point: Point) -> Any:
        """What a body reads at a place that it computes: with all lanes of the vector at once where places follow each
        other."""
        vector, lane = point
        run = self._run(node, op)
        if run is None:
            return self._gather_one(op, value)
        if lane == 0:
            self._gathered[op, vector] = self._gather_lanes(node, op, value, vector, run)
        return self._gathered[op, vector][lane]

    def _run(self, node: Node, op: Any) -> Run | None:
        """How a read in a body follows the lanes; None where it does not, or where there is one lane."""
        space, lanes = self.nest.space, self.nest.lanes
        if self.nest.vector_loop is None or lanes == 1:
            return None
        member = self.nest.loops[self.nest.vector_loop].members[-1]
        if member not in space.of_node[node] or space.sizes[member] % lanes:
            return None
        same = {
            number for number, operand in enumerate(node.inputs) if not self._changes(node, number, operand.tensor, member)
        }
        return follows(op, node, space.of_node[node].index(member), same, lanes)

    def _changes(self, node: Node, number: int, tensor: Tensor | None, loop: int) -> bool:
        """Does an input of a node differ along a loop of the space?"""
        if tensor is None:
            return False
        space = self.nest.space
        access = space.reads[node, number] if tensor.is_argument else space.writes[tensor]
        return access.strides[loop] != 0

    def _gather_one(self, op: Any, value: Callable[[Any], Any]) -> Any:
        element = ir.ShapedType(op.operands[0].type).element_type
        return vectors.load(self.kernel, element, self._gather_address(op, value))[0]

    def _gather_lanes(self, node: Node, op: Any, value: Callable[[Any], Any], vector: int, run: Run) -> list[Any]:
        kernel, lanes = self.kernel, self.nest.lanes
        element = ir.ShapedType(op.operands[0].type).element_type
        start, each = self._gather_address(op, value), min(lanes, vectors.elements_per_access(element))
        kind = vectors.storage_type(element)

        def follow() -> list[Any]:
            places = [kernel.offset(start, lane, kind) for lane in range(0, lanes, each)]
            return [found for place in places for found in vectors.load(kernel, element, place, each)]

        assert self.nest.vector_loop is not None
        member = self.nest.loops[self.nest.vector_loop].members[-1]
        index = self.loop_indices((vector, 0))[member]
        first = 0 if run.low is None else run.low - run.shift
        end = self.nest.space.sizes[member] if run.high is None else run.high - run.shift + 2 - lanes
        inside = [index > first - 1] if first > 0 else []
        inside += [index < max(end, 0)] if end <= self.nest.space.sizes[member] - lanes else []
        if not inside:
            return follow()
        return kernel.either(
            reduce(Bool.__and__, inside), follow, lambda: [self._gather_one(op, value)] * lanes, [element] * lanes
        )

    def _gather_address(self, op: Any, value: Callable[[Any], Any]) -> Any:
        source, *indices = list(op.operands)
        place: Number = 0
        for index, stride in zip(indices, strides_of(source), strict=True):
            number = Int(dialect("arith").IndexCastOp(self.kernel.i64, value(index)).result)
            place = number * stride + place
        kind = vectors.storage_type(ir.ShapedType(source.type).element_type)
        return self.kernel.offset(self.bindings.source(source), place, kind)

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
