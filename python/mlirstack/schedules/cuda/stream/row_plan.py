"""Graphs of reductions seen as rows and columns: which loops are reduced, what is read, what depends on what.

``columns`` are the loops that the reductions of a graph walk over, all of them the same ones; ``rows`` are the others.
Softmax, norms, sums over any dimensions and argmax are of this form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

from mlirstack.schedules.cuda.extent import Size, is_multiple
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Tensor
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.stream.bindings import has_plain_bodies, is_computable
from mlirstack.schedules.cuda.stream.loops import Access, Loop, Space, collapse, match_loops, vector_limit
from mlirstack.schedules.cuda.stream.reductions import Reduction, reduction_of
from mlirstack.schedules.cuda.stream.tile import initial_reads, outputs_of

_INT32 = 1 << 31


@dataclass(frozen=True)
class RowPlan:
    """``loops``: rows outermost first, then columns.  ``reductions`` in the order of the graph."""

    graph: KernelGraph
    space: Space
    rows: tuple[Loop, ...]
    columns: tuple[Loop, ...]
    reductions: tuple[Reduction, ...]
    reads: tuple[Access, ...]
    results: tuple[Tensor, ...]
    bulk: Access  # the largest of the reads that differ from column to column

    @property
    def loops(self) -> tuple[Loop, ...]:
        """All loops of the nest."""
        return (*self.rows, *self.columns)

    @property
    def accesses(self) -> list[Access]:
        """All accesses to memory."""
        return [*self.reads, *(self.space.writes[tensor] for tensor in self.results)]

    @property
    def row_count(self) -> int:
        """Number of rows, at most."""
        return prod(loop.size for loop in self.rows)

    @property
    def row_points(self) -> Size:
        """Number of rows, as it is at run time."""
        return self.space.points(self.rows)

    @property
    def column_count(self) -> int:
        """Number of columns."""
        return prod(loop.size for loop in self.columns)

    @property
    def bytes(self) -> int:
        """What is moved at least: every tensor once."""
        return sum(tensor.bytes for tensor in {access.tensor for access in self.accesses})

    @property
    def is_large(self) -> bool:
        """Do indices need 64 bits?"""
        points = self.row_count * self.column_count
        return max([points, *(access.tensor.count for access in self.accesses)]) >= _INT32

    @cached_property
    def column_members(self) -> frozenset[int]:
        """Loops of the space that are columns."""
        return frozenset(member for loop in self.columns for member in loop.members)

    def has_columns(self, access: Access) -> bool:
        """Does the tensor differ from column to column?"""
        return any(access.strides[member] for member in self.column_members)

    @cached_property
    def full_reads(self) -> list[Access]:
        """Inputs that differ from row to row, and from column to column along vectors: the bulk of the bytes."""
        rows = [loop.members[-1] for loop in self.rows]
        along = self.loops[self.lane_loop].members[-1]
        return [
            access
            for access in self.reads
            if self.has_columns(access) and access.strides[along] and (not rows or any(access.strides[row] for row in rows))
        ]

    @cached_property
    def full_results(self) -> list[Tensor]:
        """Results that differ from column to column."""
        return [tensor for tensor in self.results if self.has_columns(self.space.writes[tensor])]

    @cached_property
    def along_columns(self) -> bool:
        """Do neighbours in memory lie in one row?  Otherwise they lie in one column."""
        steps = {number: self.bulk.strides[loop.members[-1]] for number, loop in enumerate(self.loops)}
        nearest = min((number for number in steps if steps[number]), key=lambda number: steps[number])
        return not self.rows or nearest >= len(self.rows)

    @property
    def lane_loop(self) -> int:
        """Number of the loop that vectors lie along."""
        return len(self.loops) - 1 if self.along_columns else len(self.rows) - 1

    def vector(self) -> int:
        """Elements of a vector: 16 bytes of the bulk, fewer where rows do not start at such multiples."""
        most = vectors.elements_per_access(self.bulk.tensor.element)
        limit = vector_limit(self.loops, self.lane_loop, self.accesses, most)
        while not is_multiple(self.space.points([self.loops[self.lane_loop]]), limit):
            limit //= 2
        return limit

    @cached_property
    def waves(self) -> list[list[Reduction]]:
        """Reductions that one pass over the columns can do together, in order."""
        level: dict[Node, int] = {}
        found: list[list[Reduction]] = []
        for reduction in self.reductions:
            number = max((level[node] + 1 for node in self.needs[reduction.node]), default=0)
            level[reduction.node] = number
            found += [[]] * (number + 1 - len(found))
            found[number] = [*found[number], reduction]
        return found

    @cached_property
    def needs(self) -> dict[Node, frozenset[Node]]:
        """The reductions that must be done before each node."""
        reduced = {reduction.node for reduction in self.reductions}
        found: dict[Node, frozenset[Node]] = {}
        for node in self.graph.nodes:
            producers = [operand.tensor.producer for operand in node.inputs if operand.tensor is not None]
            known = [producer for producer in producers if producer is not None]
            found[node] = frozenset({p for p in known if p in reduced}.union(*(found[p] for p in known)))
        return found

    def reads_for(self, nodes: Iterable[Node]) -> list[Access]:
        """Inputs that differ from column to column and that ``nodes`` need, given all tensors that are the same for them."""
        found: dict[Access, None] = {}
        waiting, seen = list(nodes), set()
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            for position, operand in enumerate(node.inputs):
                if operand.tensor is None:
                    continue
                producer = operand.tensor.producer
                if producer is None and self.has_columns(self.space.reads[node, position]):
                    found[self.space.reads[node, position]] = None
                elif producer is not None and self.has_columns(self.space.writes[operand.tensor]):
                    waiting.append(producer)
        return [access for access in self.reads if access in found]

    def result_reads(self) -> list[Access]:
        """What results that differ from column to column need, beyond what reductions leave."""
        return self.reads_for(tensor.producer for tensor in self.full_results if tensor.producer is not None)

    @property
    def column_reads(self) -> list[Access]:
        """Inputs that are the same for all rows and differ from column to column, such as the weights of a norm."""
        rows = [member for loop in self.rows for member in loop.members]
        return [access for access in self.reads if self.has_columns(access) and not any(access.strides[row] for row in rows)]

    @property
    def row_reads(self) -> list[Access]:
        """Inputs that are the same for all columns."""
        return [access for access in self.reads if not self.has_columns(access)]

    @property
    def can_split(self) -> bool:
        """Can several blocks share the columns of a row: one pass, and nothing of the size of the input to write?"""
        return len(self.waves) == 1 and not self.full_results and not self.varies

    @property
    def varies(self) -> bool:
        """Is the number of rows known at run time only?"""
        return self.space.extent is not None


def row_plan(graph: KernelGraph) -> RowPlan | None:
    """The plan of a graph of this form; None for all others."""
    nodes = [node for node in graph.nodes if node.reductions]
    if not nodes or not graph.is_plain or not has_plain_bodies(graph.nodes):
        return None
    space = match_loops(graph)
    if space is None or any(size == 0 for size in space.sizes):
        return None
    reductions = [reduction_of(node) for node in nodes]
    same_columns = all({space.of_node[node][loop] for loop in node.reductions} == space.reduced for node in nodes)
    results = graph.results
    reads = list(dict.fromkeys([*space.reads.values(), *initial_reads(graph, space)]))
    computable = all(is_computable(t.element) for t in (*(access.tensor for access in reads), *space.writes))
    if None in reductions or not same_columns or not results or not computable:
        return None
    if not all(_reads_every_point(space, node) for node in nodes):
        return None
    accesses = [*reads, *(space.writes[tensor] for tensor in results)]
    candidates = [access for access in reads if any(access.strides[loop] for loop in space.reduced)]
    bulk = max(candidates, key=lambda access: access.tensor.count, default=None)
    if bulk is None:
        return None
    order = sorted(range(len(space.sizes)), key=lambda loop: (bulk.strides[loop] != 0, -bulk.strides[loop]))
    rows = collapse(space.sizes, [loop for loop in order if loop not in space.reduced], accesses)
    columns = collapse(space.sizes, [loop for loop in order if loop in space.reduced], accesses)
    if not columns or any(space.loops_of(tensor) & space.reduced for node in nodes for tensor in outputs_of(node)):
        return None
    if not space.is_outermost_varying(rows):
        return None
    kept = [reduction for reduction in reductions if reduction is not None]
    return RowPlan(graph, space, tuple(rows), tuple(columns), tuple(kept), tuple(reads), tuple(results), bulk)


def _reads_every_point(space: Space, node: Node) -> bool:
    """Does a node walk over the whole space, and has it an input of that size?  Products of matrices have none."""
    walked = {loop for loop, size in enumerate(space.sizes) if size > 1}
    loops = space.of_node[node]
    return any(walked <= {loops[dim] for dim in operand.dims if dim is not None} for operand in node.inputs)
