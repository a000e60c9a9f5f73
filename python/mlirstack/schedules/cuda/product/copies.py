"""Copies of a tile from global to shared memory by all threads of a block, asynchronous where the data allow it.

What is copied comes from ``Lines``, where it goes is a function of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.extent import is_multiple
from mlirstack.schedules.cuda.instructions import tensor_core
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.matrix_lines import Lines, MatrixLayout, Piece, both
from mlirstack.schedules.cuda.values import Bool, Int

Target = Callable[[Int, Int], Int]  # (line, piece) → byte offset in the tile
Convert = Callable[[Any], Any]


class Copies(Protocol):
    """The copies of one tile after the other."""

    def place(self, kernel: Kernel, pointer: Any, thread: Int, first_row: Int) -> None:
        """Work out what does not change from tile to tile.  ``first_row``: of the block's tiles."""

    def start(self, k_tile: Int, shared: Any) -> list[Any]:
        """Start the copy of tile ``k_tile`` of K to ``shared``; what is returned goes to :meth:`finish`."""

    def finish(self, staged: Sequence[Any], shared: Any) -> None:
        """Store what :meth:`start` loaded into registers."""


class Share:
    """The part of a tile that a thread copies: ``count`` pieces, some lines apart.

    A tile is ``lines`` x ``pieces``; neighbouring threads take neighbouring pieces, or lines where ``along_lines``.
    """

    def __init__(self, thread: Int, threads: int, lines: int, pieces: int, *, along_lines: bool = False) -> None:
        total = lines * pieces
        self.count = -(-total // threads)
        self.busy: Bool | None = None
        if total < threads:
            self.busy = thread < total
        elif total % threads:
            raise ValueError(f"{total} pieces cannot be shared evenly by {threads} threads")
        if along_lines:
            self.line, self.piece = thread % lines, thread // lines
            self.line_step, self.piece_step = (threads, 0) if threads < lines else (0, threads // lines)
            if threads < lines:
                raise ValueError(f"{threads} threads are too few for {lines} lines")
        else:
            self.line, self.piece = thread // pieces, thread % pieces
            self.line_step, self.piece_step = max(1, threads // pieces), 0
            if threads % pieces and self.count > 1:
                raise ValueError(f"{threads} threads cannot share lines of {pieces} pieces")

    def when_busy(self, kernel: Kernel, body: Callable[[], None]) -> None:
        """``body``, for threads that have a part."""
        if self.busy is None:
            body()
        else:
            kernel.when(self.busy, body)


class LineCopies:
    """Pieces of ``width`` bytes along K, row by row: a line of the tile is a row of the factor."""

    def __init__(self, lines: Lines, rows: int, tile_k: int, size: int, width: int, threads: int, target: Target) -> None:
        self._lines, self._rows, self._tile_k = lines, rows, tile_k
        self._size, self._width, self._threads, self._target = size, width, threads, target

    def place(self, kernel: Kernel, pointer: Any, thread: Int, first_row: Int) -> None:
        """See :class:`Copies`."""
        self._kernel = kernel
        self._each = self._width // self._size
        self._share = share = Share(thread, self._threads, self._rows, self._tile_k // self._each)
        self._lines.place(kernel, pointer, first_row + share.line, share.line_step, share.count)
        self._targets = [self._target(share.line + i * share.line_step, share.piece) for i in range(share.count)]

    def start(self, k_tile: Int, shared: Any) -> list[Any]:
        """See :class:`Copies`."""

        def copy() -> None:
            pieces = self._lines.pieces(k_tile * self._tile_k + self._share.piece * self._each)
            copy_pieces(self._kernel, pieces, self._targets, shared, self._width)

        self._share.when_busy(self._kernel, copy)
        return []

    def finish(self, staged: Sequence[Any], shared: Any) -> None:
        """See :class:`Copies`; there is nothing to do."""


class RowContiguousCopies:
    """Pieces of ``width`` bytes along the rows of a matrix that has them contiguous: a line of the tile is one k."""

    def __init__(
        self, layout: MatrixLayout, rows: int, tile_k: int, threads: int, target: Target, *, checks_k: bool
    ) -> None:
        self._layout, self._rows, self._tile_k = layout, rows, tile_k
        self._threads, self._target, self._checks_k = threads, target, checks_k
        self._width = layout.copy_bytes

    def place(self, kernel: Kernel, pointer: Any, thread: Int, first_row: Int) -> None:
        """See :class:`Copies`."""
        self._kernel, layout = kernel, self._layout
        each = self._width // layout.size
        self._share = share = Share(thread, self._threads, self._tile_k, self._rows // each)
        row = first_row + share.piece * each
        elements = row.wide() + share.line.wide() * layout.k_stride
        self._first = kernel.offset(pointer, elements * layout.size)
        self._targets = [self._target(share.line + i * share.line_step, share.piece) for i in range(share.count)]
        self._inside = None if is_multiple(layout.rows, self._rows) else row < kernel.number(layout.rows)

    def start(self, k_tile: Int, shared: Any) -> list[Any]:
        """See :class:`Copies`."""
        kernel, layout, share = self._kernel, self._layout, self._share
        pitch = layout.k_stride * layout.size

        def copy() -> None:
            tile = kernel.offset(self._first, k_tile.wide() * (self._tile_k * pitch))
            pieces: list[Piece] = []
            for i in range(share.count):
                k = k_tile * self._tile_k + share.line + i * share.line_step
                inside_k = k < layout.k if self._checks_k else None
                pieces.append((kernel.offset(tile, i * share.line_step * pitch), both(self._inside, inside_k)))
            copy_pieces(kernel, pieces, self._targets, shared, self._width)

        share.when_busy(kernel, copy)
        return []

    def finish(self, staged: Sequence[Any], shared: Any) -> None:
        """See :class:`Copies`; there is nothing to do."""


class GatheredCopies:
    """Elements one by one through registers, ``each`` along K in one store: any layout, any alignment, any type.

    ``element`` is the MLIR type in memory, ``convert`` what becomes of each value on the way.  ``along_rows``: neighbouring
    threads read neighbouring rows.
    """

    def __init__(
        self,
        lines: Lines,
        rows: int,
        tile_k: int,
        element: Any,
        each: int,
        threads: int,
        target: Target,
        *,
        along_rows: bool,
        convert: Convert | None = None,
    ) -> None:
        self._lines, self._rows, self._tile_k = lines, rows, tile_k
        self._element, self._each, self._threads, self._target = element, each, threads, target
        self._along_rows, self._convert = along_rows, convert

    def place(self, kernel: Kernel, pointer: Any, thread: Int, first_row: Int) -> None:
        """See :class:`Copies`."""
        self._kernel = kernel
        share = Share(thread, self._threads, self._rows, self._tile_k // self._each, along_lines=self._along_rows)
        self._share = share
        rows = 1 if share.piece_step else share.count
        self._lines.place(kernel, pointer, first_row + share.line, share.line_step, rows)
        self._places = [(share.line + i * share.line_step, share.piece + i * share.piece_step) for i in range(share.count)]
        self._targets = [self._target(line, piece) for line, piece in self._places]

    def start(self, k_tile: Int, shared: Any) -> list[Any]:
        """See :class:`Copies`."""
        share = self._share
        runs: list[list[Any]] = [[] for _ in self._places]
        for j in range(self._each):
            if share.piece_step:  # one row, several k
                pieces = [self._lines.pieces(k_tile * self._tile_k + p * self._each + j)[0] for _, p in self._places]
            else:
                pieces = self._lines.pieces(k_tile * self._tile_k + share.piece * self._each + j)
            for run, (address, inside) in zip(runs, pieces, strict=True):
                run.append(self._load(address, both(inside, share.busy)))
        return [run[0] if len(run) == 1 else _vector(run) for run in runs]

    def _load(self, address: Any, inside: Bool | None) -> Any:
        kernel, kind = self._kernel, self._element
        if inside is not None:  # what lies outside is read somewhere inside, and dropped
            address = inside.select(address, self._lines.pointer)
        value = kernel.load(kind, address)
        if inside is not None:
            value = inside.select(value, zero(kind))
        return value if self._convert is None else self._convert(value)

    def finish(self, staged: Sequence[Any], shared: Any) -> None:
        """See :class:`Copies`."""
        kernel = self._kernel

        def store() -> None:
            for value, target in zip(staged, self._targets, strict=True):
                kernel.store(value, kernel.offset(shared, target))

        self._share.when_busy(kernel, store)


def copy_pieces(kernel: Kernel, pieces: Sequence[Piece], targets: Sequence[Int], shared: Any, width: int) -> None:
    """Start the asynchronous copies of some pieces of ``width`` bytes."""
    for (address, inside), target in zip(pieces, targets, strict=True):
        valid = None if inside is None else inside.select(kernel.integer(width), kernel.integer(0))
        tensor_core.copy_async(kernel, kernel.offset(shared, target), address, width, valid)


def zero(kind: Any) -> Any:
    """Zero of an MLIR type."""
    attribute = ir.IntegerAttr.get(kind, 0) if isinstance(kind, ir.IntegerType) else ir.FloatAttr.get(kind, 0.0)
    return dialect("arith").ConstantOp(kind, attribute).result


def _vector(values: Sequence[Any]) -> Any:
    kind = ir.VectorType.get([len(values)], values[0].type)
    return dialect("vector").FromElementsOp(kind, list(values)).result
