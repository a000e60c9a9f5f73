"""Transposed copies of factors: wgmma reads elements of other than 16 bits along K only.

Takes a factor of a :class:`Contraction` whose rows are contiguous; leaves a kernel that writes it with K contiguous into a
temporary of the kernel function, tile by tile through shared memory, and the factor as it lies there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from mlirstack.bindings import ir
from mlirstack.schedules.cuda.graph import Tensor
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.contraction import Contraction, Matrix
from mlirstack.schedules.cuda.product.padded_factor import batch_axes, batch_offset, copied_strides, temporary
from mlirstack.schedules.cuda.values import Int

_SIDE = 32  # rows and columns of a tile: a warp reads and writes lines of it
_LINES = 8  # lines that a block has in hand at a time: its warps


def transposed_copy(function: Any, contraction: Contraction, matrix: Matrix, k: int, suffix: str, schedule: str) -> Matrix:
    """Write a kernel that copies ``matrix`` (rows contiguous) with K contiguous, in lines of 16-byte multiples."""
    size = vectors.bytes_of(matrix.element)
    bits = ir.IntegerType.get_signless(8 * size)  # LLVM has no fp8; what is moved need not be understood
    width = vectors.ACCESS_BYTES // size
    pitch = -(-k // width) * width
    axes = batch_axes(contraction, matrix)
    target = temporary(function, (*(count for count, _ in axes), matrix.rows, pitch), matrix.element)

    kernel = Kernel(function, threads=_SIDE * _LINES, schedule=schedule, suffix=suffix)
    source, copy = kernel.pointer(matrix.tensor.value), kernel.pointer(target)
    across, down = -(-matrix.rows // _SIDE), -(-k // _SIDE)
    line_bytes = _SIDE * size + 4  # one word more, so that a column of the tile is in different banks
    with kernel.body():
        shared, thread, block = kernel.shared(), kernel.thread(), kernel.block_index()
        lane, line = thread % _SIDE, thread // _SIDE
        product = block // (across * down)
        row0, k0 = block % across * _SIDE, block // across % down * _SIDE
        start = batch_offset(product, axes)

        def place(y: Int, x: Int) -> Any:
            return kernel.offset(shared, y * line_bytes + x * size)

        def read(y: Int) -> None:
            offset = start + (k0 + y).wide() * matrix.k_stride + (row0 + lane).wide()
            values = vectors.load(kernel, bits, kernel.offset(source, offset, bits))
            vectors.store(kernel, values, place(y, lane))

        def write(y: Int) -> None:
            offset = (product * matrix.rows + row0 + y).wide() * pitch + (k0 + lane).wide()
            values = vectors.load(kernel, bits, place(lane, y))
            vectors.store(kernel, values, kernel.offset(copy, offset, bits))

        lines = [line + first for first in range(0, _SIDE, _LINES)]
        for y in lines:
            kernel.when(((k0 + y) < k) & ((row0 + lane) < matrix.rows), partial(read, y))
        kernel.barrier()
        for y in lines:
            kernel.when(((row0 + y) < matrix.rows) & ((k0 + lane) < k), partial(write, y))
    kernel.launch((across * down * prod(count for count, _ in axes),), shared_bytes=_SIDE * line_bytes)

    tensor = Tensor(target, (*(count for count, _ in axes), matrix.rows, pitch), matrix.element)
    strides = copied_strides(matrix, axes, matrix.rows * pitch)
    return replace(matrix, tensor=tensor, row_stride=pitch, k_stride=1, batch_strides=strides)
