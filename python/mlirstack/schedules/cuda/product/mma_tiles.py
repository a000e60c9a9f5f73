"""Tiles in shared memory as ``mma.sync`` wants them: swizzled, and where each warp finds its fragments."""

from __future__ import annotations

from typing import Any

from mlirstack.schedules.cuda.instructions import tensor_core
from mlirstack.schedules.cuda.instructions.tensor_core import CHUNK, MMA_BYTES, SharedTile
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int

FRAGMENT_ROWS = 16  # rows of one ldmatrix.x4: those of A in one mma.sync, those of B in two


class MmaTiles:
    """A tile of ``rows`` x ``k_bytes`` bytes of K, elements of ``size`` bytes.

    ``k_major``: K is contiguous in shared memory (ldmatrix).  Otherwise rows are: 16-bit elements are transposed on the way
    (ldmatrix.trans), 32-bit ones loaded word by word; bytes cannot be.  ``is_b``: the tile is of B, whose operands of one
    mma.sync are two registers (side by side, like all operands of more than 32 bits), not four.
    """

    def __init__(self, rows: int, k_bytes: int, size: int, *, k_major: bool, is_b: bool) -> None:
        if not k_major and size == 1:
            raise ValueError("bytes cannot be transposed on their way to registers")
        self._k_major, self._is_b, self._steps = k_major, is_b, k_bytes // MMA_BYTES
        self._tile = SharedTile(rows, k_bytes) if k_major else SharedTile(k_bytes // size, rows * size, words=size == 4)
        self._places: dict[tuple[int, int], list[tuple[Int, int]]] = {}  # (block, step) → lane's offset, constant offset

    def target(self, width: int, line: Int, piece: Int) -> Int:
        """Where piece ``piece`` (of ``width`` bytes) of line ``line`` stands."""
        per_chunk = CHUNK // width
        chunk = piece // per_chunk
        return self._tile.offset(line, chunk) + (piece % per_chunk) * width

    def place(self, lane: Int, first_row: Int, rows: int) -> None:
        """Work out where a warp finds its fragments: ``rows`` (a multiple of 16) rows of the tile from ``first_row`` on."""
        tile, blocks, steps = self._tile, range(rows // FRAGMENT_ROWS), range(self._steps)
        # A lane addresses one line of one of four matrices of 8 x 16 bytes: half of the rows, half of K.
        row_half, k_half = (lane >> 3) & 1, lane >> 4
        if self._is_b:
            row_half, k_half = k_half, row_half
        if self._k_major:
            row = (row_half << 3) + (lane & 7)
            base, phase = (first_row + row) * tile.row_bytes, tile.phase(row)
            along_k = [base + (((k_half + 2 * step) ^ phase) << 4) for step in steps]
            self._places = {(i, s): [(along_k[s], i * FRAGMENT_ROWS * tile.row_bytes)] for i in blocks for s in steps}
        elif not tile.words:
            k = (k_half << 3) + (lane & 7)
            base, phase, chunk = k * tile.row_bytes, tile.phase(k), (first_row >> 3) + row_half
            along_rows = [base + (((chunk + 2 * i) ^ phase) << 4) for i in blocks]
            self._places = {(i, s): [(along_rows[i], s * 16 * tile.row_bytes)] for i in blocks for s in steps}
        else:
            self._place_words(lane, first_row, blocks, steps)

    def _place_words(self, lane: Int, first_row: Int, blocks: range, steps: range) -> None:
        """Each of the four registers of a fragment is a load of its own."""
        order = ((0, 0), (0, 1), (1, 0), (1, 1)) if self._is_b else ((0, 0), (1, 0), (0, 1), (1, 1))  # halves of rows, of K
        tile, k, group = self._tile, lane & 3, lane >> 2
        for i in blocks:
            halves = []
            for half in range(2):
                row = first_row + group + (16 * i + 8 * half)
                halves.append(k * tile.row_bytes + (((row >> 2) ^ tile.phase(k)) << 4) + ((row & 3) << 2))
            for s in steps:
                self._places[i, s] = [(halves[r], (8 * s + 4 * h) * tile.row_bytes) for r, h in order]

    def fragment(self, kernel: Kernel, shared: Any, block: int, step: int) -> list[Any]:
        """Rows 16 ``block``… of the warp's rows, step ``step`` of 32 bytes of K: four i32.

        Of A: rows 0-7 and 8-15 of the first half of K, then of the second.  Of B: both halves of K of columns 0-7, then of
        columns 8-15.
        """
        addresses = [kernel.offset(kernel.offset(shared, lane), fixed) for lane, fixed in self._places[block, step]]
        if self._tile.words:
            return [kernel.load(kernel.i32, address, 4) for address in addresses]
        return tensor_core.load_matrices(kernel, addresses[0], transposed=not self._k_major)
