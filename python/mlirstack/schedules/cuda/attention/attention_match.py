"""Attention found in a kernel graph: ``softmax(mask(factor · Q Kᵀ)) V``, however it was written and fused.

Takes a graph over tensors or memrefs, of one kernel or of a whole function; leaves an :class:`Attention`: where Q, K, V and
the output lie, and the scores as an expression of the product.  Nothing is changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from mlirstack.schedules.cuda.attention.attention_description import BATCH, COLUMN, KEY, ROW, Attention
from mlirstack.schedules.cuda.attention.attention_expression import (
    Apply,
    Element,
    Expression,
    Expressions,
    Move,
    factors_of,
    is_elementwise,
    is_view,
    leaves,
    move,
    uncast,
    uses_outside,
)
from mlirstack.schedules.cuda.attention.attention_layout import Layout, compose, dimension, inverse, size_of
from mlirstack.schedules.cuda.attention.attention_reading import ACCUMULATOR, Mismatch, Reading, starts_from
from mlirstack.schedules.cuda.attention.attention_softmax import read_row_formula, read_softmax
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Tensor

_VALUE = Apply("value", (), None)
_CASTS = frozenset(("arith.extf", "arith.truncf"))
_TRANSPORT = frozenset(("arith.extf", "arith.mulf"))  # what may be done to Q, K and V on their way into the products


@dataclass(frozen=True)
class Refusal:
    """A softmax times a matrix that is not taken, and why; ``product``: Q Kᵀ, if the reason is inside of it."""

    node: Node
    reason: str
    product: Node | None = None


def find(graph: KernelGraph) -> tuple[list[Attention], list[Refusal]]:
    """All attentions of a graph, and the contractions over a softmax that are not taken."""
    found, refused = [], []
    for node in graph.structured():
        if len(node.reductions) != 1 or len(node.inputs) < 2 or None in node.sizes or 0 in node.sizes:
            continue
        reasons = []
        for number, column in _value_inputs(node):
            try:
                found.append(_Matcher(graph, node, number, column).match())
                break
            except Mismatch as mismatch:
                reasons.append(mismatch)
        else:
            refused += [Refusal(node, str(reason), reason.product) for reason in reasons if reason.is_softmax][:1]
    return found, refused


def match(graph: KernelGraph) -> Attention | None:
    """``graph`` as one attention and nothing else; None where it is not."""
    found, _ = find(graph)
    if len(found) != 1 or {node for node in graph.nodes if node.is_structured} - set(found[0].nodes):
        return None
    return found[0]


def _value_inputs(node: Node) -> Iterator[tuple[int, int]]:
    """Inputs that may be V, each with the loop that may be its column: no other input is read along it."""
    key = node.reductions[0]
    for number, operand in enumerate(node.inputs):
        others = {loop for other in node.inputs if other is not operand for loop in other.dims}
        own = [loop for loop in operand.dims if loop not in (None, key) and loop not in others]
        if key in operand.dims and own:
            yield number, max(loop for loop in own if loop is not None)


class _Matcher:
    """Follows one contraction, taken as weights times V, back to Q and K."""

    def __init__(self, graph: KernelGraph, node: Node, value: int, column: int) -> None:
        self._graph = graph
        self._node = node
        self._value = value
        self._column = column
        self._reading = Reading()
        self._require = self._reading.require
        self._operands = Expressions(_TRANSPORT)
        self._core = {node}  # nodes that depend on the scores, and the product

    def match(self) -> Attention:
        """The attention; raises :class:`Mismatch`."""
        self._canonical = self._index_roles()
        weights, factor = self._weights_of_product()
        value = self._plain_value()
        self._require(factor == 1.0, "the weights are multiplied by a constant")
        softmax = read_softmax(self._reading, weights)
        product, query, key, scale = self._product(softmax.scores)
        self._check_layouts(query, key, value)
        output = self._output()
        group = self._core | self._reading.nodes | self._operands.visited
        formula, extra = read_row_formula(self._graph, group, softmax) or (None, set())
        results = (output.tensor,) if formula is None else (output.tensor, formula.output.tensor)
        sizes = [size_of(digits) for digits in self._sizes.dimensions]
        width = product.sizes[product.reductions[0]] or 0
        return Attention(
            query, key, value, output, sizes[BATCH], sizes[ROW], sizes[KEY], width, sizes[COLUMN], scale,
            _result(product), softmax.scores, softmax.nothing, formula, self._group(group | extra, results),
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------ the weights

    def _index_roles(self) -> Move:
        """From the loops of weights times V to (batch, row, key, column)."""
        node = self._node
        others = [loop for i, operand in enumerate(node.inputs) if i != self._value for loop in operand.dims]
        order = [loop for loop in node.outputs[0].dims if loop is not None]
        self._require(sorted([*order, *node.reductions]) == list(range(len(node.iterators))), "the output has gaps")
        values = node.inputs[self._value].dims
        rows = [loop for loop in order if loop != self._column and loop not in values and loop in others]
        row = (rows or [loop for loop in order if loop != self._column and node.sizes[loop] == 1])[-1:]
        batch = [loop for loop in order if loop not in (*row, self._column)]
        permutation = [*batch, *row, node.reductions[0], self._column]
        ends = [0, len(batch), len(batch) + len(row), len(permutation) - 1, len(permutation)]  # a single row has no loop
        groups = [list(range(start, end)) for start, end in itertools.pairwise(ends)]

        def canonical(layout: Layout) -> Layout:
            return layout.permute(permutation).collapse(groups)

        self._sizes = canonical(Layout(tuple(dimension([(size or 1, 1)]) for size in node.sizes)))
        return canonical

    def _weights_of_product(self) -> tuple[list[Expression], float]:
        """The factors of the summand besides V."""
        node = self._node
        self._require(starts_from(node, 0.0, 0.0), "the sum does not start from zero")
        body = self._reading.expressions.body(node, 0, {self._value: _VALUE, len(node.inputs): ACCUMULATOR})
        factors, factor = factors_of(self._reading.other(body, ("arith.addf",)))
        self._require(factors.count(_VALUE) == 1, "V is not a factor")
        factors.remove(_VALUE)
        return [self._moved(expression) for expression in factors], factor

    # ------------------------------------------------------------------------------------------------------ the product

    def _product(self, scores: Expression) -> tuple[Node, Element, Element, float]:
        """The node of Q Kᵀ; Q, K and the constant factor."""
        for leaf in leaves(scores):
            node = leaf.tensor.producer if isinstance(leaf, Element) else None
            if node is None or len(node.reductions) != 1 or not starts_from(node, 0.0, 0.0) or None in node.sizes:
                continue
            assert isinstance(leaf, Element)
            body = self._operands.body(node, 0, {len(node.inputs): ACCUMULATOR})
            summand = self._reading.other(body, ("arith.addf",))
            factors, scale = factors_of(self._reading.substituted(summand, leaf, node, COLUMN))
            plain = [factor for factor in factors if isinstance(factor, Element)]
            if len(plain) != 2 or len(factors) != 2:
                raise self._reading.mismatch("Q or K is computed inside of the product", node)
            self._core.add(node)
            query, key = plain if plain[0].layout.ignores(KEY) else plain[::-1]
            return node, query, key, scale
        raise self._reading.mismatch("there is no product among the scores")

    def _plain_value(self) -> Element:
        """V; no constant factor may be hidden in it."""
        expression = self._operands.operand(self._node, self._value)
        self._require(expression is not None, "V is read in an unusual order")
        assert expression is not None
        factors, factor = factors_of(self._moved(expression))
        if len(factors) == 1 and isinstance(factors[0], Element) and factor == 1.0:
            return factors[0]
        raise self._reading.mismatch("V is computed inside of the product")

    def _check_layouts(self, query: Element, key: Element, value: Element) -> None:
        self._require(query.layout.ignores(KEY) and key.layout.ignores(ROW), "the product is not one of rows and keys")
        self._require(value.layout.ignores(ROW), "V depends on the row")

    # ----------------------------------------------------------------------------------------------------------- indices

    def _moved(self, expression: Expression) -> Expression:
        moved = move(expression, self._canonical)
        self._require(moved is not None, "indices that are no digits")
        assert moved is not None
        return moved

    # ------------------------------------------------------------------------------------------------------------ output

    def _output(self) -> Element:
        """The last tensor that is the result and nothing but moved and rounded, over (batch, row, key, column)."""
        own = _result(self._node)
        best, flat = own, inverse(Layout.dense([size or 1 for size in own.shape]))
        current = own
        while len(set(current.users)) == 1 and (is_view(current.users[0]) or is_elementwise(current.users[0])):
            node = current.users[0]
            if len(node.outputs) != 1 or node.outputs[0].tensor is None or len(node.inputs) != 1:
                break
            current, way = node.outputs[0].tensor, Expressions(_CASTS)
            expression = uncast(way.of(current))
            places = inverse(expression.layout) if isinstance(expression, Element) and expression.tensor is own else None
            if places is None:
                break
            if is_elementwise(node):
                best, flat = current, places
                self._core |= way.visited
        dense = Layout.dense([size or 1 for size in own.shape])
        order = [loop for loop in self._node.outputs[0].dims if loop is not None]
        loops = [dimension([(size or 1, 0)]) for size in self._node.sizes]
        for loop, digits in zip(order, dense.dimensions, strict=True):
            placed = compose(flat or (), digits)
            self._require(placed is not None, "indices of the output that are no digits")
            loops[loop] = placed or ()
        layout = self._canonical(Layout(tuple(loops)))
        self._require(layout is not None, "indices of the output that are no digits")
        assert layout is not None
        return Element(best, layout)

    def _group(self, group: set[Node], results: tuple[Tensor, ...]) -> tuple[Node, ...]:
        """The nodes of ``group`` that ``results`` need, in order; what depends on the scores is read by nobody else."""
        pending = {tensor.producer for tensor in results}
        depends: set[Tensor] = set()
        nodes = []
        for node in self._graph.nodes:
            if node not in group or not pending:
                continue
            pending.discard(node)
            nodes.append(node)
            if node in self._core | self._reading.reductions or any(operand.tensor in depends for operand in node.inputs):
                made = [operand.tensor for operand in node.outputs if operand.tensor is not None]
                depends.update(made)
                role = "sums or maxima" if node in self._reading.reductions else "scores or weights"
                leaves_group = any(tensor not in results and uses_outside(tensor, group) for tensor in made)
                self._require(not leaves_group, f"the {role} are needed outside of the attention")
        return tuple(nodes)


def _result(node: Node) -> Tensor:
    tensor = node.outputs[0].tensor
    assert tensor is not None
    return tensor
