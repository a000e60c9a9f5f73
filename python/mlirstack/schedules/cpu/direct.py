"""Contractions that read their right-hand side where it lies: a copy into panels would cost more than it saves.

Where both operands are contiguous along the summation, a block of the result is a block of dot products, whose partial
results are vectors along the summation; else its columns are vectors, and the summation steps by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlirstack.schedules.contractions import Contraction, contraction
from mlirstack.schedules.cpu.contraction import packed_loops
from mlirstack.schedules.cpu.fusion import FusionPlan
from mlirstack.schedules.cpu.loops import NestPlan, Unrolling, lanes, plan_nest, tile_nest
from mlirstack.schedules.cpu.register_tile import Registers
from mlirstack.schedules.linalg_ops import LinalgOp
from mlirstack.schedules.transform import Handle, Script

_BLOCK = 64  # columns that are computed before what follows the contraction
_WIDEST = 8  # vectors along the columns: whole cache lines in a row
_MOST_COLUMNS = 8  # of dot products: rows of B that are read at once, each a stream of its own


@dataclass(frozen=True)
class DirectLoops:
    """The loops of a contraction, and the register tile: ``tile_rows`` x ``tile_columns`` results, each a vector along the
    summation (``dots``) or an element of one along the columns.  ``block`` columns divide all columns."""

    found: Contraction
    dots: bool
    tile_rows: int
    tile_columns: int
    block: int

    @property
    def row(self) -> int | None:
        """The innermost row loop, where there are rows."""
        return self.found.rows[-1] if self.found.rows else None

    @property
    def column(self) -> int:
        """The innermost column loop."""
        return self.found.columns[-1]

    @property
    def sum(self) -> int:
        """The summation loop."""
        return self.found.sums[0]


def reads_in_place(found: Contraction) -> bool:
    """Are both operands contiguous along the one summation loop?"""
    return len(found.sums) == 1 and found.lhs.dims[-1] == found.rhs.dims[-1] == found.sums[0]


def direct_loops(op: LinalgOp, bits: int) -> DirectLoops | None:
    """The loops of ``op`` if it is a contraction that is not packed, with columns, over one loop; else None."""
    found = contraction(op)
    if found is None or not found.columns or len(found.sums) != 1 or found.lhs.windows:
        return None
    if packed_loops(op) is not None or not op.vectorizable:
        return None
    rows, columns = op.shape[found.rows[-1]] if found.rows else 1, op.shape[found.columns[-1]]
    registers = Registers.of(bits, op.element_bits)
    room = registers.count * 7 // 8
    if reads_in_place(found):
        tile_rows, tile_columns = _dot_tile(rows, columns, room)
        return DirectLoops(found, True, tile_rows, tile_columns, _block(columns, tile_columns))
    if found.rhs.dims[-1] != found.columns[-1]:
        return None
    tile_rows = _largest_divisor(rows, min(room, 8))
    vectors = 1 << (min(_WIDEST, room // tile_rows).bit_length() - 1)
    width = min(vectors * lanes(op, bits), columns)
    return DirectLoops(found, False, tile_rows, width, width if columns % width == 0 else columns)


def tile_direct(
    script: Script,
    function: Handle,
    symbol: str,
    ops: Sequence[LinalgOp],
    handles: Sequence[Handle],
    fusion: FusionPlan | None,
    direct: tuple[int, DirectLoops],
    bits: int,
) -> None:
    """Blocks of columns, with what follows the contraction inside; then the register tile, then the summation."""
    root, loops = direct
    unrolling = Unrolling()
    is_fused = fusion is not None and root in fusion.members
    members = fusion.members if fusion is not None and is_fused else {root: {d: d for d in ops[root].parallel}}
    terminal = fusion.terminal if fusion is not None and is_fused else root
    shared = fusion.loops if fusion is not None and is_fused else ops[root].parallel
    tags = [f"{symbol}.{i}" for i in range(len(ops))]
    for index, handle in enumerate(handles):
        script.tag(handle, tags[index])
    follows = members[root].get(loops.column)
    blocks = {}
    if follows is not None and follows in shared and loops.block < ops[root].shape[loops.column]:
        blocks = {follows: loops.block}
        script.fuse(handles[terminal], [blocks.get(d, 0) for d in range(len(ops[terminal].shape))])
        script.apply_patterns(function, "canonicalization", "linalg.tiling_canonicalization")
    for index, op in enumerate(ops):
        own = members.get(index, {})
        sizes = tuple(blocks.get(own.get(d, -1), size) for d, size in enumerate(op.shape))
        with script.foreach(script.tagged(function, tags[index])) as handle:
            if index == root:
                _tile_root(script, handle, sizes, loops, bits)
            elif (plan := plan_nest(op, bits, unrolling, sizes=sizes)) is not None:
                tile_nest(script, handle, plan)


def _tile_root(script: Script, op: Handle, sizes: Sequence[int], loops: DirectLoops, bits: int) -> None:
    """Columns outside of rows: the rows of B that a tile reads stay in the first cache while all rows of A pass."""
    if not loops.dots:
        vector = {loops.column: min(loops.tile_columns, sizes[loops.column])}
        vector |= {} if loops.row is None else {loops.row: loops.tile_rows}
        tile_nest(script, op, NestPlan(tuple(sizes), vector, loops.found.sums, carried=True))
        return
    tile: dict[int | None, int] = {loops.row: loops.tile_rows, loops.column: loops.tile_columns}
    steps = [0 if d == loops.sum else tile.get(d, 1) for d in range(len(sizes))]
    steps = [step if size > step else 0 for step, size in zip(steps, sizes, strict=True)]
    others = [d for d in (*loops.found.batch, *loops.found.columns[:-1]) if d not in tile]
    order = [*others, loops.column, *loops.found.rows, loops.sum]
    op = script.tile(op, steps, order if order != sorted(order) else ())
    inner = tuple(size if d == loops.sum else 1 for d, size in enumerate(sizes))
    width = min(lanes(loops.found.op, bits), inner[loops.sum])
    tile_nest(script, op, NestPlan(inner, {loops.sum: width}, loops.found.sums, loops.found.sums))


def _dot_tile(rows: int, columns: int, room: int) -> tuple[int, int]:
    """Rows and columns that divide those of the result, with the most multiplications for each load."""
    tiles = [(m, n) for m in _divisors(rows) for n in _divisors(columns) if m * n <= room and n <= _MOST_COLUMNS]
    return max(tiles, key=lambda tile: (tile[0] * tile[1] / (tile[0] + tile[1]), tile[0]))


def _block(columns: int, tile: int) -> int:
    """The largest block of columns that divides them and is whole tiles; all columns where only slivers would do."""
    blocks = [n for n in _divisors(columns) if n % tile == 0 and n <= _BLOCK]
    return max(blocks) if blocks and max(blocks) >= _BLOCK // 4 else columns


def _largest_divisor(number: int, most: int) -> int:
    return max(n for n in _divisors(number) if n <= most)


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
