"""Reshapes that stand between ops and keep them apart, moved behind the ops that do not need them.

A linear layer computes on rows ``[b·s, d]``, the ops after it on ``[b, s, d]``.  What treats ``b`` and ``s`` alike can as
well work on rows, and then belongs to the kernel of the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.kernel_class import op_shape
from mlirstack.passes.regions import clone_with, static_elements
from mlirstack.pipeline.step import PythonPass

Group = tuple[int, ...]  # loops that become one, or axes of a tensor


@dataclass(frozen=True)
class SinkExpansions(PythonPass):
    """Before and after: linalg on tensors, elementwise ops and reductions as ``linalg.generic``.  An op that reads a
    ``tensor.expand_shape``, and whose operands all have the new axes side by side or not at all, works on what was expanded;
    its result is expanded instead::

        generic [b, s, d] ins(expand(%y), %x)      →      expand(generic [b·s, d] ins(%y, collapse(%x)))

    An elementwise op that would do so but for a result with other axes in between is cut in two: it computes, and another
    op permutes, which attention, for one, reads as a view::

        generic [h, b, s, d] ins(expand(%y), %bias)    →    permute(expand(generic [b·s, h·d] ins(%y, collapse(%bias))))
    """

    name = "mlirstack-sink-expansions"

    def apply(self, module: Any) -> None:
        for op in [op for op in walk(module) if op.name == "linalg.generic" and _is_static(op)]:
            number = _permuted_operand(op)
            for part in (op,) if number is None else _permute_after(op, number):
                merged = _merged_loops(part)
                if merged:
                    _collapse(part, merged)


def _is_static(op: Any) -> bool:
    return all(static_elements(value) is not None for value in (*op.operands, *op.results))


# --------------------------------------------------------------------------------------------------- ops that permute, too


def _permuted_operand(op: Any) -> int | None:
    """The operand in whose order ``op`` can compute on what was expanded, where it cannot in the order of its result.

    What was expanded is another op's result and read by this one alone, so that both can be one kernel then.
    """
    shape = op_shape(op)
    if shape is None or shape.reductions or any(None in dims for dims in shape.dims) or len(list(_body(op))) < 2:
        return None
    if any(inner.name == "linalg.index" for inner in walk(op)):
        return None
    for number, (value, dims) in enumerate(zip(op.operands, shape.dims[:-1], strict=False)):
        producer = functions.defining_op(value)
        if producer is None or producer.name != "tensor.expand_shape" or sorted(_loops(dims)) != list(shape.parallel):
            continue
        source = functions.defining_op(producer.operands[0])
        if (
            source is None
            or source.name != "linalg.generic"
            or not (_is_read_once(value) and _is_read_once(source.results[0]))
        ):
            continue
        groups = [tuple(_loops(dims)[axis] for axis in axes) for axes in _reassociation(producer)]
        if any(not _is_together(group, shape.dims[-1]) for group in groups) and all(
            _is_together(group, other) for group in groups for other in shape.dims[:-1]
        ):
            return number
    return None


def _permute_after(op: Any, number: int) -> tuple[Any, Any]:
    """``op`` computed in the order of operand ``number``, and the op that permutes the result."""
    shape = op_shape(op)
    assert shape is not None
    order, rank = _loops(shape.dims[number]), len(shape.sizes)
    kind = ir.RankedTensorType(op.results[0].type)
    maps = [[order.index(loop) for loop in _loops(dims)] for dims in shape.dims[:-1]]
    iterators = op.attributes["iterator_types"]
    with ir.InsertionPoint(op), op.location:
        empty = dialect("tensor").EmptyOp([shape.sizes[loop] for loop in order], kind.element_type).result
        computed = _generic(op, [*list(op.operands)[:-1], empty], [_map(rank, m) for m in (*maps, range(rank))], iterators)
        permuted = dialect("linalg").GenericOp(
            [kind], [computed.results[0]], [op.operands[len(op.operands) - 1]],
            ir.ArrayAttr.get([_map(rank, order), _map(rank, _loops(shape.dims[-1]))]), iterators,
        )  # fmt: skip
        block = permuted.regions[0].blocks.append(kind.element_type, kind.element_type)
        with ir.InsertionPoint(block):
            dialect("linalg").YieldOp([block.arguments[0]])
    op.results[0].replace_all_uses_with(permuted.results[0])
    op.erase()
    return computed.operation, permuted.operation


def _body(op: Any) -> Any:
    return op.regions[0].blocks[0].operations


def _loops(dims: Sequence[int | None]) -> list[int]:
    return [dim for dim in dims if dim is not None]


def _is_read_once(value: Any) -> bool:
    return len(list(value.uses)) == 1


def _map(loops: int, chosen: Sequence[int]) -> Any:
    return ir.AffineMapAttr.get(ir.AffineMap.get(loops, 0, [ir.AffineDimExpr.get(loop) for loop in chosen]))


# ------------------------------------------------------------------------------------------------- loops that become one


def _merged_loops(op: Any) -> list[Group]:
    """Loops that can be one each, because an operand was expanded so."""
    shape = op_shape(op)
    if shape is None or any(None in dims for dims in shape.dims) or len(shape.dims[0]) == 0:
        return []
    if any(inner.name == "linalg.index" for inner in walk(op)):
        return []
    found: list[Group] = []
    for value, dims in zip(op.operands, shape.dims, strict=True):
        producer = functions.defining_op(value)
        if producer is None or producer.name != "tensor.expand_shape":
            continue
        for axes in _reassociation(producer):
            loops = tuple(dim for dim in (dims[axis] for axis in axes) if dim is not None)
            is_new = not any(set(loops) & set(other) for other in found)
            is_alike = len({loop in shape.reductions for loop in loops}) == 1
            if len(loops) > 1 and is_new and is_alike and all(_is_together(loops, d) for d in shape.dims):
                found.append(loops)
    return found


def _reassociation(reshape: Any) -> list[list[int]]:
    return [[functions.integer(axis) for axis in group] for group in ir.ArrayAttr(reshape.attributes["reassociation"])]


def _is_together(loops: Group, dims: Sequence[int | None]) -> bool:
    """Are ``loops`` side by side among the axes of an operand, in order, or none of them there?"""
    if not set(loops) & set(dims):
        return True
    if loops[0] not in dims:
        return False
    first = list(dims).index(loops[0])
    return tuple(dims[first : first + len(loops)]) == loops


def _collapse(op: Any, merged: Sequence[Group]) -> None:
    """Rewrite ``op`` with the loops of each group as one."""
    shape = op_shape(op)
    assert shape is not None
    head = {group[0]: group for group in merged}
    inner = {loop for group in merged for loop in group[1:]}
    kept = [loop for loop in range(len(shape.sizes)) if loop not in inner]
    renumbered = {loop: number for number, loop in enumerate(kept)}
    operands, maps = [], []
    with ir.InsertionPoint(op), op.location:
        for value, dims in zip(op.operands, shape.dims, strict=True):
            axes = [_axes(dims, position, head) for position, dim in enumerate(dims) if dim not in inner]
            operands.append(_collapsed(value, axes))
            results = [ir.AffineDimExpr.get(renumbered[dim]) for dim in dims if dim is not None and dim not in inner]
            maps.append(ir.AffineMapAttr.get(ir.AffineMap.get(len(kept), 0, results)))
        iterators = [op.attributes["iterator_types"][loop] for loop in kept]
        new = _generic(op, operands, maps, iterators)
        kind = ir.RankedTensorType(op.results[0].type)
        dims = shape.dims[-1]
        axes = [_axes(dims, position, head) for position, dim in enumerate(dims) if dim not in inner]
        expanded = new.results[0]
        if len(axes) != kind.rank:
            expanded = dialect("tensor").ExpandShapeOp(kind, expanded, axes, [], list(kind.shape)).result
    op.results[0].replace_all_uses_with(expanded)
    op.erase()


def _axes(dims: Sequence[int | None], position: int, head: dict[int, Group]) -> list[int]:
    """The axes of an operand that become one with the axis at ``position``."""
    dim = dims[position]
    return list(range(position, position + len(head.get(dim, (dim,)) if dim is not None else (dim,))))


def _collapsed(value: Any, axes: Sequence[Sequence[int]]) -> Any:
    kind = ir.RankedTensorType(value.type)
    if len(axes) == kind.rank:
        return value
    sizes = []
    for group in axes:
        size = 1
        for axis in group:
            size *= kind.get_dim_size(axis)
        sizes.append(size)
    producer = functions.defining_op(value)
    if producer is not None and producer.name == "tensor.empty":  # nothing in it: a view would keep it out of the kernel
        return dialect("tensor").EmptyOp(sizes, kind.element_type).result
    if producer is not None and producer.name == "linalg.fill":
        return dialect("linalg").fill(producer.operands[0], outs=[_collapsed(producer.operands[1], axes)])
    target = ir.RankedTensorType.get(sizes, kind.element_type)
    return dialect("tensor").CollapseShapeOp(target, value, axes).result


def _generic(op: Any, operands: Sequence[Any], maps: Sequence[Any], iterators: Sequence[Any]) -> Any:
    """``op`` over other loops: the same body, one result."""
    *inputs, output = operands
    new = dialect("linalg").GenericOp(
        [output.type], inputs, [output], ir.ArrayAttr.get(list(maps)), ir.ArrayAttr.get(list(iterators))
    )
    old = op.regions[0].blocks[0]
    block = new.regions[0].blocks.append(*[argument.type for argument in old.arguments])
    mapping = dict(zip(old.arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for inner in old.operations:
            copy = clone_with(inner.operation, mapping)
            mapping.update(zip(inner.operation.results, copy.results, strict=True))
    return new
