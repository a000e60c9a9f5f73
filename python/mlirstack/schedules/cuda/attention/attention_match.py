"""Attention found in a kernel graph: ``softmax(mask(factor · Q Kᵀ)) V``, however it was written and fused.

Takes a graph over tensors or memrefs, of one kernel or of a whole function; leaves an :class:`Attention`: where Q, K, V and
the output lie, and the scores as an expression of the product.  Nothing is changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.attention.attention_expression import (
    Apply,
    Element,
    Expression,
    Expressions,
    Move,
    constant,
    factors_of,
    is_elementwise,
    is_view,
    leaves,
    move,
    replace_leaves,
    uncast,
    uses_outside,
)
from mlirstack.schedules.cuda.attention.attention_layout import Dimension, Layout, compose, dimension, inverse, size_of
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Tensor

BATCH, ROW, KEY, COLUMN = range(4)  # dimensions of every layout of an Attention
_LOWEST = -3.4e38  # a maximum that starts here or below starts from "nothing"
_ACCUMULATOR = Apply("accumulator", (), None)
_VALUE = Apply("value", (), None)
_CASTS = frozenset(("arith.extf", "arith.truncf"))
_TRANSPORT = frozenset(("arith.extf", "arith.mulf"))  # what may be done to Q, K and V on their way into the products


@dataclass(frozen=True)
class Attention:
    """One attention.  All layouts are over (batch and heads, query row, key, column of the head).

    ``scores`` is the argument of the softmax; in it ``product`` is the sum over columns of Q times K, not yet times
    ``factor``.  Rows whose largest score is at most ``nothing`` give zeros; None: they give what the formula gives, NaN.
    ``nodes`` are in program order, the last one writes ``output``.
    """

    query: Element
    key: Element
    value: Element
    output: Element
    batch: int
    rows: int
    keys: int
    width: int  # columns of Q and K
    value_width: int
    factor: float
    product: Tensor
    scores: Expression
    nothing: float | None
    nodes: tuple[Node, ...]

    @property
    def flops(self) -> int:
        """Multiplications and additions of both products."""
        return 2 * self.batch * self.rows * self.keys * (self.width + self.value_width)


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
            except _Mismatch as mismatch:
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


class _Mismatch(Exception):
    """Why a contraction is no attention; ``is_softmax``: its weights are a softmax, so that the reason is of interest."""

    def __init__(self, reason: str, is_softmax: bool, product: Node | None = None) -> None:
        super().__init__(reason)
        self.is_softmax = is_softmax
        self.product = product


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
        self._weights = Expressions()
        self._operands = Expressions(_TRANSPORT)
        self._core = {node}  # nodes that depend on the scores, and the product
        self._is_softmax = False

    def match(self) -> Attention:
        """The attention; raises :class:`_Mismatch`."""
        self._canonical = self._index_roles()
        weights, factor = self._weights_of_product()
        value = self._plain_value()
        self._require(factor == 1.0, "the weights are multiplied by a constant")
        exponential, nothing = self._softmax(weights)
        self._require(isinstance(exponential, Apply) and exponential.name == "math.exp", "no exponential")
        self._is_softmax = True
        scores = self._shifted(exponential)
        product, query, key, scale = self._product(scores)
        self._check_layouts(query, key, value)
        output = self._output()
        sizes = [size_of(digits) for digits in self._sizes.dimensions]
        width = product.sizes[product.reductions[0]] or 0
        return Attention(
            query, key, value, output, sizes[BATCH], sizes[ROW], sizes[KEY], width, sizes[COLUMN], scale,
            _result(product), scores, nothing, self._group(output),
        )  # fmt: skip

    def _require(self, condition: bool, reason: str) -> None:
        if not condition:
            raise _Mismatch(reason, self._is_softmax)

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
        self._require(_starts_from(node, 0.0, 0.0), "the sum does not start from zero")
        body = self._weights.body(node, 0, {self._value: _VALUE, len(node.inputs): _ACCUMULATOR})
        factors, factor = factors_of(self._other(body, "arith.addf"))
        self._require(factors.count(_VALUE) == 1, "V is not a factor")
        factors.remove(_VALUE)
        return [self._moved(expression) for expression in factors], factor

    def _softmax(self, factors: list[Expression]) -> tuple[Expression, float | None]:
        """The exponential, and the maximum up to which a row gives zeros; the sum that divides it is checked."""
        nothing = None
        if len(factors) == 1 and isinstance(factors[0], Apply) and factors[0].name == "arith.select":
            condition, yes, no = factors[0].arguments
            self._require(constant(uncast(yes)) == 0.0 and isinstance(condition, Apply), "a selection among the weights")
            assert isinstance(condition, Apply)
            nothing, guarded = self._guard(condition)
            factors, _ = factors_of(no)
        else:
            guarded = None
        exponential, total = self._quotient(factors)
        self._require(isinstance(total, Element), "the weights are not divided by a sum")
        assert isinstance(total, Element)
        summands = self._reduced(total, "arith.addf", 0.0, 0.0)
        self._require(summands == exponential, "the sum is not that of the exponentials")
        if guarded is not None:
            self._require(guarded == self._maximum(exponential), "rows are guarded by something else than their maximum")
        return exponential, nothing

    def _guard(self, condition: Apply) -> tuple[float, Expression]:
        """``maximum <= bound``, in either order: the bound and the maximum."""
        self._require(condition.name == "arith.cmpf", "a selection among the weights")
        left, right = condition.arguments
        predicate = functions.integer(condition.op.attributes["predicate"])
        bound = (
            constant(left) if predicate == _predicate("OGE") else constant(right) if predicate == _predicate("OLE") else None
        )
        maximum = right if predicate == _predicate("OGE") else left
        if bound is None and predicate == _predicate("OEQ") and constant(right) == float("-inf"):
            bound = float("-inf")
        if bound is None:
            raise _Mismatch("a comparison among the weights", self._is_softmax)
        return bound, maximum

    def _quotient(self, factors: list[Expression]) -> tuple[Expression, Expression | None]:
        """Numerator and denominator of ``e / s`` or ``e * (1 / s)``."""
        if len(factors) == 1 and isinstance(factors[0], Apply) and factors[0].name == "arith.divf":
            numerator, denominator = (uncast(argument) for argument in factors[0].arguments)
            return numerator, denominator
        for first, second in (factors, factors[::-1]) if len(factors) == 2 else ():
            if isinstance(second, Apply) and second.name == "arith.divf" and constant(second.arguments[0]) == 1.0:
                return first, uncast(second.arguments[1])
        return factors[0], None

    def _maximum(self, exponential: Expression) -> Expression | None:
        argument = uncast(exponential.arguments[0]) if isinstance(exponential, Apply) and exponential.arguments else None
        shifted = isinstance(argument, Apply) and argument.name == "arith.subf"
        return argument.arguments[1] if shifted and isinstance(argument, Apply) else None

    def _shifted(self, exponential: Expression) -> Expression:
        """The scores: what the maximum is subtracted from."""
        maximum = self._maximum(exponential)
        self._require(isinstance(maximum, Element), "no maximum is subtracted from the scores")
        assert isinstance(exponential, Apply) and isinstance(maximum, Element)
        argument = uncast(exponential.arguments[0])
        assert isinstance(argument, Apply)
        compared = self._reduced(maximum, ("arith.maximumf", "arith.maxnumf"), float("-inf"), _LOWEST)
        self._require(compared == argument.arguments[0], "the maximum is not that of the scores")
        return argument.arguments[0]

    def _reduced(self, element: Element, names: str | tuple[str, ...], low: float, high: float) -> Expression:
        """What is accumulated into ``element`` along the keys, as an expression of the weights' indices."""
        node = element.tensor.producer
        self._require(node is not None and len(node.reductions) == 1, "not a reduction over keys")
        assert node is not None
        self._require(_starts_from(node, low, high), "a reduction that starts from an unusual number")
        self._core.add(node)
        body = self._weights.body(node, 0, {len(node.inputs): _ACCUMULATOR})
        return self._substituted(self._other(body, names), element, node, KEY)

    def _other(self, body: Expression | None, names: str | tuple[str, ...]) -> Expression:
        """What is combined with the accumulator."""
        if isinstance(body, Apply) and body.name in names and _ACCUMULATOR in body.arguments and len(body.arguments) == 2:
            return body.arguments[1 - body.arguments.index(_ACCUMULATOR)]
        raise _Mismatch("another reduction", self._is_softmax)

    # ------------------------------------------------------------------------------------------------------ the product

    def _product(self, scores: Expression) -> tuple[Node, Element, Element, float]:
        """The node of Q Kᵀ; Q, K and the constant factor."""
        for leaf in leaves(scores):
            node = leaf.tensor.producer if isinstance(leaf, Element) else None
            if node is None or len(node.reductions) != 1 or not _starts_from(node, 0.0, 0.0) or None in node.sizes:
                continue
            assert isinstance(leaf, Element)
            body = self._operands.body(node, 0, {len(node.inputs): _ACCUMULATOR})
            factors, scale = factors_of(self._substituted(self._other(body, "arith.addf"), leaf, node, COLUMN))
            plain = [factor for factor in factors if isinstance(factor, Element)]
            if len(plain) != 2 or len(factors) != 2:
                raise _Mismatch("Q or K is computed inside of the product", self._is_softmax, node)
            self._core.add(node)
            query, key = plain if plain[0].layout.ignores(KEY) else plain[::-1]
            return node, query, key, scale
        raise _Mismatch("there is no product among the scores", self._is_softmax)

    def _plain_value(self) -> Element:
        """V; no constant factor may be hidden in it."""
        expression = self._operands.operand(self._node, self._value)
        self._require(expression is not None, "V is read in an unusual order")
        assert expression is not None
        factors, factor = factors_of(self._moved(expression))
        if len(factors) == 1 and isinstance(factors[0], Element) and factor == 1.0:
            return factors[0]
        raise _Mismatch("V is computed inside of the product", self._is_softmax)

    def _check_layouts(self, query: Element, key: Element, value: Element) -> None:
        self._require(query.layout.ignores(KEY) and key.layout.ignores(ROW), "the product is not one of rows and keys")
        self._require(value.layout.ignores(ROW), "V depends on the row")

    # ----------------------------------------------------------------------------------------------------------- indices

    def _moved(self, expression: Expression) -> Expression:
        moved = move(expression, self._canonical)
        self._require(moved is not None, "indices that are no digits")
        assert moved is not None
        return moved

    def _substituted(self, expression: Expression, element: Element, node: Node, extra: int) -> Expression:
        """``expression``, over the loops of ``node``, read where ``element`` reads the node's result.

        The reduction loop of the node becomes dimension ``extra``.
        """
        order = [loop for loop in node.outputs[0].dims if loop is not None]
        self._require(element.layout.offset == 0 and element.layout.ignores(extra), "a part of a reduction is read")

        def change(layout: Layout) -> Layout | None:
            flat = [digit for loop in order for digit in layout.dimensions[loop]]
            found: list[Dimension] = []
            for index, digits in enumerate(element.layout.dimensions):
                composed = layout.dimensions[node.reductions[0]] if index == extra else compose(flat, digits)
                if composed is None:
                    return None
                found.append(composed)
            return Layout(tuple(found), layout.offset)

        changed = replace_leaves(expression, lambda leaf: move(leaf, change) if not isinstance(leaf, Apply) else leaf)
        self._require(changed is not None, "indices that are no digits")
        assert changed is not None
        return changed

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

    def _group(self, output: Element) -> tuple[Node, ...]:
        """All nodes, in program order; what depends on the scores is read by nobody else."""
        group = self._core | self._weights.visited | self._operands.visited
        last = output.tensor.producer
        depends: set[Tensor] = set()
        nodes = []
        for node in self._graph.nodes:
            if node not in group or (node is not last and last in nodes):
                continue
            nodes.append(node)
            if node in self._core or any(operand.tensor in depends for operand in node.inputs):
                results = [operand.tensor for operand in node.outputs if operand.tensor is not None]
                depends.update(results)
                leaves_group = node is not last and any(uses_outside(result, group) for result in results)
                self._require(not leaves_group, f"the {_role(node)} are needed outside of the attention")
        return tuple(nodes)


def _result(node: Node) -> Tensor:
    tensor = node.outputs[0].tensor
    assert tensor is not None
    return tensor


def _role(node: Node) -> str:
    return "sums or maxima" if node.reductions and is_elementwise(node) else "scores or weights"


def _starts_from(node: Node, low: float, high: float) -> bool:
    """Is there one output, which accumulates from a constant between ``low`` and ``high``?"""
    if len(node.outputs) != 1 or not isinstance(node.initial[0], ir.Value):
        return False
    producer = functions.defining_op(node.initial[0])
    if producer is None or producer.name != "arith.constant" or not isinstance(producer.attributes["value"], ir.FloatAttr):
        return False
    return low <= float(ir.FloatAttr(producer.attributes["value"]).value) <= high


def _predicate(name: str) -> int:
    return int(getattr(dialect("arith").CmpFPredicate, name))
