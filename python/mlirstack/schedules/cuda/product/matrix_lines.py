"""Where the elements of a factor (rows x K) are in global memory: the part of a copy that knows layouts.

A copy asks for a few rows, evenly spaced, once per tile of K; what answers is a matrix here, and the pixels under a window
in :mod:`~mlirstack.schedules.cuda.convolution.window_factor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from mlirstack.schedules.cuda.extent import Size, is_multiple, times
from mlirstack.schedules.cuda.instructions.tensor_core import CHUNK
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Bool, Int

Piece = tuple[Any, Bool | None]  # address of some neighbouring elements; are they inside? (None: always)


class Lines(Protocol):
    """The rows of a factor, as a copying thread sees them."""

    def place(self, kernel: Kernel, pointer: Any, row: Int, step: int, count: int) -> None:
        """From now on the rows are ``row``, ``row + step``, … (``count`` of them); ``pointer`` is the factor's address."""

    def pieces(self, k: Int) -> list[Piece]:
        """Where each of the rows has its elements from ``k`` (i32) on.  Addresses of what is not inside must not be read."""

    @property
    def pointer(self) -> Any:
        """An address that can always be read."""


@dataclass(frozen=True)
class MatrixLayout:
    """A factor in global memory: ``rows`` x ``k`` elements of ``size`` bytes; strides in elements.

    ``alignment``: bytes that the address of its first element is a multiple of.
    """

    rows: Size
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
        for width in (CHUNK, 8, 4):
            whole = width >= self.size and is_multiple(times(length, self.size), width) and self.alignment % width == 0
            if whole and (lines == 1 or pitch * self.size % width == 0):
                return width
        return 0


class MatrixLines:
    """The rows of a matrix.  ``checks_rows``, ``checks_k``: tiles may reach beyond the last row, the last k."""

    def __init__(self, layout: MatrixLayout, *, checks_rows: bool, checks_k: bool) -> None:
        self._layout = layout
        self._checks_rows, self._checks_k = checks_rows, checks_k

    def place(self, kernel: Kernel, pointer: Any, row: Int, step: int, count: int) -> None:
        """See :class:`Lines`."""
        layout = self._layout
        self._kernel, self.pointer = kernel, pointer
        self._first = kernel.offset(pointer, row.wide() * (layout.row_stride * layout.size))
        self._shifts = [i * step * layout.row_stride * layout.size for i in range(count)]  # one address serves all rows
        self._inside: list[Bool | None] = [None] * count
        if self._checks_rows:
            rows = kernel.number(layout.rows)
            self._inside = [row + i * step < rows for i in range(count)]

    def pieces(self, k: Int) -> list[Piece]:
        """See :class:`Lines`."""
        kernel, layout = self._kernel, self._layout
        address = kernel.offset(self._first, k.wide() * (layout.k_stride * layout.size))
        inside_k = k < layout.k if self._checks_k else None
        return [
            (kernel.offset(address, shift), both(inside, inside_k))
            for shift, inside in zip(self._shifts, self._inside, strict=True)
        ]


def both(first: Bool | None, second: Bool | None) -> Bool | None:
    """Conjunction, where None is true."""
    if first is None or second is None:
        return second if first is None else first
    return first & second
