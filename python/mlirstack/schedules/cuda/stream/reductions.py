"""What a reduction over loops means, taken from the body of its op: terms, how partial results combine, where they start.

Two kinds: outputs that are each combined by one operation (sums, products, extrema, logic), and a value with its position
(argmax and argmin).  Sums and products of 16-bit floats are kept in f32 and rounded once, as torch does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.graph import Node
from mlirstack.schedules.cuda.values import tree

if TYPE_CHECKING:
    from mlirstack.schedules.cuda.kernel import Kernel

Replace = Callable[[Any, Callable[[Any], Any]], Any]

_FLOAT_NEUTRAL = {
    "arith.addf": 0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": float("-inf"),
    "arith.minimumf": float("inf"),
}
_INTEGER_NEUTRAL: dict[str, Callable[[int], int]] = {  # by the width in bits
    "arith.addi": lambda _: 0,
    "arith.muli": lambda _: 1,
    "arith.andi": lambda _: -1,
    "arith.ori": lambda _: 0,
    "arith.xori": lambda _: 0,
    "arith.maxsi": lambda width: -(1 << (width - 1)),
    "arith.minsi": lambda width: (1 << (width - 1)) - 1,
    "arith.maxui": lambda _: 0,
    "arith.minui": lambda _: -1,
}


@dataclass(frozen=True)
class Combined:
    """Outputs that are combined on their own: ``yield combiner(term, out)``.

    ``combiners`` are op names, ``terms`` values of the body, one per output.
    """

    node: Node
    combiners: tuple[str, ...]
    terms: tuple[Any, ...]

    @property
    def types(self) -> list[Any]:
        """MLIR types of partial results."""
        return [self._kept(op, term.type) for op, term in zip(self.combiners, self.terms, strict=True)]

    def neutral(self, kernel: Kernel, start: Sequence[Any]) -> list[Any]:
        """Partial results of nothing.  ``start``: what the outputs hold before the op (None where unknown)."""
        return [dialect("arith").ConstantOp(a.type, a).result for a in self.neutral_attributes()]

    def neutral_attributes(self) -> list[Any]:
        """The neutral elements, as attributes."""
        return [_neutral(op, kind) for op, kind in zip(self.combiners, self.types, strict=True)]

    def term(self, operands: Sequence[Any], indices: Sequence[Any], forms: Replace) -> list[Any]:
        """What one point of the space contributes; ``forms`` as in :meth:`Node.inline`."""
        scalars = [*operands, *self._placeholders()]
        found = _inline_terms(self.node, self.terms, scalars, indices, forms)
        return [_cast(value, kind) for value, kind in zip(found, self.types, strict=True)]

    def merge(self, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        """Two partial results as one, in any order."""
        return [_apply(op, *pair) for op, *pair in zip(self.combiners, a, b, strict=True)]

    append = merge

    def fold(self, parts: Sequence[Sequence[Any]]) -> list[Any]:
        """Partial results, in the order of the loop, as one: pairwise, for a short chain of dependent operations."""
        return list(tree(self.merge, list(parts)))

    def finish(self, total: Sequence[Any], start: Sequence[Any]) -> list[Any]:
        """The outputs, given what they hold before the op."""
        outputs = []
        for op, value, first, term in zip(self.combiners, total, start, self.terms, strict=True):
            outputs.append(_cast(_apply(op, _cast(first, value.type), value), term.type))
        return outputs

    def _placeholders(self) -> list[Any]:
        """Values for the outputs' arguments; only the combiners, which are not wanted, use them."""
        return [dialect("arith").ConstantOp(term.type, _neutral(op, term.type)).result for op, term in self._pairs()]

    def _pairs(self) -> list[tuple[str, Any]]:
        return list(zip(self.combiners, self.terms, strict=True))

    @staticmethod
    def _kept(op: str, kind: Any) -> Any:
        narrow = isinstance(kind, (ir.F16Type, ir.BF16Type)) and op in ("arith.addf", "arith.mulf")
        return ir.F32Type.get() if narrow else kind


@dataclass(frozen=True)
class Selected:
    """A value and its position: ``yield select(better, index, out_index), select(better, value, out_value)``, in any order.

    ``value`` is the number of the output that holds the value, ``better`` the condition in the body.  Where two values are
    equally good the one that the loop meets first (or last, where the condition says so) is taken, in whatever order
    partial results meet.
    """

    node: Node
    value: int
    better: Any
    terms: tuple[Any, ...]

    @property
    def types(self) -> list[Any]:
        """MLIR types of partial results."""
        return [term.type for term in self.terms]

    def neutral(self, kernel: Kernel, start: Sequence[Any]) -> list[Any]:
        """Partial results of nothing: what the outputs hold before the op, which every value is compared with anyway."""
        return list(start)

    def term(self, operands: Sequence[Any], indices: Sequence[Any], forms: Replace) -> list[Any]:
        """What one point of the space contributes; ``forms`` as in :meth:`Node.inline`."""
        arith = dialect("arith")
        placeholders = [arith.ConstantOp(kind, _zero(kind)).result for kind in self.types]
        return _inline_terms(self.node, self.terms, [*operands, *placeholders], indices, forms)

    def append(self, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        """``b`` after ``a`` in the order of the loop."""
        return self._choose(self._is_better(b, a), b, a)

    def merge(self, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        """Two partial results as one, in any order."""
        arith = dialect("arith")
        after, before = self._is_better(b, a), self._is_better(a, b)
        position = 1 - self.value
        smaller, larger = (
            arith.CmpIOp(kind, b[position], a[position]).result
            for kind in (arith.CmpIPredicate.slt, arith.CmpIPredicate.sgt)
        )
        # Better than the other: taken.  Each, or neither, better than the other: the condition decides between equals.
        equals = arith.SelectOp(after, larger, smaller).result
        same = arith.CmpIOp(arith.CmpIPredicate.eq, after, before).result
        return self._choose(arith.SelectOp(same, equals, after).result, b, a)

    def fold(self, parts: Sequence[Sequence[Any]]) -> list[Any]:
        """Partial results, in the order of the loop, as one."""
        total = list(parts[0])
        for part in parts[1:]:
            total = self.append(total, part)
        return total

    def finish(self, total: Sequence[Any], start: Sequence[Any]) -> list[Any]:
        """The outputs: partial results started from ``start`` already."""
        return list(total)

    def _choose(self, condition: Any, yes: Sequence[Any], no: Sequence[Any]) -> list[Any]:
        return [dialect("arith").SelectOp(condition, y, n).result for y, n in zip(yes, no, strict=True)]

    def _is_better(self, candidate: Sequence[Any], holder: Sequence[Any]) -> Any:
        """The condition of the body, for two partial results."""
        mapping = {self.terms[self.value]: candidate[self.value], self._out_value: holder[self.value]}
        return _clone_slice(self.better, mapping)

    @property
    def _out_value(self) -> Any:
        return self.node.body.arguments[len(self.node.inputs) + self.value]


Reduction = Combined | Selected


def reduction_of(node: Node) -> Reduction | None:
    """What a node with reduction loops computes; None where its body is of neither kind."""
    return _combined(node) or _selected(node)


def _combined(node: Node) -> Combined | None:
    combiners, terms = [], []
    arguments = list(node.body.arguments)[len(node.inputs) :]
    for argument, yielded in zip(arguments, functions.yield_op(node.body).operands, strict=True):
        producer = functions.defining_op(yielded)
        if producer is None or producer.name not in (*_FLOAT_NEUTRAL, *_INTEGER_NEUTRAL) or len(list(argument.uses)) != 1:
            return None
        others = [value for value in producer.operands if value != argument]
        if len(others) != 1:
            return None
        combiners.append(str(producer.name))
        terms.append(others[0])
    return Combined(node, tuple(combiners), tuple(terms))


def _selected(node: Node) -> Selected | None:
    arguments = list(node.body.arguments)[len(node.inputs) :]
    producers = [functions.defining_op(value) for value in functions.yield_op(node.body).operands]
    if len(arguments) != 2 or any(p is None or p.name != "arith.select" for p in producers):
        return None
    selects = [p for p in producers if p is not None]
    better, terms = selects[0].operands[0], tuple(select.operands[1] for select in selects)
    if selects[1].operands[0] != better or any(s.operands[2] != a for s, a in zip(selects, arguments, strict=True)):
        return None
    positions = [number for number, term in enumerate(terms) if _is_position(term)]
    if len(positions) != 1:
        return None
    value = 1 - positions[0]
    if not _slice_ends_at(better, {terms[value], arguments[value]}):
        return None
    return Selected(node, value, better, terms)


def _inline_terms(
    node: Node, terms: Sequence[Any], scalars: Sequence[Any], indices: Sequence[Any], forms: Replace
) -> list[Any]:
    """The body with each op that is yielded left out: what would be combined or selected takes its place."""
    by_result = dict(zip(functions.yield_op(node.body).operands, terms, strict=True))

    def term(op: Any, value: Callable[[Any], Any]) -> Any:
        found = next((result for result in op.results if result in by_result), None)
        return forms(op, value) if found is None else value(by_result[found])

    return node.inline(scalars, indices, replace=term)


def _is_position(value: Any) -> bool:
    """Is it a loop's index, cast or not?"""
    producer = functions.defining_op(value)
    while producer is not None and producer.name in ("arith.index_cast", "arith.index_castui"):
        producer = functions.defining_op(producer.operands[0])
    return producer is not None and producer.name == "linalg.index"


def _slice_ends_at(value: Any, ends: set[Any]) -> bool:
    """Is ``value`` computed from ``ends`` and constants alone?"""
    if value in ends:
        return True
    producer = functions.defining_op(value)
    if producer is None or producer.name == "linalg.index":
        return False
    return all(_slice_ends_at(operand, ends) for operand in producer.operands)


def _clone_slice(value: Any, mapping: dict[Any, Any]) -> Any:
    """``value`` computed again at the insertion point, from what ``mapping`` says."""
    if value in mapping:
        return mapping[value]
    producer = functions.defining_op(value)
    assert producer is not None, "the slice ends at the mapped values"
    operands = [_clone_slice(operand, mapping) for operand in producer.operands]
    copy = producer.clone().operation
    for position, operand in enumerate(operands):
        copy.operands[position] = operand
    mapping.update(zip(producer.results, copy.results, strict=True))
    return mapping[value]


def _apply(op: str, a: Any, b: Any) -> Any:
    return ir.Operation.create(op, results=[a.type], operands=[a, b]).results[0]


def _neutral(op: str, kind: Any) -> Any:
    if op in _FLOAT_NEUTRAL:
        return ir.FloatAttr.get(kind, _FLOAT_NEUTRAL[op])
    return ir.IntegerAttr.get(kind, _INTEGER_NEUTRAL[op](kind.width))


def _zero(kind: Any) -> Any:
    is_integer = isinstance(kind, (ir.IntegerType, ir.IndexType))
    return ir.IntegerAttr.get(kind, 0) if is_integer else ir.FloatAttr.get(kind, 0.0)


def _cast(value: Any, kind: Any) -> Any:
    """A float of another width; other values have their type already."""
    arith = dialect("arith")
    if value.type == kind:
        return value
    return (arith.ExtFOp if kind.width > value.type.width else arith.TruncFOp)(kind, value).result
