"""Tiles of a matrix on their way from global memory through shared memory into fragments of ``mma.sync``.

:class:`MatrixTiles` is one factor of a product, rows x K, in any layout: it starts the copies of a tile, says where a warp
finds its fragments, and knows which part of a tile lies outside of the matrix (zeros, which add nothing to a sum).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda import tensor_core
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.tensor_core import CHUNK, MMA_BYTES, SharedTile
from mlirstack.schedules.cuda.values import Bool, Int

FRAGMENT_ROWS = 16  # rows of one ldmatrix.x4: those of A in one mma.sync, those of B in two


@dataclass(frozen=True)
class MatrixLayout:
    """A factor in global memory: ``rows`` x ``k`` elements of ``size`` bytes; strides in elements.

    ``alignment``: bytes that the address of its first element is a multiple of.
    """

    rows: int
    k: int
    row_stride: int
    k_stride: int
    size: int
    alignment: int = CHUNK

    @property
    def k_major(self) -> bool:
        """Is K the contiguous dimension?"""
        return self.k_stride == 1

    @property
    def copy_bytes(self) -> int:
        """The widest asynchronous copy that fits every line of the matrix: 16, 8 or 4 bytes; 0 where none does."""
        if 1 not in (self.row_stride, self.k_stride):
            return 0
        pitch, length = (self.row_stride, self.k) if self.k_major else (self.k_stride, self.rows)
        lines = self.rows if self.k_major else self.k
        widths = [w for w in (16, 8, 4) if w >= self.size and (length * self.size) % w == self.alignment % w == 0]
        return next((w for w in widths if lines == 1 or pitch * self.size % w == 0), 0)


class MatrixTiles:
    """Tiles of ``tile_rows`` x ``tile_k`` elements of one factor, copied by ``threads`` threads.

    In shared memory K is contiguous (``ldmatrix``), except where global memory has rows contiguous and 16- or 32-bit
    elements: then so has the tile (``ldmatrix.trans``, or words).
    """

    def __init__(self, layout: MatrixLayout, tile_rows: int, tile_k: int, threads: int, padded_k: int) -> None:
        self.layout = layout
        self.tile_rows, self.tile_k, self.threads = tile_rows, tile_k, threads
        self.gathers = layout.copy_bytes == 0 or (not layout.k_major and layout.size == 1)
        self.k_major = layout.k_major or self.gathers
        size = layout.size
        self.tile = (
            SharedTile(tile_rows, tile_k * size) if self.k_major else SharedTile(tile_k, tile_rows * size, words=size == 4)
        )
        self.checks_rows = layout.rows % tile_rows != 0
        self.checks_k = padded_k != layout.k

    # ------------------------------------------------------------------------------------------------------------- copies

    def place_copies(self, kernel: Kernel, pointer: Any, thread: Int, first_row: Int) -> None:
        """Work out what does not change from tile to tile.  ``pointer``: the matrix; ``first_row``: of this block's tiles."""
        width = CHUNK if self.gathers else self.layout.copy_bytes
        self._kernel, self._pointer, self._width = kernel, pointer, width
        line_bytes = self.tile.row_bytes
        pieces = line_bytes // width  # of one line of the tile
        lines = self.tile.rows
        if self.gathers and not self.layout.k_major:  # neighbouring threads read neighbouring rows
            line, piece = thread % lines, thread // lines
            step_lines, step_pieces = 0, self.threads // lines
            if self.threads % lines:
                raise ValueError(f"{self.threads} threads cannot share {lines} rows")
        else:
            line, piece = thread // pieces, thread % pieces
            step_lines, step_pieces = max(1, self.threads // pieces), 0
        count = -(-lines * pieces // self.threads)
        self._busy = thread < lines * pieces if lines * pieces < self.threads else None
        self._places = [(line + i * step_lines, piece + i * step_pieces) for i in range(count)]
        chunk_pieces = CHUNK // width
        self._targets = []
        phase = self.tile.phase(line)
        for at_line, at_piece in self._places:
            fixed = phase if step_lines % 8 == 0 else None  # neighbouring copies stand in lines of the same phase
            offset = self.tile.offset(at_line, at_piece // chunk_pieces, fixed)
            self._targets.append(offset + (at_piece % chunk_pieces) * width)
        self._first_row = first_row
        row, k = self._row_and_k(line, piece)
        each = width // self.layout.size
        along_line, along_piece = (
            (self.layout.row_stride, self.layout.k_stride) if self.k_major else (self.layout.k_stride, self.layout.row_stride)
        )
        elements = row.wide() * self.layout.row_stride + k.wide() * self.layout.k_stride
        self._source = kernel.offset(pointer, elements * self.layout.size)
        step = (step_lines * along_line + step_pieces * each * along_piece) * self.layout.size
        self._shifts = [i * step for i in range(count)]  # constants: one address serves all copies of a thread

    def _row_and_k(self, line: Int, piece: Int) -> tuple[Int, Int]:
        """The row of the matrix and the k within a tile of K, of a copy's first element."""
        each = self._width // self.layout.size
        if self.k_major:
            return self._first_row + line, piece * each
        return self._first_row + piece * each, line

    def start(self, k_tile: Int, shared: Any) -> list[Any]:
        """Start the copy of tile ``k_tile`` of K to ``shared``; what is returned goes to :meth:`finish`."""
        kernel = self._kernel
        if self.gathers:
            return self._gather(k_tile)

        def copy() -> None:
            tile = kernel.offset(self._source, k_tile.wide() * (self.tile_k * self.layout.k_stride * self.layout.size))
            for (line, piece), shift, target in zip(self._places, self._shifts, self._targets, strict=True):
                inside = self._inside(k_tile, line, piece)
                valid = None if inside is None else inside.select(kernel.integer(self._width), kernel.integer(0))
                place = kernel.offset(shared, target)
                tensor_core.copy_async(kernel, place, kernel.offset(tile, shift), self._width, valid)

        self._when_busy(copy)
        return []

    def finish(self, staged: Sequence[Any], shared: Any) -> None:
        """Store what :meth:`start` loaded into registers."""
        kernel = self._kernel

        def store() -> None:
            for value, target in zip(staged, self._targets, strict=True):
                kernel.store(value, kernel.offset(shared, target), CHUNK)

        if staged:
            self._when_busy(store)

    def _when_busy(self, body: Any) -> None:
        if self._busy is None:
            body()
        else:
            self._kernel.when(self._busy, body)

    def _inside(self, k_tile: Int, line: Int, piece: Int, further_k: int = 0) -> Bool | None:
        """Does an element lie in the matrix?  None where all do."""
        row, k = self._row_and_k(line, piece)
        checks = []
        if self.checks_rows:
            checks.append(row < self.layout.rows)
        if self.checks_k:
            checks.append(k_tile * self.tile_k + k + further_k < self.layout.k)
        return checks[0] if len(checks) == 1 else checks[0] & checks[1] if checks else None

    def _gather(self, k_tile: Int) -> list[Any]:
        """Chunks of K from single elements, as vectors: for lines that no asynchronous copy is aligned to."""
        kernel, layout = self._kernel, self.layout
        word = ir.IntegerType.get_signless(layout.size * 8)
        count = CHUNK // layout.size
        chunks = []
        tile = kernel.offset(self._source, k_tile.wide() * (self.tile_k * layout.k_stride * layout.size))
        for (line, piece), shift in zip(self._places, self._shifts, strict=True):
            elements = []
            for j in range(count):
                inside = self._inside(k_tile, line, piece, j)
                if self._busy is not None:
                    inside = self._busy if inside is None else inside & self._busy
                address = kernel.offset(tile, shift + j * layout.k_stride * layout.size)
                if inside is not None:  # what lies outside is read somewhere inside, and dropped
                    address = inside.select(address, self._pointer)
                value = kernel.load(word, address)
                zero = dialect("arith").ConstantOp(word, 0).result
                elements.append(value if inside is None else inside.select(value, zero))
            kind = ir.VectorType.get([count], word)
            chunks.append(dialect("vector").FromElementsOp(kind, elements).result)
        return chunks

    # ---------------------------------------------------------------------------------------------------------- fragments

    def place_fragments(self, kernel: Kernel, lane: Int, first_row: Int, rows: int) -> None:
        """Work out where a warp finds its fragments: ``rows`` (a multiple of 16) rows of the tile from ``first_row`` on."""
        self._kernel = kernel
        blocks, steps = range(rows // FRAGMENT_ROWS), range(self.tile_k * self.layout.size // MMA_BYTES)
        tile = self.tile
        if self.k_major:
            row = lane & 15
            base, phase = (first_row + row) * tile.row_bytes, tile.phase(row)
            along_k = [base + ((((lane >> 4) + 2 * kk) ^ phase) << 4) for kk in steps]
            self._fragments = {
                (i, kk): [(along_k[kk], i * FRAGMENT_ROWS * tile.row_bytes)] for i in blocks for kk in steps
            }
        elif not tile.words:
            k = ((lane >> 4) << 3) + (lane & 7)
            base, phase, chunk = k * tile.row_bytes, tile.phase(k), (first_row >> 3) + ((lane >> 3) & 1)
            along_rows = [base + (((chunk + 2 * i) ^ phase) << 4) for i in blocks]
            self._fragments = {(i, kk): [(along_rows[i], kk * 16 * tile.row_bytes)] for i in blocks for kk in steps}
        else:
            self._fragments = self._word_fragments(lane, first_row, blocks, steps)

    def _word_fragments(self, lane: Int, first_row: Int, blocks: range, steps: range) -> dict[tuple[int, int], Any]:
        """Each of the four registers of a fragment is a load of its own: rows 0-7 and 8-15 of k 0-3, then of k 4-7."""
        tile, k, group = self.tile, lane & 3, lane >> 2
        places = {}
        for i in blocks:
            halves = []
            for half in range(2):
                row = first_row + group + (16 * i + 8 * half)
                halves.append(k * tile.row_bytes + (((row >> 2) ^ tile.phase(k)) << 4) + ((row & 3) << 2))
            for kk in steps:
                places[i, kk] = [(halves[j & 1], (8 * kk + 4 * (j >> 1)) * tile.row_bytes) for j in range(4)]
        return places

    def fragment(self, shared: Any, block: int, step: int) -> list[Any]:
        """Rows 16 ``block``… of the warp's rows, step ``step`` of 32 bytes of K: four i32.

        In order: rows 0-7 and 8-15 of the first half of K, then of the second.  As A they are one mma.sync's operand; as B,
        entries 0 and 2 are that of columns 0-7, entries 1 and 3 that of columns 8-15.
        """
        kernel = self._kernel
        addresses = [kernel.offset(kernel.offset(shared, lane), fixed) for lane, fixed in self._fragments[block, step]]
        if self.tile.words:
            return [kernel.load(kernel.i32, address, 4) for address in addresses]
        return tensor_core.load_matrices(kernel, addresses[0], transposed=not self.k_major)
