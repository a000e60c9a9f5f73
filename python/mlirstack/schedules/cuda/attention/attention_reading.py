"""Values of an attention followed back through the reductions that make them, as expressions over its own indices.

A :class:`Reading` is one attempt: it collects the nodes that it passed, and ends with :class:`Mismatch` where the graph is
something else.
"""

from __future__ import annotations

from mlirstack.bindings import ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.attention.attention_description import KEY
from mlirstack.schedules.cuda.attention.attention_expression import (
    Apply,
    Element,
    Expression,
    Expressions,
    move,
    replace_leaves,
)
from mlirstack.schedules.cuda.attention.attention_layout import Dimension, Layout, compose
from mlirstack.schedules.cuda.graph import Node

ACCUMULATOR = Apply("accumulator", (), None)
LOWEST = -3.4e38  # a maximum that starts here or below starts from "nothing"


class Mismatch(Exception):
    """Why a contraction is no attention; ``is_softmax``: its weights are a softmax, so that the reason is of interest."""

    def __init__(self, reason: str, is_softmax: bool, product: Node | None = None) -> None:
        super().__init__(reason)
        self.is_softmax = is_softmax
        self.product = product


class Reading:
    """``reductions``: the nodes that accumulate; ``expressions``: what is between them, with the nodes that it visited."""

    def __init__(self) -> None:
        self.expressions = Expressions()
        self.reductions: set[Node] = set()
        self.is_softmax = False

    @property
    def nodes(self) -> set[Node]:
        """All nodes that were passed."""
        return self.reductions | self.expressions.visited

    def require(self, condition: bool, reason: str) -> None:
        """End the attempt unless ``condition`` holds."""
        if not condition:
            raise self.mismatch(reason)

    def mismatch(self, reason: str, product: Node | None = None) -> Mismatch:
        """The end of the attempt, to be raised."""
        return Mismatch(reason, self.is_softmax, product)

    def sum_over_keys(self, element: Element) -> Expression:
        """What is added up along the keys to ``element``, over the indices of the attention."""
        return self._reduced(element, ("arith.addf",), 0.0, 0.0)

    def maximum_over_keys(self, element: Element) -> Expression:
        """What ``element`` is the maximum of."""
        return self._reduced(element, ("arith.maximumf", "arith.maxnumf"), float("-inf"), LOWEST)

    def _reduced(self, element: Element, names: tuple[str, ...], low: float, high: float) -> Expression:
        node = element.tensor.producer
        self.require(node is not None and len(node.reductions) == 1, "not a reduction over keys")
        assert node is not None
        self.require(starts_from(node, low, high), "a reduction that starts from an unusual number")
        self.reductions.add(node)
        body = self.expressions.body(node, 0, {len(node.inputs): ACCUMULATOR})
        return self.substituted(self.other(body, names), element, node, KEY)

    def other(self, body: Expression | None, names: tuple[str, ...]) -> Expression:
        """What is combined with the accumulator."""
        if isinstance(body, Apply) and body.name in names and ACCUMULATOR in body.arguments and len(body.arguments) == 2:
            return body.arguments[1 - body.arguments.index(ACCUMULATOR)]
        raise self.mismatch("another reduction")

    def substituted(self, expression: Expression, element: Element, node: Node, extra: int) -> Expression:
        """``expression``, over the loops of ``node``, read where ``element`` reads the node's result.

        The reduction loop of the node becomes dimension ``extra``.
        """
        order = [loop for loop in node.outputs[0].dims if loop is not None]
        self.require(element.layout.offset == 0 and element.layout.ignores(extra), "a part of a reduction is read")

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
        self.require(changed is not None, "indices that are no digits")
        assert changed is not None
        return changed


def starts_from(node: Node, low: float, high: float) -> bool:
    """Is there one output, which accumulates from a constant between ``low`` and ``high``?"""
    if len(node.outputs) != 1 or not isinstance(node.initial[0], ir.Value):
        return False
    producer = functions.defining_op(node.initial[0])
    if producer is None or producer.name != "arith.constant" or not isinstance(producer.attributes["value"], ir.FloatAttr):
        return False
    return low <= float(ir.FloatAttr(producer.attributes["value"]).value) <= high
