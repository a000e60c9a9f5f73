"""The two factors of a product as kernels see them.

Matrices are here, the pixels of a convolution in :mod:`~mlirstack.schedules.cuda.convolution.window_factor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, Protocol

from mlirstack.schedules.cuda.extent import is_multiple
from mlirstack.schedules.cuda.instructions.tensor_core import CHUNK
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.contraction import Contraction, Matrix
from mlirstack.schedules.cuda.product.matrix_lines import Lines, MatrixLayout, MatrixLines
from mlirstack.schedules.cuda.values import Int


class Factor(Protocol):
    """One factor of a product, rows x K, once per product of a batch."""

    @property
    def element(self) -> Any:
        """MLIR type in memory."""

    @property
    def signed(self) -> bool:
        """How an integer is extended."""

    @property
    def copy_bytes(self) -> int:
        """The widest asynchronous copy (16, 8 or 4 bytes); 0 where none fits."""

    @property
    def layout(self) -> MatrixLayout | None:
        """The layout, where it is a matrix in memory."""

    def parameters(self, kernel: Kernel) -> Any:
        """Add what the kernel has to be given; returns it."""

    def product(self, kernel: Kernel, parameters: Any, batch: Int | None, sizes: Sequence[int]) -> Any:
        """The address of the factor of product number ``batch``; ``sizes`` are those of the batch axes."""

    def lines(self, tile_rows: int, padded_k: int) -> Lines:
        """The rows, for tiles of ``tile_rows`` rows that reach up to ``padded_k``."""


@dataclass(frozen=True)
class MatrixFactor:
    """A matrix of a contraction with ``k`` elements in a row."""

    matrix: Matrix
    k: int

    @property
    def element(self) -> Any:
        """See :class:`Factor`."""
        return self.matrix.element

    @property
    def signed(self) -> bool:
        """See :class:`Factor`."""
        return self.matrix.signed

    @property
    def copy_bytes(self) -> int:
        """See :class:`Factor`."""
        return self.layout.copy_bytes

    @property
    def layout(self) -> MatrixLayout:
        """See :class:`Factor`."""
        matrix, size = self.matrix, max(1, int(self.matrix.element.width) // 8)
        alignment = gcd(CHUNK, *(stride * size for stride in matrix.batch_strides))
        return MatrixLayout(matrix.row_points, self.k, matrix.row_stride, matrix.k_stride, size, alignment)

    def parameters(self, kernel: Kernel) -> Any:
        """See :class:`Factor`."""
        return kernel.pointer(self.matrix.tensor.value)

    def product(self, kernel: Kernel, parameters: Any, batch: Int | None, sizes: Sequence[int]) -> Any:
        """See :class:`Factor`."""
        if batch is None:
            return parameters
        rest, offset = batch, kernel.integer(0, kernel.i64)
        for size, stride in reversed(list(zip(sizes, self.matrix.batch_strides, strict=True))):
            if stride:
                offset = offset + (rest % size).wide() * stride
            rest = rest // size
        return kernel.offset(parameters, offset * self.layout.size)

    def lines(self, tile_rows: int, padded_k: int) -> MatrixLines:
        """See :class:`Factor`."""
        layout = self.layout
        return MatrixLines(layout, checks_rows=not is_multiple(layout.rows, tile_rows), checks_k=padded_k != layout.k)


def factors_of(contraction: Contraction) -> tuple[Factor, Factor]:
    """The matrices of a contraction as factors."""
    return MatrixFactor(contraction.a, contraction.k), MatrixFactor(contraction.b, contraction.k)
