"""Two matrix products of the same left factor whose results meet element by element, as ``silu(x · G) * (x · U)`` in a gated
MLP.

Takes a :class:`KernelGraph` with two multiply-add reductions of the same loops; leaves a contraction with a second right
factor, whose steps read both sums.  Written as one kernel, the sums never leave it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from mlirstack.schedules.cuda.graph import KernelGraph, Node
from mlirstack.schedules.cuda.product.contraction import (
    PRODUCT,
    SECOND,
    Contraction,
    Matrix,
    matrix_of,
    product_around,
    starts_at_zero,
)
from mlirstack.schedules.cuda.product.contraction_loops import Roles, multiply_add


@dataclass(frozen=True)
class Pair(Contraction):
    """``other`` lies in memory as ``b`` does; ``SECOND`` is its product with ``a``."""

    other: Matrix


def match_pair(graph: KernelGraph) -> Pair | None:
    """``graph`` as two products with one left factor; None where it is something else, or has a size 0 or a dynamic size."""
    if not graph.is_plain:
        return None
    found = [node for node in graph.nodes if node.reductions]
    if len(found) != 2 or not all(found[0].sizes) or not _same_loops(*found):
        return None
    first, second = found
    body, other_body = (multiply_add(node) for node in found)
    if body is None or body != other_body or body.scale != 1.0:
        return None
    roles, other_roles = (Roles.of(node, body) for node in found)
    if roles is None or other_roles is None or roles.first != other_roles.first:
        return None
    left, right = roles.first, 1 - roles.first
    product = product_around(graph, roles, body, second=second)
    if product is None or first.inputs[left].tensor is not second.inputs[left].tensor:
        return None
    used = {source for step in product.steps for source in step.sources}
    if not {PRODUCT, SECOND} <= used or any(output.value in (PRODUCT, SECOND) for output in product.outputs):
        return None
    if not (starts_at_zero(first) and starts_at_zero(second)):
        return None
    a, b = (matrix_of(roles, number, body.signed[number]) for number in (left, right))
    other = matrix_of(other_roles, right, body.signed[right])
    return Pair(**{field.name: getattr(product, field.name) for field in fields(product)}, a=a, b=b, other=other)


def _same_loops(one: Node, other: Node) -> bool:
    """Do two nodes go through operands of the same types in the same way?"""
    operands = [(*node.inputs, *node.outputs) for node in (one, other)]
    same = one.sizes == other.sizes and one.iterators == other.iterators and len(operands[0]) == len(operands[1])
    return same and all(
        x.tensor is not None and y.tensor is not None and x.map == y.map and x.value.type == y.value.type
        for x, y in zip(*operands, strict=True)
    )
