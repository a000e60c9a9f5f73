"""The pixels under a convolution's window (and weights in any layout) as a factor of a product.

Row and k each add to an address; what lies in the zeros around the image is told by coordinates and never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from mlirstack.schedules.cuda.convolution.windows import Window, WindowDigit
from mlirstack.schedules.cuda.instructions.tensor_core import CHUNK
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.matrix_lines import Lines, MatrixLayout, MatrixLines, Piece
from mlirstack.schedules.cuda.values import Int


@dataclass(frozen=True)
class WindowFactor:
    """See :class:`~mlirstack.schedules.cuda.product.factors.Factor`."""

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
        if self.layout is not None:
            return self.layout.copy_bytes
        w, single = self.window, self.size if self.size >= 4 else 0
        inner = w.k_digits[-1] if w.k_digits else None
        if inner is None or inner.stride != 1 or inner.divisor != 1 or any(inner.steps):
            return single
        others = [d.stride for d in (*w.row_digits, *w.k_digits[:-1])]
        common = gcd(inner.size, w.shift, *others, *w.batch_strides) * self.size
        return next((width for width in (CHUNK, 8, 4) if width >= self.size and common % width == 0), 0)

    @property
    def layout(self) -> MatrixLayout | None:
        """The layout, where rows and K are evenly spaced and nothing is padded: weights, most of all."""
        w = self.window
        strides = [_even_stride(digits, size) for digits, size in ((w.row_digits, w.rows), (w.k_digits, w.k))]
        if w.limits or w.shift or None in strides:
            return None
        alignment = gcd(CHUNK, *(stride * self.size for stride in w.batch_strides))
        row_stride, k_stride = (stride or 0 for stride in strides)
        return MatrixLayout(w.rows, w.k, row_stride, k_stride, self.size, alignment)

    def parameters(self, kernel: Kernel) -> Any:
        """See :class:`~mlirstack.schedules.cuda.product.factors.Factor`."""
        return kernel.pointer(self.window.value)

    def product(self, kernel: Kernel, parameters: Any, batch: Int | None, sizes: Sequence[int]) -> Any:
        """See :class:`~mlirstack.schedules.cuda.product.factors.Factor`."""
        if batch is None:
            return parameters
        rest, offset = batch, kernel.integer(0, kernel.i64)
        for size, stride in reversed(list(zip(sizes, self.window.batch_strides, strict=True))):
            if stride:
                offset = offset + (rest % size).wide() * stride
            rest = rest // size
        return kernel.offset(parameters, offset * self.size)

    def lines(self, tile_rows: int, padded_k: int) -> Lines:
        """See :class:`~mlirstack.schedules.cuda.product.factors.Factor`."""
        w = self.window
        if self.layout is not None:
            return MatrixLines(self.layout, checks_rows=w.rows % tile_rows != 0, checks_k=padded_k != w.k)
        return WindowLines(self, checks_rows=w.rows % tile_rows != 0, checks_k=padded_k != w.k)


def _even_stride(digits: Sequence[WindowDigit], size: int) -> int | None:
    """Elements from one index to the next; None where they are not evenly spaced."""
    if not digits:
        return 0
    return digits[0].stride if len(digits) == 1 and digits[0].size == size else None


_BEYOND = 1  # a bit that is set in all rows, for k beyond the end
_ANY = 2  # a bit that is set in rows beyond the end, for windows without taps


class WindowLines:
    """See :class:`~mlirstack.schedules.cuda.product.matrix_lines.Lines`.

    Whether an element is inside is one test of bits: a row knows, for every tap along every padded dimension, whether it
    lies outside of the image; a k knows its taps.
    """

    def __init__(self, factor: WindowFactor, *, checks_rows: bool, checks_k: bool) -> None:
        self._window, self._size = factor.window, factor.size
        self._checks_rows, self._checks_k = checks_rows, checks_k

    def place(self, kernel: Kernel, pointer: Any, row: Int, step: int, count: int) -> None:
        """See :class:`~mlirstack.schedules.cuda.product.matrix_lines.Lines`."""
        w = self._window
        self._kernel, self.pointer = kernel, pointer
        self._shifted = kernel.offset(pointer, -w.shift * self._size)  # addresses count from the corner of the padding
        self._rows: list[tuple[Int, Int]] = []
        for i in range(count):
            here = row + i * step
            offset, coordinates = self._sum(here.minimum(w.rows - 1) if self._checks_rows else here, w.row_digits, w.rows)
            outside = self._outside(coordinates)
            if self._checks_rows:
                outside = (here < w.rows).select(outside, kernel.integer(-1))
            self._rows.append((offset, outside))

    def pieces(self, k: Int) -> list[Piece]:
        """See :class:`~mlirstack.schedules.cuda.product.matrix_lines.Lines`."""
        kernel, w = self._kernel, self._window
        taps = self._taps(k)
        shift, _ = self._sum(k, w.k_digits, w.k)
        return [
            (
                kernel.offset(self._shifted, (offset + shift).wide() * self._size),
                None if taps is None else (outside & taps).equals(0),
            )
            for offset, outside in self._rows
        ]

    def _outside(self, coordinates: Sequence[Int]) -> Int:
        """For every tap along every padded dimension, whether it leaves the image.

        Coordinates count from the edge of the padding.
        """
        kernel, w = self._kernel, self._window
        bits = kernel.integer(_BEYOND)
        for dimension, (taps, coordinate, low) in enumerate(zip(w.taps, coordinates, w.lows, strict=True)):
            step = taps.digit.steps[dimension] if taps.digit is not None else 0
            for tap in range(taps.count):
                place = coordinate + tap * step - low  # below zero is far above every limit
                bit = kernel.integer(1 << (taps.first_bit + tap))
                bits = bits | (place < w.limits[dimension]).select(kernel.integer(0), bit)
        return bits

    def _taps(self, k: Int) -> Int | None:
        """The bits to test for ``k``; None where everything is inside."""
        kernel, w = self._kernel, self._window
        if not (w.limits or self._checks_rows or self._checks_k):
            return None
        bits = kernel.integer(0 if w.limits else _ANY)
        for taps in w.taps:
            first = kernel.integer(1 << taps.first_bit)
            bits = bits | (first if taps.digit is None else first << self._index(k, taps.digit, w.k))
        return (k < w.k).select(bits, kernel.integer(_BEYOND)) if self._checks_k else bits

    def _index(self, index: Int, digit: WindowDigit, total: int) -> Int:
        value = index // digit.divisor
        return value % digit.size if digit.divisor * digit.size < total else value

    def _sum(self, index: Int, digits: Sequence[WindowDigit], total: int) -> tuple[Int, list[Int]]:
        """What an index adds to the address (in elements) and to each coordinate."""
        kernel = self._kernel
        offset = kernel.integer(0)
        coordinates = [kernel.integer(0) for _ in self._window.limits]
        for digit in digits:
            value = self._index(index, digit, total)
            offset = offset + value * digit.stride
            coordinates = [c + value * s if s else c for c, s in zip(coordinates, digit.steps, strict=True)]
        return offset, coordinates
