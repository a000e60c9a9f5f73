"""Making elementwise linalg ops: the passes that need one of their own write only what becomes of an element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlirstack.bindings import dialect, ir


def elementwise(sources: Sequence[Any], element: Any, compute: Callable[..., Any], *, backwards: bool = False) -> Any:
    """A ``linalg.generic`` at the insertion point: tensors of one shape → one of that shape, of the type ``element``.

    ``compute`` is given an element of each of ``sources``, and makes the element of the result.  The loops run over the
    dimensions in order, or ``backwards``.
    """
    linalg = dialect("linalg")
    kind = ir.RankedTensorType(sources[0].type)
    empty = dialect("tensor").EmptyOp.build_generic(
        [ir.RankedTensorType.get(kind.shape, element)], dynamic_sizes(sources[0])
    )
    order = [*reversed(range(kind.rank))] if backwards else [*range(kind.rank)]
    place = ir.AffineMapAttr.get(ir.AffineMap.get_permutation(order) if order else ir.AffineMap.get_identity(0))
    op = linalg.GenericOp(
        [empty.result.type],
        list(sources),
        [empty.result],
        ir.ArrayAttr.get([place] * (len(sources) + 1)),
        ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * kind.rank),
    )
    types = [*(ir.RankedTensorType(source.type).element_type for source in sources), element]
    block = op.regions[0].blocks.append(*types, arg_locs=[op.location] * len(types))
    with ir.InsertionPoint(block), op.location:
        linalg.YieldOp([compute(*list(block.arguments)[:-1])])
    return op.results[0]


def dynamic_sizes(tensor: Any) -> list[Any]:
    """Values of the dynamic sizes of a tensor, made at the insertion point."""
    kind, index = ir.RankedTensorType(tensor.type), ir.IndexType.get()
    sizes = []
    for axis in range(kind.rank):
        if kind.is_dynamic_dim(axis):
            number = ir.Operation.create(
                "arith.constant", results=[index], attributes={"value": ir.IntegerAttr.get(index, axis)}
            ).result
            sizes.append(ir.Operation.create("tensor.dim", results=[index], operands=[tensor, number]).result)
    return sizes
