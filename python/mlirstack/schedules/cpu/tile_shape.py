"""Tensors in the shape of register tiles: reshapes that split loops in two, and generic ops over them.

A loop is a pair: the number it has in the original op, and 0 for the outer part or the whole, 1 for the inner part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.linalg_ops import LinalgOp, linalg_op

Loop = tuple[int, int]


@dataclass(frozen=True)
class Tiling:
    """Which loops are split, and the size of the inner part of each."""

    inner: Mapping[int, int]

    def loops(self, dim: int) -> tuple[Loop, ...]:
        """The parts of loop ``dim``."""
        return ((dim, 0), (dim, 1)) if dim in self.inner else ((dim, 0),)

    def expand(self, value: Any, dims: Sequence[int | None]) -> tuple[Any, list[Loop]]:
        """``value`` with the dimensions of split loops in two, and the loop of each of its dimensions.

        What fills or computes ``value`` elementwise for this use alone is built in the new shape right away.
        """
        loops = [loop for d in dims if d is not None for loop in self.loops(d)]
        if len(loops) == len(dims):
            return value, loops
        shape: list[int] = []
        for d, size in zip(dims, value.type.shape, strict=True):
            assert d is not None
            shape += [size // self.inner[d], self.inner[d]] if d in self.inner else [size]
        fill = fill_of(value)
        if fill is not None:
            empty = dialect("tensor").empty(shape, value.type.element_type)
            return dialect("linalg").fill(fill, outs=[empty]), loops
        if is_op(value, "tensor.empty"):
            return dialect("tensor").empty(shape, value.type.element_type), loops
        producer = _elementwise_producer(value)
        if producer is not None:
            own = Tiling({i: self.inner[d] for i, d in enumerate(dims) if d is not None and d in self.inner})
            return _retiled(producer, {}, own), loops
        kind = ir.RankedTensorType.get(shape, value.type.element_type)
        return dialect("tensor").expand_shape(kind, value, self._groups(dims), [], shape), loops

    def collapse(self, value: Any, dims: Sequence[int | None]) -> Any:
        """The inverse: split dimensions as one again."""
        groups = self._groups(dims)
        shape = [1] * len(groups)
        for i, group in enumerate(groups):
            for position in group:
                shape[i] *= value.type.shape[position]
        if len(shape) == len(value.type.shape):
            return value
        kind = ir.RankedTensorType.get(shape, value.type.element_type)
        return dialect("tensor").collapse_shape(kind, value, groups)

    def _groups(self, dims: Sequence[int | None]) -> list[list[int]]:
        groups: list[list[int]] = []
        at = 0
        for d in dims:
            assert d is not None
            count = len(self.loops(d))
            groups.append(list(range(at, at + count)))
            at += count
        return groups


def is_op(value: Any, name: str) -> bool:
    """Is ``value`` a result of an op called ``name``?"""
    owner = value.owner
    return isinstance(owner, (ir.Operation, ir.OpView)) and owner.operation.name == name


def fill_of(value: Any) -> Any | None:
    """The scalar that ``value`` is filled with, or None."""
    return value.owner.operation.operands[0] if is_op(value, "linalg.fill") else None


def _elementwise_producer(value: Any) -> LinalgOp | None:
    """The elementwise op that computes ``value``, if nothing else uses it and it has no input as large as its result: a
    broadcast bias, that costs nothing to move."""
    owner = value.owner
    if not isinstance(owner, (ir.Operation, ir.OpView)) or len(list(value.uses)) != 1:
        return None
    producer = linalg_op(owner)
    if producer is None or not _is_elementwise(producer):
        return None
    return producer if all(len(o.dims) < len(producer.sizes) for o in producer.inputs) else None


def plain_map(loops: int, dims: Sequence[int]) -> Any:
    """The affine map of ``loops`` loops that picks ``dims``."""
    return ir.AffineMap.get(loops, 0, [ir.AffineDimExpr.get(d) for d in dims])


def generic(
    inputs: Sequence[Any],
    init: Any,
    maps: Sequence[Sequence[int] | Any],
    kinds: Sequence[str],
    body: Callable[..., Any],
) -> Any:
    """The result of a linalg.generic; ``maps`` gives an affine map, or the loop of each dimension, of the operands: inputs
    first, then ``init``.

    ``body`` takes the scalars of the operands and returns the scalar to yield.
    """
    count = len(kinds)
    affine = [m if isinstance(m, ir.AffineMap) else plain_map(count, m) for m in maps]
    op = ir.Operation.create(
        "linalg.generic",
        results=[init.type],
        operands=[*inputs, init],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in affine]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
        },
        regions=1,
    )
    elements = [v.type.element_type if isinstance(v.type, ir.ShapedType) else v.type for v in (*inputs, init)]
    block = op.regions[0].blocks.append(*elements, arg_locs=[op.location] * len(elements))
    with ir.InsertionPoint(block):
        dialect("linalg").YieldOp([body(*block.arguments)])
    return op.results[0]


def pad_end(value: Any, position: int, amount: int) -> Any:
    """``value`` with ``amount`` zeros behind dimension ``position``."""
    fill = fill_of(value)
    shape = list(value.type.shape)
    high = [amount if i == position else 0 for i in range(len(shape))]
    shape[position] += amount
    element = value.type.element_type
    if fill is not None:
        return dialect("linalg").fill(fill, outs=[dialect("tensor").empty(shape, element)])
    zero = 0 if isinstance(element, ir.IntegerType) else 0.0
    attribute = ir.IntegerAttr.get(element, zero) if isinstance(element, ir.IntegerType) else ir.FloatAttr.get(element, zero)
    with ir.InsertionPoint.current:
        padding = dialect("arith").constant(element, attribute)
        op = dialect("tensor").PadOp(ir.RankedTensorType.get(shape, element), value, [], [], [0] * len(shape), high)
        block = op.regions[0].blocks.append(*([ir.IndexType.get()] * len(shape)), arg_locs=[op.location] * len(shape))
        with ir.InsertionPoint(block):
            dialect("tensor").YieldOp(padding)
    return op.result


def retile_elementwise(value: Any) -> None:
    """Move the collapse that made ``value`` behind the elementwise ops over it, one after the other.

    Before: collapse, then an elementwise op.  After: the op over the uncollapsed tensor, then the collapse.  Stops where
    there is another user, or an op that is not elementwise over exactly the elements of the value.
    """
    while True:
        if not is_op(value, "tensor.collapse_shape"):
            return
        collapse = value.owner
        users = list(value.uses)
        user = linalg_op(users[0].owner) if len(users) == 1 else None
        if user is None or not _is_elementwise_over(user, value):
            return
        groups = [list(map(int, group)) for group in collapse.operation.attributes["reassociation"]]
        packed = collapse.operation.operands[0]
        inner = {d: packed.type.shape[group[1]] for d, group in enumerate(groups) if len(group) == 2}
        split = Tiling(inner)
        result = _retiled(user, {value: packed}, split)
        with ir.InsertionPoint(user.op), user.op.location:
            value = split.collapse(result, tuple(range(len(user.sizes))))
        user.op.results[0].replace_all_uses_with(value)
        user.op.erase()
        collapse.operation.erase()


def _is_elementwise(op: LinalgOp) -> bool:
    identity = tuple(range(len(op.sizes)))
    if op.name != "linalg.generic" or not op.static or op.reductions or len(op.outputs) != 1:
        return False
    if any(inner.name == "linalg.index" for inner in op.body):
        return False
    return op.outputs[0].dims == identity and all(o.plain for o in op.operands)


def _is_elementwise_over(op: LinalgOp, value: Any) -> bool:
    reading = [operand for operand in op.inputs if operand.value == value]
    if not _is_elementwise(op) or op.outputs[0].value == value:
        return False
    return len(reading) == 1 and reading[0].dims == tuple(range(len(op.sizes)))


def _retiled(op: LinalgOp, replaced: Mapping[Any, Any], split: Tiling) -> Any:
    """The elementwise op ``op`` over split loops; ``replaced`` gives operands that have the new shape already."""
    with ir.InsertionPoint(op.op), op.op.location:
        loops = [loop for d in range(len(op.sizes)) for loop in split.loops(d)]
        operands, maps = [], []
        for operand in op.operands:
            if operand.value in replaced:
                operands.append(replaced[operand.value])
                maps.append(list(range(len(loops))))
                continue
            expanded, own = split.expand(operand.value, operand.dims) if operand.dims else (operand.value, [])
            operands.append(expanded)
            maps.append([loops.index(loop) for loop in own])
        return generic(operands[:-1], operands[-1], maps, ["parallel"] * len(loops), BodyCopy(op))


@dataclass(frozen=True)
class BodyCopy:
    """The body of an elementwise op, built again over other scalars."""

    op: LinalgOp

    def __call__(self, *scalars: Any) -> Any:
        block = self.op.op.regions[0].blocks[0]
        values = dict(zip(block.arguments, scalars, strict=True))
        for inner in self.op.body:
            copy = inner.clone()
            for i, operand in enumerate(copy.operands):
                if operand in values:
                    copy.operands[i] = values[operand]
            values.update(zip(inner.results, copy.results, strict=True))
        yielded = list(block.operations)[-1].operands[0]
        return values.get(yielded, yielded)
