"""One iteration space for a whole graph: the loops of its nodes matched to each other, tensors in memory as strides.

Takes a :class:`~mlirstack.schedules.cuda.graph.KernelGraph` of structured ops; bandwidth-bound emitters divide the loops of
the :class:`Space` among blocks, threads and vectors, and never look at the maps of single ops again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from mlirstack.bindings import ir
from mlirstack.schedules.cuda.extent import Extent, Size, times
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Operand, Tensor
from mlirstack.schedules.cuda.values import Int


@dataclass(frozen=True)
class Access:
    """A tensor in memory, as the loops of a space see it: element ``offset`` + Σ index · stride, counted in elements.

    A stride of 0: the tensor is the same for all indices of that loop.
    """

    tensor: Tensor
    strides: tuple[int, ...]
    offset: int = 0

    def of(self, tensor: Tensor) -> Access:
        """Another tensor that lies in memory as this one does."""
        return Access(tensor, self.strides, self.offset)


@dataclass(frozen=True)
class Space:
    """Loops that all nodes share.

    ``of_node``: which loop of the space each loop of a node is.  ``reads``: (node, number of the input) → how an argument
    of the kernel is read there.  ``writes``: tensor → how it lies in memory, for every tensor that a node computes.
    ``reduced``: loops that some node reduces.  ``varying``: the loop of which ``sizes`` has the most that its size can be,
    ``extent`` says what it is.
    """

    sizes: tuple[int, ...]
    of_node: dict[Node, tuple[int, ...]]
    reads: dict[tuple[Node, int], Access]
    writes: dict[Tensor, Access]
    reduced: frozenset[int]
    varying: int | None = None
    extent: Extent | None = None

    def points(self, loops: Sequence[Loop]) -> Size:
        """The number of points of a nest, as it is at run time."""
        sizes = {member: self.sizes[member] for loop in loops for member in loop.members}
        if self.extent is None or self.varying not in sizes:
            return prod(sizes.values())
        return times(self.extent, prod(size for member, size in sizes.items() if member != self.varying))

    def is_outermost_varying(self, loops: Sequence[Loop]) -> bool:
        """Does no size vary but that of the outermost loop of a nest, which taking apart the number of a point needs not?"""
        return self.varying is None or bool(loops and loops[0].members[0] == self.varying)

    def loops_of(self, tensor: Tensor) -> frozenset[int]:
        """The loops that a computed tensor depends on."""
        return frozenset(loop for loop, stride in enumerate(self.writes[tensor].strides) if stride)


@dataclass(frozen=True)
class Loop:
    """A loop of a nest: neighbouring loops of the space, walked as one.  ``members`` are their numbers, outermost first."""

    members: tuple[int, ...]
    size: int


def match_loops(graph: KernelGraph) -> Space | None:
    """The space of ``graph``; None where tensors are read at other places than they are written, or not along loops.

    Loops of two nodes are one where a tensor passes between the nodes; where nodes only read the same argument, their loops
    are one as far as this contradicts nothing (the row that a sum and a product both walk over).
    """
    matching = _Matching(graph.nodes)
    for tensor, writer, reader, operand in _passed_on(graph):
        written = _output_of(writer, tensor).dims
        if not all(
            matching.join((writer, a), (reader, b)) if a is not None and b is not None else size == 1
            for a, b, size in zip(written, operand.dims, tensor.shape, strict=True)
        ):
            return None
    for argument in sorted((t for t in graph.arguments if t.is_static), key=lambda t: -t.count):
        readers = [(node, operand) for node in graph.nodes for operand in node.inputs if operand.tensor is argument]
        for node, operand in readers[1:]:
            first, dims = readers[0]
            for a, b in zip(dims.dims, operand.dims, strict=True):
                if a is not None and b is not None:
                    matching.join((first, a), (node, b))
    return _space(graph, matching)


def collapse(sizes: Sequence[int], loops: Sequence[int], accesses: Sequence[Access]) -> list[Loop]:
    """``loops`` (numbers, outermost first), neighbours walked as one where all accesses allow it; size 1 left out."""
    merged: list[Loop] = []
    for number in loops:
        if sizes[number] == 1:
            continue
        last = merged[-1].members[-1] if merged else None
        if last is not None and all(a.strides[last] == a.strides[number] * sizes[number] for a in accesses):
            merged[-1] = Loop((*merged[-1].members, number), merged[-1].size * sizes[number])
        else:
            merged.append(Loop((number,), sizes[number]))
    return merged


def vector_limit(loops: Sequence[Loop], lane_loop: int, accesses: Sequence[Access], most: int) -> int:
    """The longest vectors (a power of two up to ``most``) along a loop that start aligned in every contiguous access.

    Says nothing about the length of the loop, nor about where the tensors start.
    """
    along = loops[lane_loop].members[-1]
    contiguous = [access for access in accesses if access.strides[along] == 1]
    starts = [access.offset for access in contiguous]
    for number, loop in enumerate(loops):
        if number != lane_loop:
            starts += [access.strides[loop.members[-1]] for access in contiguous]
    while any(start % most for start in starts):
        most //= 2
    return most


def split_index(number: Int, sizes: Sequence[int]) -> list[Int]:
    """The index of each loop, from the number of a point in row-major order."""
    indices: list[Int] = []
    rest = number
    for size in reversed(sizes[1:]):
        indices.append(rest % size)
        rest = rest // size
    return [rest, *reversed(indices)] if sizes else []


# ------------------------------------------------------------------------------------------------------------- matching


class _Matching:
    """Classes of (node, loop) pairs; two loops of one node are never in one class."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._members = {(node, loop): [(node, loop)] for node in nodes for loop in range(len(node.sizes))}

    def join(self, a: tuple[Node, int], b: tuple[Node, int]) -> bool:
        """Make both one class; False (and nothing done) where that cannot be."""
        ours, theirs = self._members[a], self._members[b]
        if ours is theirs:
            return True
        if {node for node, _ in ours} & {node for node, _ in theirs} or a[0].sizes[a[1]] != b[0].sizes[b[1]]:
            return False
        ours.extend(theirs)
        for member in theirs:
            self._members[member] = ours
        return True

    def number(self, last_node_first: Sequence[Node]) -> dict[tuple[Node, int], int]:
        """Classes numbered in the order in which the loops of these nodes show them."""
        numbers: dict[tuple[Node, int], int] = {}
        count = 0
        for node in last_node_first:
            for loop in range(len(node.sizes)):
                if (node, loop) not in numbers:
                    numbers.update(dict.fromkeys(self._members[node, loop], count))
                    count += 1
        return numbers


def _passed_on(graph: KernelGraph) -> Iterator[tuple[Tensor, Node, Node, Operand]]:
    """Tensors that one node writes and another reads: tensor, writer, reader, how it is read."""
    for reader in graph.nodes:
        for operand in reader.inputs:
            if operand.tensor is not None and operand.tensor.producer is not None:
                yield operand.tensor, operand.tensor.producer, reader, operand


def _output_of(node: Node, tensor: Tensor) -> Operand:
    return next(output for output in node.outputs if output.tensor is tensor)


def _space(graph: KernelGraph, matching: _Matching) -> Space | None:
    number = matching.number(graph.nodes[::-1])
    of_node = {node: tuple(number[node, loop] for loop in range(len(node.sizes))) for node in graph.nodes}
    sizes = [0] * (max(number.values(), default=-1) + 1)
    for (node, loop), position in number.items():
        size = node.sizes[loop]
        if size is None:
            return None
        sizes[position] = size
    reads: dict[tuple[Node, int], Access] = {}
    writes: dict[Tensor, Access] = {}
    for node in graph.nodes:
        for position, operand in enumerate(node.inputs):
            if operand.tensor is not None and operand.tensor.is_argument:
                access = _access(operand, of_node[node], len(sizes))
                if access is None:
                    return None
                reads[node, position] = access
        for output in node.outputs:
            access = _access(output, of_node[node], len(sizes))
            if access is None or output.tensor is None:
                return None
            writes[output.tensor] = access
    reduced = frozenset(of_node[node][loop] for node in graph.nodes for loop in node.reductions)
    varying = next((of_node[node][node.varying] for node in graph.nodes if node.varying is not None), None)
    return Space(tuple(sizes), of_node, reads, writes, reduced, varying, graph.extent)


def _access(operand: Operand, loops: Sequence[int], count: int) -> Access | None:
    tensor = operand.tensor
    if tensor is None or not tensor.is_static:
        return None
    shape = [size for size in tensor.shape if size is not None]
    strides, offset = [0] * count, 0
    for position, expression in enumerate(operand.map.results):
        step = prod(shape[position + 1 :])
        form = linear_form(expression)
        if form is None:
            return None
        factors, constant = form
        offset += constant * step
        for loop, factor in factors.items():
            strides[loops[loop]] += factor * step
    return Access(tensor, tuple(strides), offset)


def linear_form(expression: object) -> tuple[dict[int, int], int] | None:
    """An affine expression as factors of its dimensions and a constant; None where it divides."""
    if isinstance(expression, ir.AffineDimExpr):
        return {expression.position: 1}, 0
    if isinstance(expression, ir.AffineConstantExpr):
        return {}, expression.value
    if isinstance(expression, ir.AffineAddExpr):
        left, right = linear_form(expression.lhs), linear_form(expression.rhs)
        if left is None or right is None:
            return None
        dims = {*left[0], *right[0]}
        return {dim: left[0].get(dim, 0) + right[0].get(dim, 0) for dim in dims}, left[1] + right[1]
    if isinstance(expression, ir.AffineMulExpr):
        left, right = linear_form(expression.lhs), linear_form(expression.rhs)
        if left is None or right is None or (left[0] and right[0]):
            return None
        factors, factor = (left, right[1]) if left[0] else (right, left[1])
        return {dim: value * factor for dim, value in factors[0].items()}, factors[1] * factor
    return None
