"""The loop nest of a packed contraction: cache blocks, panels, a register tile that steps through the summation.

The blocking follows Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008): a panel of B stays in
the first cache while the rows of a block pass, a block of B in the second; what comes after the contraction is fused at
block level, where its input is still in the second cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlirstack.schedules.contractions import Contraction, contraction
from mlirstack.schedules.linalg_ops import LinalgOp
from mlirstack.schedules.transform import Handle, Script


@dataclass(frozen=True)
class CacheBlocks:
    """Elements of a block: rows and columns of the result, length of the summation."""

    rows: int = 512
    columns: int = 512
    sums: int = 192


@dataclass(frozen=True)
class PackedLoops:
    """The loops of a packed contraction: batch and other outer ones, row tiles and the rows in them, column panels and the
    columns in them, summation."""

    outer: tuple[int, ...]
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
    return PackedLoops((*found.batch, *other_rows, *other_columns), row_tile, row, panel, column, found.sums)


def _is_packed(found: Contraction) -> bool:
    rhs = found.rhs.dims
    return rhs[-1] == found.columns[-1] and rhs[-2] in found.sums and found.columns[-2] in rhs


def block_sizes(op: LinalgOp, loops: PackedLoops, blocks: CacheBlocks) -> dict[int, int]:
    """Tile sizes of the parallel loops at block level; loops that fit in one block are left out."""
    shape = op.shape
    wanted = dict.fromkeys(loops.outer, 1)
    wanted[loops.row_tile] = max(1, blocks.rows // shape[loops.row])
    wanted[loops.panel] = max(1, blocks.columns // shape[loops.column])
    return {loop: size for loop, size in wanted.items() if size < shape[loop]}


def tile_packed(script: Script, op: Handle, shape: Sequence[int], loops: PackedLoops, blocks: CacheBlocks) -> None:
    """Loops inside a block: over the summation in blocks, panels, row tiles, and the summation one by one."""
    rank = len(shape)
    *other_sums, last = loops.sums
    outer = [0] * rank
    for loop in other_sums:
        outer[loop] = int(shape[loop] > 1)
    if shape[last] > blocks.sums + blocks.sums // 2:
        outer[last] = blocks.sums
    op = script.tile(op, outer)
    panels = [0] * rank
    panels[loops.panel] = int(shape[loops.panel] > 1)
    op = script.tile(op, panels)
    rows = [0] * rank
    rows[loops.row_tile] = int(shape[loops.row_tile] > 1)
    op = script.tile(op, rows)
    steps = [0] * rank
    steps[last] = int(shape[last] > 1)
    script.tile(op, steps)
