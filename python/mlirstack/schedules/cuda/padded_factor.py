"""Copies of factors with rows that begin at multiples of 16 bytes, which is what the copy engine asks for.

Takes a factor of a :class:`Contraction`; leaves a kernel that copies it into a temporary of the kernel function, and the
factor as it lies there.  The padding itself is never read: the tensor map ends at the factor's edge.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda import vectors
from mlirstack.schedules.cuda.contraction import Contraction, Matrix
from mlirstack.schedules.cuda.graph import Tensor
from mlirstack.schedules.cuda.kernel import Kernel
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
    axes = [(count, stride) for count, stride in zip(contraction.batches, matrix.batch_strides, strict=True) if stride]
    target = _temporary(function, (*(count for count, _ in axes), outer, pitch), matrix.element)

    kernel = Kernel(function, threads=_THREADS, schedule=schedule, suffix=suffix)
    source, copy = kernel.pointer(matrix.tensor.value), kernel.pointer(target)
    pieces = pitch // width
    lines = outer * prod(count for count, _ in axes)
    strides = [matrix.leading_stride, *(stride for _, stride in axes)]
    run = gcd(width, inner, *strides)  # elements that one load may take: they begin at a multiple of their size
    with kernel.body():
        number = kernel.block_index() * _THREADS + kernel.thread()

        def move() -> None:
            line, piece = number // pieces, number % pieces
            start = (line % outer).wide() * matrix.leading_stride + _batch_offset(line // outer, axes)
            values: list[Any] = []
            for first in range(0, width, run):
                column = (piece * width + first).minimum(inner - run)  # the last piece may go beyond the edge
                place = kernel.offset(source, start + column.wide(), matrix.element)
                values += vectors.load(kernel, matrix.element, place, run)
            vectors.store(kernel, values, kernel.offset(copy, number.wide() * width, matrix.element))

        kernel.when(number < lines * pieces, move)
    kernel.launch((-(-lines * pieces // _THREADS),))

    sizes = [count for count, _ in axes]
    batch = iter([outer * pitch * prod(sizes[position + 1 :]) for position in range(len(sizes))])
    return replace(
        matrix,
        tensor=Tensor(target, (*sizes, outer, pitch), matrix.element),
        row_stride=pitch if matrix.k_major else 1,
        k_stride=1 if matrix.k_major else pitch,
        batch_strides=tuple(next(batch) if stride else 0 for stride in matrix.batch_strides),
    )


def padded_bytes(contraction: Contraction, matrix: Matrix) -> int:
    """What making the copy reads and writes."""
    axes = [count for count, stride in zip(contraction.batches, matrix.batch_strides, strict=True) if stride]
    return 2 * matrix.rows * contraction.k * prod(axes) * vectors.bytes_of(matrix.element)


def _batch_offset(number: Int, axes: list[tuple[int, int]]) -> Int:
    """Elements to the product of this number among those that have a factor of their own."""
    offset = number.wide() * 0
    for count, stride in reversed(axes):
        offset = offset + (number % count).wide() * stride
        number = number // count
    return offset


def _temporary(function: Any, shape: tuple[int, ...], element: Any) -> Any:
    """A memref.alloc before the function's return, freed by whoever plans its memory."""
    block = function.regions[0].blocks[0]
    with ir.InsertionPoint.at_block_begin(block), function.location:
        return dialect("memref").AllocOp(ir.MemRefType.get(list(shape), element), [], []).result
