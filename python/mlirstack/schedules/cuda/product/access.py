"""Where an element of a matrix product's index space (batch, row, column) is in a tensor.

Loops that are collapsed to one index come apart again as digits of it; nothing here makes IR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlirstack.schedules.cuda.graph import Tensor


@dataclass(frozen=True)
class Digit:
    """One loop out of several that were collapsed to an index ``x``: adds ``(x // divisor) % size * stride`` elements."""

    divisor: int
    size: int
    stride: int


Digits = tuple[Digit, ...]  # empty: the tensor does not depend on the index (a broadcast)


@dataclass(frozen=True)
class Access:
    """Where element (batch, row, column) of the product's index space is in a tensor, as digits of each index."""

    tensor: Tensor
    batches: tuple[Digits, ...]
    rows: Digits
    columns: Digits

    def row_stride(self, rows: int) -> int | None:
        """Elements from a row to the next; None where rows are not evenly spaced."""
        return _stride(self.rows, rows)

    def column_stride(self, columns: int) -> int | None:
        """Elements from a column to the next; None where columns are not evenly spaced."""
        return _stride(self.columns, columns)

    def batch_strides(self, sizes: Sequence[int]) -> tuple[int, ...] | None:
        """Elements from one step of each batch axis to the next; None where an axis is not evenly spaced."""
        strides = [_stride(digits, size) for digits, size in zip(self.batches, sizes, strict=True)]
        return tuple(s for s in strides if s is not None) if None not in strides else None


def _stride(digits: Digits, size: int) -> int | None:
    if not digits:
        return 0
    return digits[0].stride if len(digits) == 1 and digits[0].divisor == 1 and digits[0].size == size else None
