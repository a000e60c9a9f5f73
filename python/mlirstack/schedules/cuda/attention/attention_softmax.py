"""The softmax of an attention: its exponentials, sums and maxima read from the weights, whichever way they were written.

Takes the factors of the weights; leaves a :class:`Softmax`, and the formula of a row that is computed beside it, such as
``torch.logsumexp`` of the same scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlirstack.bindings import dialect
from mlirstack.passes import functions
from mlirstack.schedules.cuda.attention.attention_description import RowFormula
from mlirstack.schedules.cuda.attention.attention_expression import (
    Apply,
    Element,
    Expression,
    Expressions,
    constant,
    factors_of,
    is_elementwise,
    leaves,
    uncast,
    uses_outside,
)
from mlirstack.schedules.cuda.attention.attention_layout import Layout, compose, inverse
from mlirstack.schedules.cuda.attention.attention_reading import LOWEST, Mismatch, Reading
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Tensor


@dataclass(frozen=True)
class Softmax:
    """``exp(scores - maximum) / total``; rows whose maximum is at most ``nothing`` give zeros (None: the formula's NaN)."""

    scores: Expression
    maximum: Element
    total: Element
    nothing: float | None


def read_softmax(reading: Reading, factors: list[Expression]) -> Softmax:
    """The softmax that is the product of ``factors``; raises :class:`Mismatch`."""
    guarded, nothing = None, None
    if len(factors) == 1 and isinstance(factors[0], Apply) and factors[0].name == "arith.select":
        condition, yes, no = factors[0].arguments
        reading.require(constant(uncast(yes)) == 0.0, "a selection among the weights")
        found = _at_most(condition)
        if found is None:
            raise reading.mismatch("a comparison among the weights")
        guarded, nothing = found
        factors, _ = factors_of(no)
    exponential, total = _quotient(factors)
    if not isinstance(total, Element):
        raise reading.mismatch("the weights are not divided by a sum")
    reading.require(reading.sum_over_keys(total) == exponential, "the sum is not that of the exponentials")
    reading.require(isinstance(exponential, Apply) and exponential.name == "math.exp", "no exponential")
    reading.is_softmax = True
    shifted = _difference(exponential)
    maximum = _unguarded(shifted[1]) if shifted is not None else None
    if shifted is None or not isinstance(maximum, Element):
        raise reading.mismatch("no maximum is subtracted from the scores")
    reading.require(reading.maximum_over_keys(maximum) == shifted[0], "the maximum is not that of the scores")
    reading.require(guarded in (None, maximum), "rows are guarded by something else than their maximum")
    return Softmax(shifted[0], maximum, total, nothing)


def _quotient(factors: list[Expression]) -> tuple[Expression, Expression | None]:
    """Numerator and denominator of ``e / s`` or ``e * (1 / s)``."""
    if len(factors) == 1 and isinstance(factors[0], Apply) and factors[0].name == "arith.divf":
        numerator, denominator = (uncast(argument) for argument in factors[0].arguments)
        return numerator, denominator
    for first, second in (factors, factors[::-1]) if len(factors) == 2 else ():
        if isinstance(second, Apply) and second.name == "arith.divf" and constant(second.arguments[0]) == 1.0:
            return first, uncast(second.arguments[1])
    return factors[0], None


def _difference(exponential: Expression) -> tuple[Expression, Expression] | None:
    """Both sides of the difference whose exponential this is."""
    argument = uncast(exponential.arguments[0]) if isinstance(exponential, Apply) and exponential.arguments else None
    if not isinstance(argument, Apply) or argument.name != "arith.subf":
        return None
    return argument.arguments[0], argument.arguments[1]


def _unguarded(shift: Expression) -> Expression:
    """x, where ``shift`` is 0 for x of no row (at most the lowest number) or for infinite x, else x.

    Exponentials of the scores of such rows are 0 either way, or a score is infinity.
    """
    if not isinstance(shift, Apply) or shift.name != "arith.select" or constant(shift.arguments[1]) != 0.0:
        return shift
    condition, _, kept = shift.arguments
    bounded = _at_most(condition)
    if bounded is not None:
        return kept if bounded[0] == kept and bounded[1] <= LOWEST else shift
    is_equal = isinstance(condition, Apply) and condition.name == "arith.cmpf" and _predicate(condition) == "OEQ"
    if not is_equal or not isinstance(condition, Apply) or constant(condition.arguments[1]) != float("inf"):
        return shift
    size = condition.arguments[0]
    return kept if isinstance(size, Apply) and size.name == "math.absf" and size.arguments == (kept,) else shift


def _at_most(condition: Expression) -> tuple[Expression, float] | None:
    """x and c where ``condition`` is ``x <= c``, in either order, or ``x == -inf``."""
    if not isinstance(condition, Apply) or condition.name != "arith.cmpf":
        return None
    left, right = condition.arguments
    compared, bound = {
        "OLE": (left, constant(right)),
        "OGE": (right, constant(left)),
        "OEQ": (left, constant(right) if constant(right) == float("-inf") else None),
    }.get(_predicate(condition), (left, None))
    return (compared, bound) if bound is not None else None


def _predicate(comparison: Apply) -> str:
    number = functions.integer(comparison.op.attributes["predicate"])
    return str(dialect("arith").CmpFPredicate(number).name)


# ------------------------------------------------------------------------------------------------------ formula of a row


def read_row_formula(graph: KernelGraph, group: set[Node], softmax: Softmax) -> tuple[RowFormula, set[Node]] | None:
    """What is computed from the sums, and maybe the maxima, besides the weights, and the nodes that compute it.

    ``group`` are the nodes of the attention.  None where there is nothing, or where not all of it can leave as one tensor.
    """
    own: dict[Tensor, Layout] = {e.tensor: e.layout for e in (softmax.maximum, softmax.total)}
    sums = dict(_other_sums(graph, group, softmax))
    for node in graph.nodes:
        tensor = node.outputs[0].tensor if is_elementwise(node) and len(node.outputs) == 1 else None
        if tensor is None or node in group or not tensor.is_static or tensor.count != softmax.total.tensor.count:
            continue
        way = Expressions()
        value = way.of(tensor)
        read = list(leaves(value))
        elements = [leaf for leaf in read if isinstance(leaf, Element) and leaf.tensor in (*own, *sums)]
        if len(elements) < len(read) or all(element.tensor is softmax.maximum.tensor for element in elements):
            continue
        places = [_places(element, own.get(element.tensor, softmax.total.layout)) for element in elements]
        nodes = way.visited.union(*(sums.get(element.tensor, ()) for element in elements))
        inside = group | nodes
        if places[0] is None or places.count(places[0]) < len(places) or any(uses_outside(t, inside) for t in own):
            continue
        return RowFormula(Element(tensor, places[0]), value, softmax.maximum.tensor), nodes
    return None


def _other_sums(graph: KernelGraph, group: set[Node], softmax: Softmax) -> Iterator[tuple[Tensor, set[Node]]]:
    """Sums of the same exponentials that were computed for the formula, each with its nodes."""
    for node in graph.nodes:
        if len(node.reductions) != 1 or node in group or len(node.outputs) != 1:
            continue
        tensor, reading = node.outputs[0].tensor, Reading()
        if tensor is None or tensor.shape != softmax.total.tensor.shape:
            continue
        try:
            exponential = reading.sum_over_keys(Element(tensor, softmax.total.layout))
        except Mismatch:
            continue
        shifted = _difference(exponential) if isinstance(exponential, Apply) and exponential.name == "math.exp" else None
        if shifted is not None and shifted[0] == softmax.scores and _unguarded(shifted[1]) == softmax.maximum:
            yield tensor, reading.nodes


def _places(element: Element, read: Layout) -> Layout | None:
    """Where a tensor has the number that it computes of ``element``, over the indices at which ``read`` reads the same."""
    flat = inverse(element.layout)
    dimensions = [compose(flat, digits) for digits in read.dimensions] if flat is not None else [None]
    return None if None in dimensions else Layout(tuple(digits for digits in dimensions if digits is not None))
