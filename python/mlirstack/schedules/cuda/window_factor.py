"""The pixels under a convolution's window (and weights in any layout) as a factor of a product.

Row and k each add to an address; what lies in the zeros around the image is told by coordinates and never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.matrix_lines import MatrixLayout, Piece, both
from mlirstack.schedules.cuda.tensor_core import CHUNK
from mlirstack.schedules.cuda.values import Bool, Int
from mlirstack.schedules.cuda.windows import Window, WindowDigit


@dataclass(frozen=True)
class WindowFactor:
    """See :class:`~mlirstack.schedules.cuda.factors.Factor`."""

    window: Window

    @property
    def element(self) -> Any:
        """MLIR type in memory."""
        return self.window.element

    @property
    def signed(self) -> bool:
        """How an integer is extended."""
        return self.window.signed

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return max(1, int(self.window.element.width) // 8)

    @property
    def copy_bytes(self) -> int:
        """The widest copy that never crosses from one tap to the next, nor from image to padding."""
        w, single = self.window, self.size if self.size >= 4 else 0
        inner = w.k_digits[-1] if w.k_digits else None
        if inner is None or inner.stride != 1 or inner.divisor != 1 or any(inner.steps):
            return single
        others = [d.stride for d in (*w.row_digits, *w.k_digits[:-1])]
        common = gcd(inner.size, w.shift, *others, *w.batch_strides) * self.size
        return next((width for width in (CHUNK, 8, 4) if width >= self.size and common % width == 0), 0)

    @property
    def layout(self) -> MatrixLayout | None:
        """It is no matrix in memory."""
        return None

    def parameters(self, kernel: Kernel) -> Any:
        """See :class:`~mlirstack.schedules.cuda.factors.Factor`."""
        return kernel.pointer(self.window.value)

    def product(self, kernel: Kernel, parameters: Any, batch: Int | None, sizes: Sequence[int]) -> Any:
        """See :class:`~mlirstack.schedules.cuda.factors.Factor`."""
        if batch is None:
            return parameters
        rest, offset = batch, kernel.integer(0, kernel.i64)
        for size, stride in reversed(list(zip(sizes, self.window.batch_strides, strict=True))):
            if stride:
                offset = offset + (rest % size).wide() * stride
            rest = rest // size
        return kernel.offset(parameters, offset * self.size)

    def lines(self, tile_rows: int, padded_k: int) -> WindowLines:
        """See :class:`~mlirstack.schedules.cuda.factors.Factor`."""
        w = self.window
        return WindowLines(self, checks_rows=w.rows % tile_rows != 0, checks_k=padded_k != w.k)


class WindowLines:
    """See :class:`~mlirstack.schedules.cuda.matrix_lines.Lines`."""

    def __init__(self, factor: WindowFactor, *, checks_rows: bool, checks_k: bool) -> None:
        self._window, self._size = factor.window, factor.size
        self._checks_rows, self._checks_k = checks_rows, checks_k

    def place(self, kernel: Kernel, pointer: Any, row: Int, step: int, count: int) -> None:
        """See :class:`~mlirstack.schedules.cuda.matrix_lines.Lines`."""
        w = self._window
        self._kernel, self.pointer = kernel, pointer
        self._shifted = kernel.offset(pointer, -w.shift * self._size)  # addresses count from the corner of the padding
        self._rows: list[tuple[Int, list[Int], Bool | None]] = []
        for i in range(count):
            here = row + i * step
            inside = here < w.rows if self._checks_rows else None
            offset, coordinates = self._sum(here.minimum(w.rows - 1) if self._checks_rows else here, w.row_digits, w.rows)
            lowered = [c - low for c, low in zip(coordinates, w.lows, strict=True)]  # below zero is far above every limit
            self._rows.append((offset, lowered, inside))

    def pieces(self, k: Int) -> list[Piece]:
        """See :class:`~mlirstack.schedules.cuda.matrix_lines.Lines`."""
        kernel, w = self._kernel, self._window
        inside_k = k < w.k if self._checks_k else None
        shift, steps = self._sum(k, w.k_digits, w.k)
        found: list[Piece] = []
        for offset, coordinates, inside in self._rows:
            address = kernel.offset(self._shifted, (offset + shift).wide() * self._size)
            valid = both(inside, inside_k)
            for coordinate, along, limit in zip(coordinates, steps, w.limits, strict=True):
                valid = both(valid, coordinate + along < limit)
            found.append((address, valid))
        return found

    def _sum(self, index: Int, digits: Sequence[WindowDigit], total: int) -> tuple[Int, list[Int]]:
        """What an index adds to the address (in elements) and to each coordinate."""
        kernel = self._kernel
        offset = kernel.integer(0)
        coordinates = [kernel.integer(0) for _ in self._window.limits]
        for digit in digits:
            value = index // digit.divisor
            if digit.divisor * digit.size < total:
                value = value % digit.size
            offset = offset + value * digit.stride
            coordinates = [c + value * s if s else c for c, s in zip(coordinates, digit.steps, strict=True)]
        return offset, coordinates
