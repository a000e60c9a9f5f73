"""Copies of factors with rows that begin at lines of the cache; the copy engine asks for multiples of 16 bytes.

Takes a factor of a :class:`Contraction`; leaves a kernel that copies it into a temporary of the kernel function, and the
factor as it lies there.  The padding itself is never read: the tensor map ends at the factor's edge.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.graph import Tensor
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.contraction import Contraction, Matrix
from mlirstack.schedules.cuda.values import Int

_THREADS = 256
_LINE_BYTES = 128  # of the second-level cache: the copy engine takes twice as long for what lies in two of them


def copy_layout(contraction: Contraction, matrix: Matrix) -> Matrix:
    """``matrix`` as a copy of it will lie: K contiguous, rows beginning at lines of the cache, a batch axis only where the
    factor has one."""
    width = _LINE_BYTES // vectors.bytes_of(matrix.element)
    pitch = -(-contraction.k // width) * width
    strides = _copied_strides(matrix, batch_axes(contraction, matrix), matrix.rows * pitch)
    return replace(matrix, row_stride=pitch, k_stride=1, batch_strides=strides, copied=True)


def place_copy(function: Any, contraction: Contraction, matrix: Matrix) -> Matrix:
    """The same in a temporary of the kernel function, which is still to be written."""
    layout = copy_layout(contraction, matrix)
    shape = (*(count for count, _ in batch_axes(contraction, matrix)), matrix.rows, layout.row_stride)
    block = function.regions[0].blocks[0]
    with ir.InsertionPoint.at_block_begin(block), function.location:
        memory = dialect("memref").AllocOp(ir.MemRefType.get(list(shape), matrix.element), [], []).result
    return replace(layout, tensor=Tensor(memory, shape, matrix.element))


def padded_copy(function: Any, contraction: Contraction, matrix: Matrix, suffix: str, schedule: str) -> Matrix:
    """Write a kernel that copies ``matrix`` (K contiguous) to padded rows; the copy, as a factor."""
    k, copied = contraction.k, place_copy(function, contraction, matrix)
    size = vectors.bytes_of(matrix.element)
    width = vectors.ACCESS_BYTES // size
    axes = batch_axes(contraction, matrix)

    kernel = Kernel(function, threads=_THREADS, schedule=schedule, suffix=suffix)
    source, copy = kernel.pointer(matrix.tensor.value), kernel.pointer(copied.tensor.value)
    pieces = -(-k // width)
    lines = matrix.rows * prod(count for count, _ in axes)
    strides = [matrix.row_stride, *(stride for _, stride in axes)]
    bits = ir.IntegerType.get_signless(8 * size)  # LLVM has no fp8; what is moved need not be understood
    run = gcd(width, k, *strides)  # elements that one load may take: they begin at a multiple of their size
    with kernel.body():
        number = kernel.block_index() * _THREADS + kernel.thread()

        def move() -> None:
            line, piece = number // pieces, number % pieces
            start = (line % matrix.rows).wide() * matrix.row_stride + batch_offset(line // matrix.rows, axes)
            values: list[Any] = []
            for first in range(0, width, run):
                column = (piece * width + first).minimum(k - run)  # the last piece may go beyond the edge
                place = kernel.offset(source, start + column.wide(), bits)
                values += vectors.load(kernel, bits, place, run)
            target = line.wide() * copied.row_stride + (piece * width).wide()
            vectors.store(kernel, values, kernel.offset(copy, target, bits))

        kernel.when(number < lines * pieces, move)
    kernel.launch((-(-lines * pieces // _THREADS),))
    return copied


def copied_bytes(contraction: Contraction, matrix: Matrix) -> int:
    """What making a copy reads and writes."""
    count = prod(count for count, _ in batch_axes(contraction, matrix))
    return 2 * matrix.rows * contraction.k * count * vectors.bytes_of(matrix.element)


def batch_axes(contraction: Contraction, matrix: Matrix) -> list[tuple[int, int]]:
    """Size and stride of the batch axes along which the factor differs."""
    return [(count, stride) for count, stride in zip(contraction.batches, matrix.batch_strides, strict=True) if stride]


def _copied_strides(matrix: Matrix, axes: list[tuple[int, int]], size: int) -> tuple[int, ...]:
    """Batch strides of a copy whose products lie ``size`` elements apart; 0 still where the factor is shared."""
    own = iter([size * prod(count for count, _ in axes[position + 1 :]) for position in range(len(axes))])
    return tuple(next(own) if stride else 0 for stride in matrix.batch_strides)


def batch_offset(number: Int, axes: list[tuple[int, int]]) -> Int:
    """Elements to the product of this number among those that have a factor of their own."""
    offset = number.wide() * 0
    for count, stride in reversed(axes):
        offset = offset + (number % count).wide() * stride
        number = number // count
    return offset
