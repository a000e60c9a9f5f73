"""Products as kernels over one block of the result: panels of the right-hand side packed in the program, the rest in place.

Takes kernel functions over whole matrices, leaves them over one block, as target ``cpu`` multiplies it, and the program with
the packing in front of each call.  Arguments keep their types, which say how far rows lie apart: a kernel is called with
pointers to where its block begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.kernels import CONTRACTION, KERNEL_ATTRIBUTE
from mlirstack.ir.ops import function, walk
from mlirstack.ir.ops import functions as functions_of
from mlirstack.passes import abi, functions
from mlirstack.passes.iree.split import can_be_dispatched
from mlirstack.passes.regions import inline_call
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.contractions import Contraction, contraction
from mlirstack.schedules.cpu.blocks import Block, blocks_of, product_block
from mlirstack.schedules.cpu.machine import HOST, vector_bits
from mlirstack.schedules.cpu.packing import multiply_add
from mlirstack.schedules.cpu.register_tile import Registers
from mlirstack.schedules.cpu.tile_shape import BodyCopy, fill_of, generic
from mlirstack.schedules.linalg_ops import LinalgOp, Operand, linalg_op

# Function attributes of a kernel over a block.  GRID: rows, those of a block, columns, those of a block, outer loops.
# PLACES: for each argument, how many elements lie between two rows, columns, blocks of columns, steps of each outer loop.
GRID, PLACES = "mlirstack.grid", "mlirstack.places"

_ROW_TILE, _ROW, _PANEL, _COLUMN, _SUM = range(5)  # loops of the product in a block
_RESULT = [_ROW_TILE, _ROW, _PANEL, _COLUMN]
_PARALLEL = ["parallel"] * len(_RESULT)


@dataclass(frozen=True)
class Grid:
    """The blocks of a product: its ``rows`` and ``columns``, those of a block, and the sizes of the loops around them."""

    rows: int
    block_rows: int
    columns: int
    block_columns: int
    outer: tuple[int, ...] = ()

    @staticmethod
    def of(kernel: Any) -> Grid:
        """Read off a kernel function."""
        rows, block_rows, columns, block_columns, *outer = ir.DenseI64ArrayAttr(kernel.attributes[GRID])
        return Grid(rows, block_rows, columns, block_columns, tuple(outer))

    def numbers(self) -> list[int]:
        """Inverse of :meth:`of`."""
        return [self.rows, self.block_rows, self.columns, self.block_columns, *self.outer]

    def workgroups(self) -> tuple[int, int, int]:
        """How many blocks of rows, of columns, and matrices there are."""
        return (
            blocks_of(self.rows, self.block_rows), blocks_of(self.columns, self.block_columns), math.prod(self.outer)
        )  # fmt: skip


@dataclass(frozen=True)
class BlockProducts(PythonPass):
    """Before: kernels of class "contraction" over whole matrices, and the program that calls them.  After: each computes one
    block, in tiles of registers of ``vector_bits`` (0: those of this machine), and says where blocks lie
    (``mlirstack.grid``, ``mlirstack.places``); the program packs the right-hand side into panels,
    ``[blocks, panels, sums, columns]``.

    A product that cannot be a dispatch of IREE's, or of which some argument is read in two ways, goes back into the program.
    """

    name = "mlirstack-iree-blocks"
    vector_bits: int = HOST

    def apply(self, module: Any) -> None:
        main = function(module, abi.MAIN)
        for kernel in [f for f in functions_of(module) if _is_product(f)]:
            product = _Product.of(kernel, vector_bits(self.vector_bits)) if can_be_dispatched(kernel) else None
            calls = [op for op in walk(main) if _calls(op, kernel)]
            if product is None:
                for call in calls:
                    inline_call(call, kernel)
                kernel.operation.erase()
                continue
            position = ir.BlockArgument(product.found.rhs.value).arg_number
            for call in calls:
                with ir.InsertionPoint(call), call.location:
                    call.operands[position] = _packed(call.operands[position], product)
            _write_block(kernel, product)


def _is_product(kernel: Any) -> bool:
    return KERNEL_ATTRIBUTE in kernel.attributes and str(kernel.attributes[KERNEL_ATTRIBUTE]) == f'"{CONTRACTION}"'


def _calls(op: Any, kernel: Any) -> bool:
    return op.name == "func.call" and str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value) == functions.name_of(kernel)


@dataclass(frozen=True)
class _Product:
    """A product, the elementwise ops behind it, and the block that is computed at a time.

    ``row`` and ``column`` are its innermost such loops (no row: a vector); loops around them are ``outer``.  ``read`` are
    the arguments of the kernel by number, each with the product's loops that it varies with; ``written`` is the number of
    the one that takes the result.
    """

    found: Contraction
    epilogue: tuple[LinalgOp, ...]
    block: Block
    row: int | None
    column: int
    outer: tuple[int, ...]
    read: Mapping[int, Operand]
    written: int

    @staticmethod
    def of(kernel: Any, bits: int) -> _Product | None:
        """What ``kernel`` computes; None where an argument is read in two ways or is no tensor, or columns are few."""
        kinds = functions.type_of(kernel).inputs
        if not all(isinstance(kind, ir.RankedTensorType) and kind.has_static_shape for kind in kinds):
            return None
        ops = [op.operation for op in kernel.regions[0].blocks[0].operations]
        known = [linalg_op(op) for op in ops if op.name.startswith("linalg.") and op.name != "linalg.fill"]
        found = contraction(known[0]) if known else None
        epilogue = tuple(op for op in known[1:] if op is not None)
        if found is None:
            return None
        read, written = _read(found, epilogue), _destination(epilogue[-1] if epilogue else found.op)
        row, column = found.rows[-1] if found.rows else None, found.columns[-1]
        outer = tuple(d for d in found.op.parallel if d not in (row, column))
        shape, bits_each = found.op.shape, found.op.element_bits
        block = product_block(
            1 if row is None else shape[row],
            shape[column],
            shape[found.sums[0]],
            Registers.of(bits, bits_each),
            row_bytes=_step(found.lhs, row) * bits_each // 8,
            batch=math.prod(shape[d] for d in outer),
        )
        if read is None or written is None or block is None or {*read, written} != {*range(len(kinds))}:
            return None
        return _Product(found, epilogue, block, row, column, outer, read, written)

    @property
    def grid(self) -> Grid:
        """Where its blocks are."""
        shape = self.found.op.shape
        rows = 1 if self.row is None else shape[self.row]
        return Grid(rows, self.block.rows, shape[self.column], self.block.columns, tuple(shape[d] for d in self.outer))

    @property
    def tiles(self) -> list[int]:
        """Tiles of rows in a block, rows of a tile, panels, columns of a panel."""
        block = self.block
        return [block.rows // block.tile_rows, block.tile_rows, block.columns // block.tile_columns, block.tile_columns]

    def places(self, operand: Operand) -> list[int]:
        """:data:`PLACES` of an operand as the program has it."""
        return [_step(operand, self.row), _step(operand, self.column), 0, *(_step(operand, d) for d in self.outer)]


def _read(found: Contraction, epilogue: Sequence[LinalgOp]) -> dict[int, Operand] | None:
    """The arguments that are read, by number, in loops of the product; None if one is read in two ways."""
    read: dict[int, Operand] = {}
    behind = [_as_result(operand, found) for op in epilogue for operand in op.inputs]
    for operand in (found.lhs, found.rhs, *behind):
        if isinstance(operand.value.owner, ir.Block) and operand.dims:
            number = ir.BlockArgument(operand.value).arg_number
            if not operand.plain or read.setdefault(number, operand).dims != operand.dims:
                return None
    return read


def _as_result(operand: Operand, found: Contraction) -> Operand:
    """An operand of an elementwise op over the result, in loops of the product."""
    return replace(operand, dims=tuple(None if d is None else found.out.dims[d] for d in operand.dims))


def _destination(op: LinalgOp) -> int | None:
    """The number of the argument that ``op`` writes to, filled before or not."""
    value = op.outputs[0].value
    if fill_of(value) is not None:
        value = value.owner.operation.operands[1]
    return ir.BlockArgument(value).arg_number if isinstance(value.owner, ir.Block) else None


def _step(operand: Operand, loop: int | None) -> int:
    """Elements between two places of an operand that are one iteration of ``loop`` apart; 0 where it does not vary."""
    if loop is None or loop not in operand.dims:
        return 0
    return math.prod(size or 1 for size in operand.shape[operand.dims.index(loop) + 1 :])


# ------------------------------------------------------------------------------------------------- packing, in the program


def _packed(value: Any, product: _Product) -> Any:
    """``value`` as ``[outer, blocks, panels, sums, columns of a panel]``, the dimensions of one matrix in the order of the
    loops; blocks that would leave a rest begin earlier, so what they share stands there twice."""
    tensor, rhs, block = dialect("tensor"), product.found.rhs, product.block
    axis = rhs.dims.index(product.column)
    columns = value.type.shape[axis]
    count = blocks_of(columns, block.columns)
    if columns % block.columns:
        whole = (count - 1) * block.columns
        parts = [_part(value, axis, 0, whole), _part(value, axis, columns - block.columns, block.columns)]
        shape = [count * block.columns if i == axis else size for i, size in enumerate(value.type.shape)]
        value = tensor.concat(ir.RankedTensorType.get(shape, rhs.element), axis, parts)
    panels = [count, block.columns // block.tile_columns, block.tile_columns]
    shape = [n for i, size in enumerate(value.type.shape) for n in (panels if i == axis else [size])]
    groups = [[i + (2 if i > axis else 0)] if i != axis else [i, i + 1, i + 2] for i in range(len(rhs.dims))]
    value = tensor.expand_shape(ir.RankedTensorType.get(shape, rhs.element), value, groups, [], shape)
    sums = rhs.dims.index(product.found.sums[0])
    outer = [group[0] for i, group in enumerate(groups) if i not in (axis, sums)]
    order = [*outer, axis, axis + 1, groups[sums][0], axis + 2]
    if order == sorted(order):
        return value
    empty = tensor.empty([shape[i] for i in order], rhs.element)
    return dialect("linalg").transpose(value, outs=[empty], permutation=order).results[0]


def _part(value: Any, axis: int, start: int, size: int) -> Any:
    shape = [size if i == axis else n for i, n in enumerate(value.type.shape)]
    offsets = [start if i == axis else 0 for i in range(len(shape))]
    kind = ir.RankedTensorType.get(shape, value.type.element_type)
    return dialect("tensor").extract_slice(kind, value, [], [], [], offsets, shape, [1] * len(shape))


# ------------------------------------------------------------------------------------------------------ one block, inside


def _write_block(kernel: Any, product: _Product) -> None:
    """Replace the body of ``kernel`` by that of one block, which begins where its arguments point to."""
    found, body = product.found, kernel.regions[0].blocks[0]
    *old, leave = [op.operation for op in body.operations]
    linalg, tensor = dialect("linalg"), dialect("tensor")
    result_argument, panel_argument = body.arguments[product.written], found.rhs.value
    places = {number: product.places(operand) for number, operand in product.read.items()}
    places[product.written] = product.places(found.out)
    panel_argument.set_type(_panel_type(product))
    places[panel_argument.arg_number] = _panel_places(product)
    with ir.InsertionPoint(leave), leave.location:
        written = replace(found.out, value=result_argument, element=result_argument.type.element_type)
        target = _tiled(product, written, whole=True)
    with ir.InsertionPoint(leave), found.op.op.location:
        lhs = _tiled(product, found.lhs, whole=True)
        # Sums lie in memory of the kernel's own: rows of the result are far apart, and two blocks may share some.
        sums = linalg.fill(fill_of(found.out.value), outs=[tensor.empty(product.tiles, found.out.element)])
        maps = [lhs.loops, [_PANEL, _SUM, _COLUMN], _RESULT]
        result = generic([lhs.value, _panels(product)], sums, maps, [*_PARALLEL, "reduction"], multiply_add)
    with ir.InsertionPoint(leave), leave.location:
        result = _epilogue(product, result, target.value)
        leave.operands[0] = target.put(result, result_argument)
    for op in reversed(old):
        if op.name.startswith(("linalg.", "tensor.")):
            op.erase()
    functions.set_type(kernel, [argument.type for argument in body.arguments], functions.type_of(kernel).results)
    kernel.attributes[GRID] = ir.DenseI64ArrayAttr.get(product.grid.numbers())
    kernel.attributes[PLACES] = ir.ArrayAttr.get([ir.DenseI64ArrayAttr.get(places[n]) for n in sorted(places)])


@dataclass(frozen=True)
class _Tiled:
    """The block's part of an argument in the shape of register tiles: ``loops`` are those of its dimensions, ``groups`` the
    dimensions that are one in ``part``, which takes ``sizes`` of each dimension of the argument."""

    value: Any
    loops: list[int]
    groups: list[list[int]]
    part: Any
    sizes: list[int]

    def put(self, result: Any, argument: Any) -> Any:
        """``argument`` with ``result``, of the shape of tiles, in the place of the part."""
        tensor, rank = dialect("tensor"), len(self.sizes)
        if len(self.groups) != len(self.loops):
            result = tensor.collapse_shape(self.part, result, self.groups)
        return tensor.insert_slice(result, argument, [], [], [], [0] * rank, self.sizes, [1] * rank)


def _tiled(product: _Product, operand: Operand, *, whole: bool = False) -> _Tiled:
    """The block's part of an operand; ``whole``: with loops over rows, one of them, even where the product has none."""
    parts = {product.row: [_ROW_TILE, _ROW], product.column: [_PANEL, _COLUMN]}
    sizes: list[int] = []
    shape: list[int] = []
    loops: list[int] = []
    groups: list[list[int]] = []
    for d, size in zip(operand.dims, operand.shape, strict=True):
        if d in product.outer:
            sizes.append(1)
            continue
        own = parts.get(d, [_SUM])
        extents = [size or 1] if own == [_SUM] else [product.tiles[loop] for loop in own]
        groups.append([*range(len(shape), len(shape) + len(own))])
        sizes.append(math.prod(extents))
        shape += extents
        loops += own
    kept = [math.prod(shape[i] for i in group) for group in groups]
    if whole and product.row is None:
        shape, loops = [1, 1, *shape], [_ROW_TILE, _ROW, *loops]
        groups = [[i + 2 for i in group] for group in groups]
        groups[0] = [0, 1, *groups[0]]
    part = ir.RankedTensorType.get(kept, operand.element)
    value = _slice(operand.value, part, sizes)
    if shape != kept:
        value = dialect("tensor").expand_shape(ir.RankedTensorType.get(shape, operand.element), value, groups, [], shape)
    return _Tiled(value, loops, groups, part, sizes)


def _slice(value: Any, kind: Any, sizes: Sequence[int]) -> Any:
    rank = len(sizes)
    return dialect("tensor").extract_slice(kind, value, [], [], [], [0] * rank, sizes, [1] * rank)


def _panel_type(product: _Product) -> Any:
    """The type of the packed right-hand side: ``[outer, blocks, panels, sums, columns of a panel]``."""
    rhs = product.found.rhs
    outer = [size or 1 for d, size in zip(rhs.dims, rhs.shape, strict=True) if d in product.outer]
    blocks = blocks_of(product.grid.columns, product.block.columns)
    return ir.RankedTensorType.get([*outer, blocks, *_panel_sizes(product)], rhs.element)


def _panel_sizes(product: _Product) -> list[int]:
    """Of the panels of one block."""
    *_, panels, columns = product.tiles
    return [panels, product.found.op.shape[product.found.sums[0]], columns]


def _panel_places(product: _Product) -> list[int]:
    """:data:`PLACES` of the packed right-hand side."""
    shape, rhs = list(_panel_type(product).shape), product.found.rhs
    outer = [d for d in rhs.dims if d in product.outer]
    steps = {d: math.prod(shape[i + 1 :]) for i, d in enumerate(outer)}
    return [0, 0, math.prod(_panel_sizes(product)), *(steps.get(d, 0) for d in product.outer)]


def _panels(product: _Product) -> Any:
    """The panels of one block, out of the packed right-hand side."""
    packed, sizes = product.found.rhs.value, _panel_sizes(product)
    kind = ir.RankedTensorType.get(sizes, product.found.rhs.element)
    return _slice(packed, kind, [1] * (packed.type.rank - len(sizes)) + sizes)


def _epilogue(product: _Product, sums: Any, target: Any) -> Any:
    """``target`` with what the elementwise ops behind the product make of ``sums``, as one op."""
    operands, maps, values = [sums], [_RESULT], [product.found.op.op.results[0]]
    for operand in (operand for op in product.epilogue for operand in op.inputs):
        if isinstance(operand.value.owner, ir.Block) and operand.value not in values:
            tiled = _tiled(product, _as_result(operand, product.found))
            operands.append(tiled.value)
            maps.append(tiled.loops)
            values.append(operand.value)

    def body(*scalars: Any) -> Any:
        known = dict(zip(values, scalars, strict=False))
        last = scalars[0]
        for op in product.epilogue:
            given = [known.get(operand.value, operand.value) for operand in op.inputs]
            last = known[op.op.results[0]] = BodyCopy(op)(*given, scalars[-1])
        return last

    return generic(operands, target, [*maps, _RESULT], _PARALLEL, body)
