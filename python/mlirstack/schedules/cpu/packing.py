"""Packing contractions: the right-hand side in panels, everything else reshaped to register tiles.

In comes linalg on tensors, before kernels are outlined; out goes the same with contractions in packed form (the docstring
of ``schedules.cpu`` shows it).  A rewrite, not a transform-dialect schedule: ``structured.pack`` would copy the result
too, which only has to be reshaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import functions
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.contractions import Contraction, Widening, contraction
from mlirstack.schedules.cpu.direct import reads_in_place
from mlirstack.schedules.cpu.machine import HOST, vector_bits
from mlirstack.schedules.cpu.register_tile import Registers, RegisterTile, register_tile
from mlirstack.schedules.cpu.tile_shape import BodyCopy, Loop, Tiling, fill_of, generic, pad_end, retile_elementwise
from mlirstack.schedules.linalg_ops import Operand, coefficient, expression_loops, linalg_op

_FIXED = ("mlirstack.parameter", "mlirstack.prepared")
# Rows below which a copy of B costs more than it saves: of a B that has to be turned, of one whose rows are those of the
# panels, and of one that is read as it lies, by dot products of so many elements, whose rows begin at so many bits.
_MIN_ROWS_TURNED, _MIN_ROWS, _MIN_ROWS_OF_DOTS = 8, 16, 512
_MIN_SUMS, _ALIGNMENT = 256, 256
_MIN_COLUMNS = 4  # less than that leaves most of a register empty
_MIN_WORK = 1 << 12  # multiplications below which nothing is worth a reshape


@dataclass(frozen=True)
class PackContractions(PythonPass):
    """Before: linalg on tensors.  After: contractions whose right-hand side is a parameter, or is used by enough rows, are
    in packed form; elementwise ops over their results have the packed shape, up to where a reshape leads back.

    ``vector_bits`` is the register width that is packed for (0: that of this machine).
    """

    name: ClassVar[str] = "mlirstack-cpu-pack"
    vector_bits: int = HOST

    def apply(self, module: Any) -> None:
        for function in functions(module):
            for block in function.regions[0].blocks:
                # Packing replaces operands of later contractions, so each is looked at anew when it is its turn.
                for op in [op.operation for op in block.operations if contraction(linalg_op(op))]:
                    found = contraction(linalg_op(op))
                    if found is not None and is_worth_packing(found):
                        pack(found, vector_bits(self.vector_bits))
                    elif found is not None:
                        read_in_place(found)


def read_in_place(found: Contraction) -> None:
    """Read the source of a transposed right-hand side, where that leaves both operands contiguous along the summation."""
    source = replace(found, rhs=untransposed(found.rhs))
    if source.rhs.value == found.rhs.value or not reads_in_place(source):
        return
    old = found.op
    order = [found.lhs.value, source.rhs.value] if found.lhs is old.inputs[0] else [source.rhs.value, found.lhs.value]
    lhs, rhs = (ir.AffineMap.get(len(old.sizes), 0, list(o.expressions)) for o in (found.lhs, source.rhs))
    maps = [lhs, rhs] if found.lhs is old.inputs[0] else [rhs, lhs]
    out = ir.AffineMap.get(len(old.sizes), 0, list(found.out.expressions))
    kinds = ["reduction" if d in old.reductions else "parallel" for d in range(len(old.sizes))]
    with ir.InsertionPoint(old.op), old.op.location:
        result = generic(order, found.out.value, [*maps, out], kinds, BodyCopy(old))
    old.op.results[0].replace_all_uses_with(result)
    old.op.erase()


def is_worth_packing(found: Contraction) -> bool:
    """Does the copy of the right-hand side pay?"""
    if found.op.points < _MIN_WORK or not found.rows or not found.columns:
        return False
    if found.op.shape[found.columns[-1]] < _MIN_COLUMNS:
        return False
    rows = 1
    for d in found.rows:
        rows *= found.op.shape[d]
    if is_fixed(found.rhs.value):
        return True
    return rows >= _rows_worth_a_copy(found)


def _rows_worth_a_copy(found: Contraction) -> int:
    source = untransposed(found.rhs)
    if not reads_in_place(replace(found, rhs=source)):
        return _MIN_ROWS if source.dims[-1] == found.columns[-1] else _MIN_ROWS_TURNED
    length = found.op.shape[found.sums[0]]
    is_long = length >= _MIN_SUMS and length * source.element.width % _ALIGNMENT == 0
    return _MIN_ROWS_OF_DOTS if is_long else _MIN_ROWS_TURNED


def is_fixed(value: Any) -> bool:
    """Is ``value`` the same in every call: an argument marked as a parameter or as prepared, reshaped perhaps?"""
    while isinstance(value.owner, (ir.Operation, ir.OpView)):
        if value.owner.operation.name not in ("tensor.expand_shape", "tensor.collapse_shape"):
            return False
        value = value.owner.operation.operands[0]
    function = value.owner.owner.operation
    if function.name != "func.func" or "arg_attrs" not in function.attributes:
        return False
    given = function.attributes["arg_attrs"][value.arg_number]
    return any(name in given for name in _FIXED)


def pack(found: Contraction, bits: int) -> None:
    """Replace a contraction by its packed form, and the elementwise ops over its result with it."""
    if found.out.dims[-1] != found.columns[-1]:
        found = channels_last(found)
    found = replace(found, rhs=untransposed(found.rhs))
    element = found.out.element
    row, column = found.rows[-1], found.columns[-1]
    sizes = found.op.shape
    tile = register_tile(sizes[row], sizes[column], Registers.of(bits, element.width))
    with ir.InsertionPoint(found.op.op), found.op.op.location:
        rest = sizes[row] % tile.rows
        if rest:
            result = _in_two_parts(found, sizes[row] - rest, tile)
        else:
            result = _packed(found, found.lhs.value, found.out.value, tile)
    uses = list(found.op.op.results[0].uses)
    found.op.op.results[0].replace_all_uses_with(result)
    found.op.op.erase()
    if len(uses) == 1:
        retile_elementwise(result)


def channels_last(found: Contraction) -> Contraction:
    """The same contraction with the columns of its result innermost, and a transpose behind it."""
    old, tensor = found.op, dialect("tensor")
    order = [*found.batch, *found.rows, *found.columns]
    shape = [old.shape[d] for d in order]
    back = [[order.index(d) for d in found.out.dims if d is not None], list(range(len(order)))]
    kinds = ["reduction" if d in old.reductions else "parallel" for d in range(len(old.sizes))]
    with ir.InsertionPoint(old.op), old.op.location:
        init = fill_of(found.out.value)
        empty = tensor.empty(shape, found.out.element)
        if init is not None:
            start = dialect("linalg").fill(init, outs=[empty])
        else:
            start = generic([found.out.value], empty, back, ["parallel"] * len(order), lambda x, _: x)
        maps = [ir.AffineMap.get(len(old.sizes), 0, list(operand.expressions)) for operand in old.inputs]
        result = generic([o.value for o in old.inputs], start, [*maps, order], kinds, BodyCopy(old))
        target = tensor.empty([old.shape[d] for d in found.out.dims if d is not None], found.out.element)
        restored = generic([result], target, back[::-1], ["parallel"] * len(order), lambda x, _: x)
    old.op.results[0].replace_all_uses_with(restored)
    old.op.erase()
    again = contraction(linalg_op(result.owner))
    assert again is not None
    return again


def untransposed(operand: Operand) -> Operand:
    """``operand`` as it was before a transpose: the copy into panels transposes as well, and one copy is enough."""
    owner = operand.value.owner
    copy = linalg_op(owner) if isinstance(owner, (ir.Operation, ir.OpView)) else None
    if copy is None or len(copy.inputs) != 1 or copy.body or copy.is_fill:
        return operand
    source, (target,) = copy.inputs[0], copy.outputs
    if not source.plain or not target.plain or set(source.dims) != set(target.dims):
        return operand
    places = [target.dims.index(loop) for loop in source.dims]
    dims, expressions = tuple(operand.dims[i] for i in places), tuple(operand.expressions[i] for i in places)
    return untransposed(replace(source, dims=dims, expressions=expressions))


def _in_two_parts(found: Contraction, whole: int, tile: RegisterTile) -> Any:
    """Rows that the tile divides, then the rest as a tile of its own; both write into one tensor."""
    row, tensor = found.rows[-1], dialect("tensor")
    total = found.op.shape[row]
    result = found.out.value
    for start, size in ((0, whole), (whole, total - whole)):
        lhs = _rows_of(found, start, size)
        position = found.out.dims.index(row)
        init = _slice(found.out.value, position, start, size)
        part = _packed(found, lhs, init, RegisterTile(min(tile.rows, size), tile.columns))
        offsets = [start if i == position else 0 for i in range(len(found.out.dims))]
        shape = list(part.type.shape)
        result = tensor.insert_slice(part, result, [], [], [], offsets, shape, [1] * len(shape))
    return result


def _rows_of(found: Contraction, start: int, size: int) -> Any:
    """The part of the left-hand side that rows ``start`` to ``start + size`` read."""
    row = found.rows[-1]
    (position,) = [i for i, e in enumerate(found.lhs.expressions) if row in expression_loops(e)]
    step = coefficient(found.lhs.expressions[position], row)
    extent = found.lhs.value.type.shape[position] - (found.op.shape[row] - size) * step
    return _slice(found.lhs.value, position, start * step, extent)


def _slice(value: Any, position: int, start: int, size: int) -> Any:
    shape = list(value.type.shape)
    shape[position] = size
    offsets = [start if i == position else 0 for i in range(len(shape))]
    kind = ir.RankedTensorType.get(shape, value.type.element_type)
    return dialect("tensor").extract_slice(kind, value, [], [], [], offsets, shape, [1] * len(shape))


def _packed(found: Contraction, lhs: Any, init: Any, tile: RegisterTile) -> Any:
    """The packed form over (a part of) the rows; returns the result in the shape of ``init``."""
    row, column = found.rows[-1], found.columns[-1]
    columns = found.op.shape[column]
    padding = -columns % tile.columns
    rhs = found.rhs.value
    if padding:
        rhs = pad_end(rhs, found.rhs.dims.index(column), padding)
        init = pad_end(init, found.out.dims.index(column), padding)
    split = Tiling({row: tile.rows, column: tile.columns})
    init, out_loops = split.expand(init, found.out.dims)
    inner = [loop for d in (*found.batch, *found.rows, *found.columns, *found.sums) for loop in split.loops(d)]
    position = {loop: i for i, loop in enumerate(inner)}
    if found.lhs.windows:
        lhs_map = _window_map(found, split, position)
    else:
        lhs, lhs_loops = split.expand(lhs, found.lhs.dims)
        lhs_map = [position[loop] for loop in lhs_loops]
    lhs = _widened(lhs, found.lhs_widening)
    rhs, rhs_loops = split.expand(rhs, found.rhs.dims)
    rhs, rhs_loops = _copy(
        rhs, rhs_loops, [*_whole(found.batch), *_panelled(found.columns, split, found.sums)], found.rhs_widening
    )
    kinds = ["reduction" if loop[0] in found.sums else "parallel" for loop in inner]
    maps = [lhs_map, [position[loop] for loop in rhs_loops], [position[loop] for loop in out_loops]]
    result = generic([lhs, rhs], init, maps, kinds, multiply_add)
    result = split.collapse(result, found.out.dims)
    return _slice(result, found.out.dims.index(column), 0, columns) if padding else result


def multiply_add(x: Any, y: Any, accumulator: Any) -> Any:
    """The body of a product."""
    arith = dialect("arith")
    if isinstance(accumulator.type, ir.IntegerType):
        return arith.addi(accumulator, arith.muli(x, y))
    return arith.addf(accumulator, arith.mulf(x, y))


def _window_map(found: Contraction, split: Tiling, position: Mapping[Loop, int]) -> Any:
    """The map of a convolution's left-hand side, with the loop of a split row as tile times size plus row."""
    loops = []
    for d in range(len(found.op.sizes)):
        outer, *inner = [ir.AffineDimExpr.get(position[loop]) for loop in split.loops(d)]
        loops.append(outer * split.inner[d] + inner[0] if inner else outer)
    renamed = ir.AffineMap.get(len(position), 0, loops)
    return ir.AffineMap.get(len(position), 0, [e.compose(renamed) for e in found.lhs.expressions])


def _panelled(dims: Sequence[int], split: Tiling, sums: Sequence[int]) -> list[Loop]:
    """The order of a panel: other dimensions, tiles, summation, inside of a tile."""
    *others, last = dims
    outer, inner = split.loops(last)
    return [*_whole(others), outer, *_whole(sums), inner]


def _copy(value: Any, given: list[Loop], wanted: list[Loop], widening: Sequence[Widening]) -> tuple[Any, list[Loop]]:
    """``value``, whose dimensions follow the loops ``given``, in the order ``wanted`` and in the type of the accumulator."""
    sizes = dict(zip(given, value.type.shape, strict=True))
    element = widening[-1].type if widening else value.type.element_type
    init = dialect("tensor").empty([sizes[loop] for loop in wanted], element)
    maps = [[wanted.index(loop) for loop in given], list(range(len(wanted)))]
    return generic([value], init, maps, ["parallel"] * len(wanted), lambda x, _: widen(x, widening)), wanted


def _whole(dims: Sequence[int]) -> list[Loop]:
    return [(d, 0) for d in dims]


def _widened(value: Any, widening: Sequence[Widening]) -> Any:
    """``value``, elementwise in the type of the accumulator."""
    if not widening:
        return value
    init = dialect("tensor").empty(list(value.type.shape), widening[-1].type)
    identity = list(range(len(value.type.shape)))
    return generic([value], init, [identity, identity], ["parallel"] * len(identity), lambda x, _: widen(x, widening))


def widen(scalar: Any, widening: Sequence[Widening]) -> Any:
    """The conversions of ``widening``, applied to a scalar."""
    for step in widening:
        scalar = ir.Operation.create(step.op, results=[step.type], operands=[scalar]).results[0]
    return scalar
