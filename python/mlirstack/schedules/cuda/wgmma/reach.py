"""What the copy engine and wgmma can read and write where it lies, and what takes another way."""

from __future__ import annotations

from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.product.access import Access
from mlirstack.schedules.cuda.product.contraction import Contraction, Matrix

_TMA_RANK = 5
_STRIDE_BYTES = 16  # what the copy engine asks of every stride


def swaps(contraction: Contraction, operands: Operands) -> bool:
    """Should factors change sides?  Of 32-bit elements only the left one's rows may be contiguous."""
    return operands.bits == 32 and contraction.a.k_major and not contraction.b.k_major


def loadable(matrix: Matrix, operands: Operands, *, is_left: bool = False) -> bool:
    """Can the copy engine and wgmma read this factor where it lies, as the left one or the right one?"""
    size = operands.bits // 8
    strides = [matrix.leading_stride, *(stride for stride in matrix.batch_strides if stride)]
    transposable = operands.bits == 16 or (operands.bits == 32 and is_left)
    major = matrix.k_major or (matrix.row_stride == 1 and transposable)
    aligned = all(stride * size % _STRIDE_BYTES == 0 for stride in strides)
    return major and aligned and 2 + len([s for s in matrix.batch_strides if s]) <= _TMA_RANK


def copyable_output(contraction: Contraction, access: Access) -> bool:
    """Can the copy engine write this output?"""
    size = vectors.bytes_of(access.tensor.element)
    strides = access.batch_strides(contraction.batches)
    row = access.row_stride(contraction.m)
    if strides is None or row is None or access.column_stride(contraction.n) != 1 or str(access.tensor.element) == "i1":
        return False
    aligned = all(stride * size % _STRIDE_BYTES == 0 for stride in (row, *strides))
    return size in (2, 4) and aligned and row > 0 and 2 + len(strides) <= _TMA_RANK


def has_rows(contraction: Contraction, access: Access) -> bool:
    """Are the columns of this output contiguous, and its elements of a size that is written to boxes?"""
    size = vectors.bytes_of(access.tensor.element)
    row = access.row_stride(contraction.m)
    return size in (2, 4) and str(access.tensor.element) != "i1" and access.column_stride(contraction.n) == 1 and bool(row)
