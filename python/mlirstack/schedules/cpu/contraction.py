"""The loop nest of a packed contraction: cache blocks, panels, a register tile that steps through the summation.

The blocking follows Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008): a panel of B stays in
the first cache while the rows of a block pass, a block of B in the second; what comes after the contraction is fused at
block level, where its input is still in the second cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlirstack.schedules.contractions import Contraction, contraction
from mlirstack.schedules.linalg_ops import LinalgOp
from mlirstack.schedules.transform import Handle, Script

_FEW_TILES = 2  # of rows


@dataclass(frozen=True)
class CacheBlocks:
    """Elements of a block: rows and columns of the result, length of the summation."""

    rows: int = 512
    columns: int = 512
    sums: int = 192


@dataclass(frozen=True)
class PackedLoops:
    """The loops of a packed contraction: batch and other outer ones, rows of an image, row tiles and the rows in
    them, column panels and the columns in them, summation."""

    outer: tuple[int, ...]
    other_rows: tuple[int, ...]
    row_tile: int
    row: int
    panel: int
    column: int
    sums: tuple[int, ...]


def packed_loops(op: LinalgOp) -> PackedLoops | None:
    """The loops of ``op`` if it is a contraction in packed form (see ``schedules.cpu``), else None."""
    found = contraction(op)
    if found is None or len(found.rows) < 2 or len(found.columns) < 2 or not found.sums:
        return None
    if not _is_packed(found):
        return None
    *other_rows, row_tile, row = found.rows
    *other_columns, panel, column = found.columns
    outer = (*found.batch, *other_columns)
    return PackedLoops(outer, tuple(other_rows), row_tile, row, panel, column, found.sums)


def _is_packed(found: Contraction) -> bool:
    rhs = found.rhs.dims
    return rhs[-1] == found.columns[-1] and rhs[-2] in found.sums and found.columns[-2] in rhs


def block_sizes(op: LinalgOp, loops: PackedLoops, blocks: CacheBlocks) -> dict[int, int]:
    """Tile sizes of the parallel loops at block level; loops that fit in one block are left out."""
    shape = op.shape
    wanted = dict.fromkeys(loops.outer, 1)
    left = max(1, blocks.rows // shape[loops.row])
    for loop in (loops.row_tile, *reversed(loops.other_rows)):
        wanted[loop] = left
        left = max(1, left // shape[loop])
    wanted[loops.panel] = max(1, blocks.columns // shape[loops.column])
    return {loop: size for loop, size in wanted.items() if size < shape[loop]}


def tile_packed(script: Script, op: Handle, shape: Sequence[int], loops: PackedLoops, blocks: CacheBlocks) -> None:
    """Loops inside a block: over the summation in blocks, panels, row tiles, and the summation one by one.

    A convolution sums over its window and the channels at once: its panel is read from the second cache in order.  So is one
    that few rows use: it comes from memory, in one piece.
    """
    last = loops.sums[-1]
    is_used_again = shape[loops.row_tile] > _FEW_TILES or bool(loops.other_rows)
    if len(loops.sums) == 1 and is_used_again and shape[last] > blocks.sums + blocks.sums // 2:
        op = _tile(script, op, shape, {last: blocks.sums})
    op = _tile(script, op, shape, {loops.panel: 1})
    op = _tile(script, op, shape, dict.fromkeys((*loops.other_rows, loops.row_tile), 1))
    _tile(script, op, shape, dict.fromkeys(loops.sums, 1))


def _tile(script: Script, op: Handle, shape: Sequence[int], sizes: Mapping[int, int]) -> Handle:
    return script.tile(op, [sizes.get(loop, 0) if size > 1 else 0 for loop, size in enumerate(shape)])
