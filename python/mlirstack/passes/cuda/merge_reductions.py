"""Reductions of reductions as one: a sum over rows of sums over columns is a sum over both.

Frontends reduce one dimension after the other.  On a GPU the second reduction would be a kernel of its own, and norms over
several dimensions would fall apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.cuda.graph import KernelGraph, Node
from mlirstack.schedules.cuda.stream.reductions import Combined, reduction_of


@dataclass(frozen=True)
class MergeReductions(PythonPass):
    """Before and after: linalg on tensors.  After: no reduction reads what another one leaves for it alone, where both
    combine with the same operation::

        %a = sum over d1 of f(%x) : [d0, d2]; %b = sum over d2 of %a : [d0]    →    %b = sum over d1, d2 of f(%x) : [d0]

    What floating-point sums come to depends on their order, which is left open here as it is in torch.
    """

    name = "mlirstack-merge-reductions"

    def apply(self, module: Any) -> None:
        for op in [op for op in walk(module) if op.name == "linalg.generic"]:
            merged = op
            while (inner := _inner(merged)) is not None:
                merged = _merged(inner, merged)


def _inner(outer: Any) -> Any | None:
    """The reduction whose result ``outer`` goes on reducing, if it can do all at once."""
    whole = _single(outer)
    if whole is None or len(outer.operands) != 2 or whole.terms[0] != whole.node.body.arguments[0]:
        return None
    inner = functions.defining_op(outer.operands[0])
    part = _single(inner) if inner is not None and inner.name == "linalg.generic" else None
    if inner is None or part is None or part.combiners != whole.combiners or len(list(inner.results[0].uses)) != 1:
        return None
    is_plain = all(None not in dims for dims in (part.node.outputs[0].dims, whole.node.inputs[0].dims))
    return inner if is_plain and part.types == whole.types and _starts_from_nothing(part) else None


def _single(op: Any) -> Combined | None:
    """The reduction that an op with one result is; None for any other op."""
    if len(op.results) != 1 or not isinstance(op.results[0].type, ir.RankedTensorType):
        return None
    (node,) = KernelGraph([op]).nodes
    found = reduction_of(node) if node.reductions else None
    return found if isinstance(found, Combined) else None


def _starts_from_nothing(reduction: Combined) -> bool:
    """Is the initial value the neutral element?"""
    start = reduction.node.initial[0]
    producer = functions.defining_op(start) if isinstance(start, ir.Value) else None
    if producer is None or producer.name != "arith.constant":
        return False
    return bool(producer.attributes["value"] == reduction.neutral_attributes()[0])


def _merged(inner: Any, outer: Any) -> Any:
    """One op in the place of both; it takes over the body of ``inner``."""
    nodes: tuple[Node, Node] = tuple(KernelGraph([op]).nodes[0] for op in (inner, outer))  # type: ignore[assignment]
    part, whole = nodes
    # The loops of ``outer``, as loops of ``inner``: both index the tensor in between.
    loop_of = dict(zip(whole.inputs[0].dims, part.outputs[0].dims, strict=True))
    kept = [loop_of[dim] for dim in whole.outputs[0].dims]
    loops = len(part.sizes)
    written = ir.AffineMap.get(loops, 0, [ir.AffineDimExpr.get(loop) for loop in kept])
    maps = [*list(ir.ArrayAttr(inner.attributes["indexing_maps"]))[:-1], ir.AffineMapAttr.get(written)]
    kinds = [f"#linalg.iterator_type<{'parallel' if loop in kept else 'reduction'}>" for loop in range(loops)]
    with ir.InsertionPoint(outer), outer.location:
        merged = (
            dialect("linalg")
            .GenericOp(
                [outer.results[0].type],
                list(inner.operands)[:-1],
                [outer.operands[1]],
                ir.ArrayAttr.get(maps),
                ir.ArrayAttr.get([ir.Attribute.parse(kind) for kind in kinds]),
            )
            .operation
        )
    inner.regions[0].blocks[0].append_to(merged.regions[0])
    outer.results[0].replace_all_uses_with(merged.results[0])
    outer.erase()
    inner.erase()
    return merged
