"""The block of a product's result that one workgroup computes, and the register tiles in it.

Sizes come in, a shape comes out; nothing is masked or padded.  Where blocks do not divide the result, the last one begins
earlier, so that all are whole: what two of them compute, both compute alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlirstack.schedules.cpu.register_tile import Registers

_MOST_ROWS, _MOST_COLUMNS = 192, 128  # of a block: its accumulators fit in the second cache beside what is multiplied
_MOST_TILE_ROWS = 12
_WAYS, _PAGE = 8, 4096  # of the first cache: rows that lie a multiple of a page apart share so many places
_VECTORS, _VECTORS_OF_FEW_ROWS = (1, 2), (1, 2, 4, 8)  # registers along the columns of a tile
_FEW_ROWS = 2
_LATENCY = 4  # cycles of a multiplication with addition; two begin in each, and two loads
_REST = 4  # cycles that are lost for so many rows and registers of a tile: 6x2 is 5% faster than 4x2, 8x1 20% slower
_SPLITS = (1, 2, 4)  # of the largest block, where blocks are few
_ENOUGH_BLOCKS, _WORTH_A_THREAD = 16, 1 << 20  # blocks for any machine; multiplications, some 20 us of them
_BLOCK_COST = 2  # rows, or columns, that as much time is lost with for each block


@dataclass(frozen=True)
class Block:
    """``rows`` x ``columns`` of a result, in tiles of ``tile_rows`` x ``tile_columns``, which divide them."""

    rows: int
    columns: int
    tile_rows: int
    tile_columns: int


def product_block(rows: int, columns: int, sums: int, registers: Registers, *, row_bytes: int, batch: int) -> Block | None:
    """The block with the least time for ``batch`` results of ``rows`` x ``columns``, each element ``sums`` multiplications;
    each row of the left-hand side lies ``row_bytes`` from the next.  None for fewer columns than a register has lanes.

    Blocks are smaller where there would be few of them, and all the work in these.
    """
    block = None
    for parts in _SPLITS:
        block = _cheapest_block(rows, columns, registers, row_bytes, (_MOST_ROWS // parts, _MOST_COLUMNS // parts))
        if block is None:
            break
        count = batch * blocks_of(rows, block.rows) * blocks_of(columns, block.columns)
        if count >= min(_ENOUGH_BLOCKS, batch * rows * columns * sums // _WORTH_A_THREAD):
            break
    return block


def _cheapest_block(rows: int, columns: int, registers: Registers, row_bytes: int, limits: tuple[int, int]) -> Block | None:
    most = _WAYS if row_bytes % _PAGE == 0 else _MOST_TILE_ROWS
    best: tuple[float, Block] | None = None
    for vectors in _VECTORS_OF_FEW_ROWS if rows <= _FEW_ROWS else _VECTORS:
        width = vectors * registers.lanes
        for tile in range(1, most + 1):
            if (tile + 1) * vectors >= registers.count:
                break
            down, across = _cheapest(rows, tile, limits[0]), _cheapest(columns, width, limits[1])
            if down is None or across is None:
                continue
            cost = down[0] * across[0] * _cycles(tile, vectors) / (tile * vectors)
            if best is None or cost < best[0]:
                best = cost, Block(down[1], across[1], tile, width)
    return best and best[1]


def blocks_of(size: int, block: int) -> int:
    """How many blocks cover ``size``."""
    return -(-size // block)


def _cheapest(size: int, tile: int, most: int) -> tuple[float, int] | None:
    """The multiple of ``tile`` that covers ``size`` with the least to compute, and that in elements; None for none."""
    return min(_covers(size, tile, most), default=None)


def _covers(size: int, tile: int, most: int) -> Iterator[tuple[float, int]]:
    for block in range(tile, min(size, most) + 1, tile):
        count = blocks_of(size, block)
        yield count * block + _BLOCK_COST * (count - 1), block


def _cycles(rows: int, vectors: int) -> float:
    """Of one step of the summation in a tile: multiplications, loads, or what waits for the step before."""
    return max(rows * vectors / 2, (rows + vectors) / 2, _LATENCY) + (rows + vectors) / _REST
