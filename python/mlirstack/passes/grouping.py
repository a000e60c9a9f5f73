"""Which operations of ``@main`` become one kernel.

Takes the operations of a block in program order, returns groups: a root op (contraction, convolution, pooling, reduction)
with the initial fill and the elementwise ops after it, or a chain of reductions and elementwise ops over the same rows, such
as a softmax or a layer norm.  Every group leaves one tensor behind, or several where the kernels of the target can, and can
run as a whole: no value takes a way out of a group and back into it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlirstack.ir import kernels
from mlirstack.passes import functions
from mlirstack.passes.kernel_class import OpShape, kernel_class, op_shape
from mlirstack.passes.regions import external_values, known_shape, tensor_type

_ROOTS = (kernels.CONTRACTION, kernels.CONVOLUTION, kernels.POOLING)


@dataclass
class Group:
    """Operations in program order; ``kind`` is the class of the kernel, None for what stays where it is.

    ``is_given``: the group was handed in; no other op joins it.
    """

    kind: str | None
    ops: list[Any]
    is_given: bool = False
    before: set[int] = field(default_factory=set)  # groups that must run before this one


@dataclass(frozen=True)
class Policy:
    """What the kernels of a target can be.

    ``several_results``: they may leave more than one tensor, so that chains of elementwise ops stay together as well.
    ``any_scalar``: their bodies may compute on booleans and on loop indices.  ``any_size``: sizes may be dynamic.
    """

    several_results: bool = False
    any_scalar: bool = False
    any_size: bool = False


def group_operations(operations: list[Any], given: Sequence[Group] = (), policy: Policy = Policy()) -> list[Group]:
    """Groups of ``operations`` (a block without its terminator), in an order in which they can run.

    ``given`` are groups that are made already; :func:`order_with` has an order for them.
    """
    grouping = _Grouping(given, policy)
    for op in (order_with(dependences(operations), given) if given else None) or operations:
        grouping.add(op)
    if not policy.several_results:
        grouping.split_leaking()
    return grouping.ordered()


def dependences(operations: Sequence[Any]) -> dict[Any, set[Any]]:
    """What each op needs to have run before: the producers of its operands, and the last op with effects if it has any."""
    members = set(operations)
    needs: dict[Any, set[Any]] = {}
    last_effect = None
    for op in operations:
        producers = {functions.defining_op(value) for value in external_values(op)}
        needs[op] = {p for p in producers if p in members}
        if _has_effects(op):
            needs[op] |= set() if last_effect is None else {last_effect}
            last_effect = op
    return needs


def order_with(needs: Mapping[Any, set[Any]], given: Sequence[Group]) -> list[Any] | None:
    """The ops of ``needs`` (see :func:`dependences`) in an order in which those of each given group follow each other; None
    if there is none."""
    home = {op: number for number, group in enumerate(given) for op in group.ops}
    unit_of = {op: home.get(op, op) for op in needs}  # what must stay together
    units: dict[Any, list[Any]] = {}
    for op in needs:
        units.setdefault(unit_of[op], []).append(op)
    before = {unit: {unit_of[p] for op in ops for p in needs[op]} - {unit} for unit, ops in units.items()}
    after: dict[Any, list[Any]] = {unit: [] for unit in units}
    for unit, producers in before.items():
        for producer in producers:
            after[producer].append(unit)
    position = {unit: number for number, unit in enumerate(units)}
    missing = {unit: len(producers) for unit, producers in before.items()}
    names = list(units)
    ready = [position[unit] for unit in units if not missing[unit]]
    ordered: list[Any] = []
    while ready:
        unit = names[heapq.heappop(ready)]
        ordered += units[unit]
        for follower in after[unit]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, position[follower])
    return ordered if len(ordered) == len(needs) else None


class _Grouping:
    def __init__(self, given: Sequence[Group], policy: Policy) -> None:
        self.policy = policy
        self.groups: dict[int, Group] = {n: Group(group.kind, [], is_given=True) for n, group in enumerate(given)}
        self.given = {op: n for n, group in enumerate(given) for op in group.ops}
        self.of: dict[Any, int] = {}  # operation → its group
        self.makers: dict[Any, list[Any]] = {}  # operation → those that make what it reads
        self.kinds: dict[Any, str | None] = {}  # operation → its class
        self.shapes: dict[Any, OpShape | None] = {}  # operation → its loops
        self.last_effect: int | None = None

    def add(self, op: Any) -> None:
        if op in self.given:
            self._join(op, self.given[op])
            return
        kind = self._kind(op)
        home = self._home(op, kind) if kind else None
        if home is None:
            home = len(self.groups)
            self.groups[home] = Group(kind, [])
        elif kind != kernels.ELEMENTWISE:
            self.groups[home].kind = kind
        self._join(op, home)

    def _join(self, op: Any, home: int) -> None:
        group = self.groups[home]
        group.ops.append(op)
        self.of[op] = home
        for producer in self._producers(op):
            if producer != home:
                group.before |= {producer} | self.groups[producer].before
        if _has_effects(op):
            if self.last_effect is not None:
                group.before |= {self.last_effect} | self.groups[self.last_effect].before
            self.last_effect = home
        if len(group.ops) > 1:
            for other in self.groups.values():
                if home in other.before:
                    other.before |= group.before

    def _kind(self, op: Any) -> str | None:
        if op not in self.kinds:
            self.kinds[op] = class_of(op, self.policy)
        return self.kinds[op]

    def _shape(self, op: Any) -> OpShape | None:
        if op not in self.shapes:
            self.shapes[op] = op_shape(op)
        return self.shapes[op]

    def _producers(self, op: Any) -> set[int]:
        makers = self.makers.get(op)
        if makers is None:
            found = {functions.defining_op(value) for value in external_values(op)}
            makers = self.makers[op] = [p for p in found if p is not None]
        return {self.of[p] for p in makers if p in self.of}

    def _home(self, op: Any, kind: str) -> int | None:
        """The group of a producer that ``op`` can join, or None."""
        shape = self._shape(op)
        if kind in _ROOTS:
            return self._initial_value(op)
        if op.name == "tensor.insert_slice":
            return self._written_before(op)
        if shape is None or kind == kernels.OTHER:
            return None
        producers = self._producers(op)
        found = {self.of.get(p) for p in (functions.defining_op(value) for value in op.operands) if p is not None}
        homes = [home for home in found if home is not None and self._is_convex(home, producers)]
        # What follows a root belongs to it rather than to anything else.
        for home in sorted(homes, key=lambda n: (self.groups[n].kind not in _ROOTS, n)):
            if not self.groups[home].is_given and self._is_joined(self.groups[home], op, shape, kind):
                return home
        return None

    def _is_joined(self, group: Group, op: Any, shape: OpShape, kind: str) -> bool:
        """May ``op``, which reads results of ``group``, be computed in its kernel?"""
        if group.kind in (kernels.REDUCTION, kernels.ELEMENTWISE) and self._is_same_rows(group, op, shape, kind):
            return True
        if kind != kernels.ELEMENTWISE:
            return False
        if self.policy.several_results and group.kind in (*_ROOTS, kernels.ELEMENTWISE):
            return _is_same_space(group, op, shape)
        return group.kind in _ROOTS and _is_epilogue(group, op, shape)

    def _is_same_rows(self, group: Group, op: Any, shape: OpShape, kind: str) -> bool:
        """Does ``op`` work on the rows of a group of reductions, reading the group's values of the same row only?"""
        rows = self._rows(group) or (_rows_of(shape) if kind == kernels.REDUCTION else None)
        if rows is None:
            return False
        count = len(rows.parallel)
        full, own = rows.sizes, shape.sizes
        if own not in (full, full[:count]) or (kind == kernels.REDUCTION and _rows_of(shape) is None):
            return False
        expected = tuple(range(count if kind == kernels.REDUCTION else len(own)))
        if shape.dims[-1] != expected:
            return False
        members = {r for member in group.ops for r in member.results}
        for value, dims in zip(op.operands, shape.dims, strict=False):
            if value in members and dims not in (tuple(range(len(own))), tuple(range(count))):
                return False
        return all(self._fits_rows(member, full, count) for member in group.ops)

    def _fits_rows(self, member: Any, full: tuple[int | None, ...], count: int) -> bool:
        """Is a member's loop nest the full one, or that of the rows, written in loop order?"""
        shape = self._shape(member)
        if shape is None or shape.sizes not in (full, full[:count]):
            return False
        return shape.dims[-1] == tuple(range(len(shape.parallel)))

    def _rows(self, group: Group) -> OpShape | None:
        """The loops of the group's first reduction."""
        for member in group.ops:
            shape = self._shape(member)
            if shape is not None and shape.reductions:
                return _rows_of(shape)
        return None

    def _initial_value(self, root: Any) -> int | None:
        """The group of what a root starts from, such as a broadcast bias, where nothing else uses it."""
        value = root.operands[len(root.operands) - 1]
        producer = functions.defining_op(value)
        home = self.of.get(producer) if producer is not None else None
        if home is None:
            return None
        group = self.groups[home]
        if group.is_given or group.kind != kernels.ELEMENTWISE or len(group.ops) > 1:
            return None
        return home if len(list(value.uses)) == 1 else None

    def _written_before(self, insertion: Any) -> int | None:
        """The group of the slices that were written into the same tensor before, where nothing else reads it yet."""
        destination = insertion.operands[1]
        producer = functions.defining_op(destination)
        if producer is None or producer.name != "tensor.insert_slice" or len(list(destination.uses)) != 1:
            return None
        home = self.of.get(producer)
        return home if home is not None and self._is_convex(home, self._producers(insertion)) else None

    def _is_convex(self, home: int, producers: set[int]) -> bool:
        """Does none of the other producers depend on group ``home``?"""
        return all(home not in self.groups[p].before for p in producers if p != home)

    def split_leaking(self) -> None:
        """Take apart the groups of which more than the last op's result is used outside."""
        for number in list(self.groups):
            group = self.groups[number]
            while group.kind is not None and len(group.ops) > 1 and not group.is_given:
                leaking = [op for op in group.ops[:-1] if self._is_used_outside(op, number)]
                if not leaking:
                    break
                # An op that reads nothing of its group can leave alone; otherwise the group falls apart.
                leaving = leaking if not any(self._reads(op, number) for op in leaking) else group.ops[:-1]
                for op in leaving:
                    self._evict(op, number)
            if group.kind is not None and not group.is_given:
                group.kind = _leading(map(self._kind, group.ops))

    def _is_used_outside(self, op: Any, number: int) -> bool:
        return any(self.of.get(outermost(use.owner.operation, op.block)) != number for r in op.results for use in r.uses)

    def _reads(self, op: Any, number: int) -> bool:
        return number in self._producers(op)

    def _evict(self, op: Any, number: int) -> None:
        self.groups[number].ops.remove(op)
        alone = len(self.groups)
        self.groups[alone] = Group(self._kind(op), [op])
        self.of[op] = alone

    def ordered(self) -> list[Group]:
        """Topological order; among the groups that can run, the one whose first op came first."""
        needs = {number: self._needs(number) for number in self.groups}
        first = {op: position for position, op in enumerate(self.of)}
        waiting = sorted(self.groups, key=lambda n: first[self.groups[n].ops[0]])
        done: set[int] = set()
        order: list[Group] = []
        while waiting:
            number = next(n for n in waiting if needs[n] <= done)
            waiting.remove(number)
            done.add(number)
            order.append(self.groups[number])
        return order

    def _needs(self, number: int) -> set[int]:
        needs = {p for op in self.groups[number].ops for p in self._producers(op)}
        return (needs | {n for n in self.groups[number].before if n in self.groups}) - {number}


_MOVES_DATA = ("tensor.insert_slice", "scf.for", "scf.if", "scf.while")


def class_of(op: Any, policy: Policy = Policy()) -> str | None:
    """The kernel class of an op; None for what stays in ``@main``: views, allocations, scalars, and fills, which go with the
    op that reads them."""
    if not any(tensor_type(result) is not None for result in op.results) or op.name == "linalg.fill":
        return None
    if op.name.startswith("linalg."):
        return kernel_class(op, any_scalar=policy.any_scalar, any_size=policy.any_size)
    return kernels.OTHER if op.name in _MOVES_DATA or op.name.startswith("tm_tensor.") else None


_EFFECT_FREE = frozenset(
    {"arith", "math", "tensor", "linalg", "complex", "index", "tm_tensor", "bufferization", "affine", "ub"}
)


def _has_effects(op: Any) -> bool:
    return op.name.split(".", 1)[0] not in _EFFECT_FREE


def outermost(op: Any, block: Any) -> Any:
    """The op of ``block`` that ``op`` is nested in, or itself."""
    while op.block != block:
        op = op.parent.operation
    return op


def _is_epilogue(group: Group, op: Any, shape: OpShape) -> bool:
    """Is an elementwise op over exactly the elements of what the group's last op leaves to it alone?"""
    results = list(group.ops[-1].results)
    identity = tuple(range(len(shape.sizes)))
    read = [dims for value, dims in zip(op.operands, shape.dims, strict=True) if value in results]
    users = {use.owner.operation for result in results for use in result.uses}
    return bool(read) and len(users) == 1 and all(dims == identity for dims in (*read, shape.dims[-1]))


def _is_same_space(group: Group, op: Any, shape: OpShape) -> bool:
    """Is an elementwise op over the elements of the group's results, reading each at its own place?"""
    identity = tuple(range(len(shape.sizes)))
    members = {result for member in group.ops for result in member.results}
    sizes = [known_shape(kind) for kind in map(tensor_type, members) if kind is not None]
    read = [dims for value, dims in zip(op.operands, shape.dims, strict=True) if value in members]
    return all(own == shape.sizes for own in sizes) and all(dims == identity for dims in (*read, shape.dims[-1]))


def _rows_of(shape: OpShape) -> OpShape | None:
    """``shape`` itself if its innermost loops are the reductions, its input is read in loop order, and there are rows."""
    count = len(shape.parallel)
    is_innermost = shape.reductions == tuple(range(count, len(shape.sizes))) and count > 0
    return shape if is_innermost and shape.dims[0] == tuple(range(len(shape.sizes))) else None


def class_of_group(ops: Sequence[Any], policy: Policy = Policy()) -> str:
    """The class of a group of ops: that of its root."""
    return _leading(class_of(op, policy) for op in ops)


def _leading(kinds: Iterable[str | None]) -> str:
    present = set(kinds)
    return next((kind for kind in (*_ROOTS, kernels.REDUCTION, kernels.ELEMENTWISE) if kind in present), kernels.OTHER)
