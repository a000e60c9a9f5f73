"""Tensors put together from slices of others, read where these lie.

Rotary embeddings swap the halves of every head and negate one: two slices, a negation and a concatenation, each a pass over
memory when taken one by one.  As one elementwise op that says for each element where it comes from, they are computed
together with whatever reads them.
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

_MOST_PIECES = 4  # every element computes the place of each


@dataclass(frozen=True)
class FoldConcats(PythonPass):
    """Before and after: linalg on tensors.  A concatenation of a few slices, or of what is elementwise over slices, is one
    ``linalg.generic`` that extracts from the sources of the slices::

        %a = tensor.extract_slice %x[4] [4]              linalg.generic outs(%empty : [8]) {
        %b = tensor.extract_slice %x[0] [4]        →       %i = linalg.index 0
        tensor.concat dim(0) %a, %b                        select %i < 4, %x[min(%i, 3) + 4], %x[max(%i - 4, 0)]
    """

    name = "mlirstack-fold-concats"

    def apply(self, module: Any) -> None:
        for op in walk(module):
            found = _concatenation(op)
            if found is not None and all(_is_of_slices(piece.value) for piece in found.pieces):
                _rewrite(op, found)


@dataclass(frozen=True)
class _Piece:
    """``size`` elements of ``value`` along the axis, from ``offset`` in the result."""

    value: Any
    offset: int
    size: int


@dataclass(frozen=True)
class _Concatenation:
    axis: int
    pieces: tuple[_Piece, ...]


def _concatenation(op: Any) -> _Concatenation | None:
    """The pieces that ``op`` completes a tensor of, in order; None if it does no such thing."""
    if op.name not in ("tensor.concat", "tensor.insert_slice") or static_elements(op.results[0]) in (None, 0):
        return None
    if op.name == "tensor.concat":
        axis, at, pieces = functions.integer(op.attributes["dim"]), 0, []
        for value in op.operands:
            size = ir.RankedTensorType(value.type).shape[axis]
            pieces.append(_Piece(value, at, size))
            at += size
    else:
        inserted = _inserted(op)
        if inserted is None:
            return None
        axis, pieces = inserted
    ends = [0, *(piece.offset + piece.size for piece in pieces)]
    follow = all(piece.offset == end for piece, end in zip(pieces, ends[:-1], strict=True))
    is_whole = ends[-1] == ir.RankedTensorType(op.results[0].type).shape[axis]
    is_few = 1 < len(pieces) <= _MOST_PIECES and all(piece.size for piece in pieces)
    return _Concatenation(axis, tuple(pieces)) if follow and is_whole and is_few else None


def _inserted(last: Any) -> tuple[int, list[_Piece]] | None:
    """The axis and the pieces of a chain of ``tensor.insert_slice`` that begins with an empty tensor."""
    users = [use.owner.operation for use in last.results[0].uses]
    if any(user.name == "tensor.insert_slice" and user.operands[1] == last.results[0] for user in users):
        return None  # there is more to come
    shape = ir.RankedTensorType(last.results[0].type).shape
    axes: set[int] = set()
    pieces: list[_Piece] = []
    op = last
    while op is not None and op.name == "tensor.insert_slice":
        place = _static_place(op)
        if place is None or len(place[1]) != len(shape) or len(list(op.results[0].uses)) > (1 if op != last else len(users)):
            return None
        offsets, sizes = place
        moved = [axis for axis, size in enumerate(sizes) if size != shape[axis]]
        if len(moved) != 1 or ir.RankedTensorType(op.operands[0].type).rank != len(shape):
            return None
        axes.add(moved[0])
        pieces.append(_Piece(op.operands[0], offsets[moved[0]], sizes[moved[0]]))
        op = functions.defining_op(op.operands[1])
    if op is None or op.name != "tensor.empty" or len(axes) != 1:
        return None
    return axes.pop(), sorted(pieces, key=lambda piece: piece.offset)


def _static_place(op: Any) -> tuple[list[int], list[int]] | None:
    """Offsets and sizes of a slice without gaps; None where one is not a constant."""
    if len(op.operands) != (2 if op.name == "tensor.insert_slice" else 1):
        return None
    offsets, sizes, strides = (
        list(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides")
    )
    return (offsets, sizes) if all(stride == 1 for stride in strides) else None


def _is_slice(op: Any) -> bool:
    """Is it a slice of static place, of the rank of its source?"""
    ranks = [ir.RankedTensorType(value.type).rank for value in (op.operands[0], op.results[0])]
    return ranks[0] == ranks[1] and _static_place(op) is not None


def _is_of_slices(value: Any) -> bool:
    """Is it a slice, or does it take elementwise arithmetic alone to get it from slices?"""
    op = functions.defining_op(value)
    if op is None:
        return False
    if op.name == "tensor.extract_slice":
        return _is_slice(op)
    return _is_elementwise(op) and all(_is_of_slices(operand) for operand in list(op.operands)[:-1])


def _is_elementwise(op: Any) -> bool:
    """A generic op of one user whose elements depend on those of its operands at the same or fewer indices."""
    shape = op_shape(op) if op.name == "linalg.generic" else None
    if shape is None or shape.reductions or len(list(op.results[0].uses)) != 1 or len(op.operands) < 2:
        return False
    if shape.dims[-1] != tuple(range(len(shape.sizes))) or any(None in dims for dims in shape.dims):
        return False
    block = op.regions[0].blocks[0]
    scalar = all(inner.name.split(".", 1)[0] in ("arith", "math", "linalg") for inner in walk(op))
    is_index_free = not any(inner.name == "linalg.index" for inner in walk(op))
    return scalar and is_index_free and not list(block.arguments[len(block.arguments) - 1].uses)


# --------------------------------------------------------------------------------------------------------------- rewriting


def _rewrite(op: Any, found: _Concatenation) -> None:
    kind = ir.RankedTensorType(op.results[0].type)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    with ir.InsertionPoint(op), op.location:
        empty = dialect("tensor").EmptyOp(list(kind.shape), kind.element_type).result
        new = dialect("linalg").GenericOp(
            [kind], [], [empty], ir.ArrayAttr.get([identity]), ir.ArrayAttr.get([parallel] * kind.rank)
        )
        block = new.regions[0].blocks.append(kind.element_type, arg_locs=[op.location])
        with ir.InsertionPoint(block):
            indices = [dialect("linalg").IndexOp(axis).result for axis in range(kind.rank)]
            dialect("linalg").YieldOp([_element(found, indices)])
    op.results[0].replace_all_uses_with(new.results[0])


def _element(found: _Concatenation, indices: Sequence[Any]) -> Any:
    """The element of the result at ``indices``: of the last piece that begins at or before it."""
    arith = dialect("arith")
    position = indices[found.axis]
    result = None
    for piece in reversed(found.pieces):
        inside = list(indices)
        # Outside of the piece any element will do, as long as it is one.
        shifted = arith.SubIOp(position, _index(piece.offset)).result
        inside[found.axis] = arith.MaxSIOp(arith.MinSIOp(shifted, _index(piece.size - 1)).result, _index(0)).result
        value = _value_at(piece.value, inside)
        if result is None:
            result = value
        else:
            is_here = arith.CmpIOp(arith.CmpIPredicate.slt, position, _index(piece.offset + piece.size)).result
            result = arith.SelectOp(is_here, value, result).result
    return result


def _value_at(value: Any, indices: Sequence[Any]) -> Any:
    """The element of ``value`` at ``indices``, read from what it is a slice, a permutation or a function of."""
    op = functions.defining_op(value)
    if op is not None and op.name == "tensor.extract_slice" and _is_slice(op):
        offsets, _ = _static_place(op) or ([], [])
        moved = [
            dialect("arith").AddIOp(index, _index(offset)).result if offset else index
            for index, offset in zip(indices, offsets, strict=True)
        ]
        return _value_at(op.operands[0], moved)
    if op is not None and op.name == "linalg.transpose":
        order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
        return _value_at(op.operands[0], [indices[order.index(axis)] for axis in range(len(order))])
    if op is not None and _is_elementwise(op):
        return _computed(op, indices)
    return dialect("tensor").ExtractOp(value, list(indices)).result


def _computed(op: Any, indices: Sequence[Any]) -> Any:
    shape = op_shape(op)
    assert shape is not None
    block = op.regions[0].blocks[0]
    known = {
        argument: _value_at(operand, [indices[dim] for dim in dims if dim is not None])
        for argument, operand, dims in zip(block.arguments, list(op.operands)[:-1], shape.dims, strict=False)
    }
    *body, leave = list(block.operations)
    for inner in body:
        copy = clone_with(inner.operation, known)
        known.update(zip(inner.operation.results, copy.results, strict=True))
    return known.get(leave.operands[0], leave.operands[0])


def _index(value: int) -> Any:
    return dialect("arith").ConstantOp(ir.IndexType.get(), value).result
