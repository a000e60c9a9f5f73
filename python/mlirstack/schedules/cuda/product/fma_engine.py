"""Products by FMA, as an engine of :class:`~mlirstack.schedules.cuda.product.product_kernel.ProductKernel`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.copies import Copies, GatheredCopies, LineCopies, RowContiguousCopies
from mlirstack.schedules.cuda.product.factors import Factor
from mlirstack.schedules.cuda.product.fma_loop import FmaLoop, FmaTile
from mlirstack.schedules.cuda.product.product_kernel import Corner, Engine
from mlirstack.schedules.cuda.product.sums import Sums
from mlirstack.schedules.cuda.values import Float, Int


@dataclass(frozen=True)
class FmaEngine(Engine[FmaTile]):
    """FMA on ``element`` (f32, f64, i32, i64); factors of smaller types are converted on their way to shared memory."""

    tile: FmaTile
    element: Any

    @property
    def k(self) -> int:
        """Elements of K in a stage."""
        return self.tile.k

    @property
    def direct_run(self) -> int:
        """A thread holds runs of 16 bytes."""
        return self.tile.run

    def sum_type(self, kernel: Kernel) -> Any:
        """MLIR type of the sums."""
        return self.element

    def run(
        self,
        kernel: Kernel,
        factors: tuple[Factor, Factor],
        addresses: Sequence[Any],
        corner: Corner,
        first_tile: Int,
        k_tiles: int,
        padded_k: int,
    ) -> Sums:
        """See :class:`~mlirstack.schedules.cuda.product.product_kernel.Engine`."""
        tile, thread = self.tile, kernel.thread()
        a = self._copies(factors[0], tile.rows, padded_k)
        b = self._copies(factors[1], tile.columns, padded_k)
        a.place(kernel, addresses[0], thread, corner.row)
        b.place(kernel, addresses[1], thread, corner.column)
        loop = FmaLoop(kernel, tile, self.element, (a, b), kernel.shared(), thread)
        return loop.sums(loop.run(first_tile, k_tiles), thread)

    def _copies(self, factor: Factor, rows: int, padded_k: int) -> Copies:
        """How tiles of ``rows`` rows of a factor come; they lie with rows contiguous."""
        tile, layout, pitch = self.tile, factor.layout, self.tile.pitch(rows)
        same_type = factor.element == self.element
        if same_type and layout is not None and layout.row_stride == 1 and not layout.k_major and factor.copy_bytes:
            width = factor.copy_bytes
            return RowContiguousCopies(
                layout, rows, tile.k, tile.threads, lambda k, piece: k * pitch + piece * width, checks_k=padded_k != layout.k
            )
        lines = factor.lines(rows, padded_k)

        def transposed(row: Int, k: Int) -> Int:
            return k * pitch + row * tile.size

        if same_type:  # single elements are aligned to themselves
            return LineCopies(lines, rows, tile.k, tile.size, tile.size, tile.threads, transposed)
        along_rows = layout is not None and not layout.k_major and tile.threads % rows == 0
        return GatheredCopies(
            lines, rows, tile.k, vectors.storage_type(factor.element), 1, tile.threads, transposed, along_rows=along_rows,
            convert=lambda value: converted(value, self.element, factor.signed),
        )  # fmt: skip


def converted(value: Any, kind: Any, signed: bool) -> Any:
    """A number as the MLIR type ``kind``, which is no narrower."""
    if value.type == kind:
        return value
    if not isinstance(kind, ir.IntegerType):
        return Float(value).to(kind).value
    arith = dialect("arith")
    return (arith.ExtSIOp if signed else arith.ExtUIOp)(kind, value).result
