"""Copies of factors with rows that begin at multiples of 16 bytes, which is what the copy engine asks for.

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


def padded_copy(function: Any, contraction: Contraction, matrix: Matrix, k: int, suffix: str, schedule: str) -> Matrix:
    """Write a kernel that copies ``matrix`` (one of its dimensions contiguous) to padded rows; the copy, as a factor.

    The copy has the same contiguous dimension, and a batch axis only where the factor has one.
    """
    inner, outer = (k, matrix.rows) if matrix.k_major else (matrix.rows, k)
    size = vectors.bytes_of(matrix.element)
    width = vectors.ACCESS_BYTES // size
    pitch = -(-inner // width) * width
    axes = batch_axes(contraction, matrix)
    target = temporary(function, (*(count for count, _ in axes), outer, pitch), matrix.element)

    kernel = Kernel(function, threads=_THREADS, schedule=schedule, suffix=suffix)
    source, copy = kernel.pointer(matrix.tensor.value), kernel.pointer(target)
    pieces = pitch // width
    lines = outer * prod(count for count, _ in axes)
    strides = [matrix.leading_stride, *(stride for _, stride in axes)]
    bits = ir.IntegerType.get_signless(8 * size)  # LLVM has no fp8; what is moved need not be understood
    run = gcd(width, inner, *strides)  # elements that one load may take: they begin at a multiple of their size
    with kernel.body():
        number = kernel.block_index() * _THREADS + kernel.thread()

        def move() -> None:
            line, piece = number // pieces, number % pieces
            start = (line % outer).wide() * matrix.leading_stride + batch_offset(line // outer, axes)
            values: list[Any] = []
            for first in range(0, width, run):
                column = (piece * width + first).minimum(inner - run)  # the last piece may go beyond the edge
                place = kernel.offset(source, start + column.wide(), bits)
                values += vectors.load(kernel, bits, place, run)
            vectors.store(kernel, values, kernel.offset(copy, number.wide() * width, bits))

        kernel.when(number < lines * pieces, move)
    kernel.launch((-(-lines * pieces // _THREADS),))

    sizes = [count for count, _ in axes]
    return replace(
        matrix,
        tensor=Tensor(target, (*sizes, outer, pitch), matrix.element),
        row_stride=pitch if matrix.k_major else 1,
        k_stride=1 if matrix.k_major else pitch,
        batch_strides=copied_strides(matrix, axes, outer * pitch),
    )


def copied_bytes(contraction: Contraction, matrix: Matrix) -> int:
    """What making a copy reads and writes."""
    count = prod(count for count, _ in batch_axes(contraction, matrix))
    return 2 * matrix.rows * contraction.k * count * vectors.bytes_of(matrix.element)


def batch_axes(contraction: Contraction, matrix: Matrix) -> list[tuple[int, int]]:
    """Size and stride of the batch axes along which the factor differs."""
    return [(count, stride) for count, stride in zip(contraction.batches, matrix.batch_strides, strict=True) if stride]


def copied_strides(matrix: Matrix, axes: list[tuple[int, int]], size: int) -> tuple[int, ...]:
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


def temporary(function: Any, shape: tuple[int, ...], element: Any) -> Any:
    """A memref.alloc before the function's return, freed by whoever plans its memory."""
    block = function.regions[0].blocks[0]
    with ir.InsertionPoint.at_block_begin(block), function.location:
        return dialect("memref").AllocOp(ir.MemRefType.get(list(shape), element), [], []).result
