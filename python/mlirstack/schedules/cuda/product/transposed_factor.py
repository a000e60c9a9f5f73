"""Transposed copies of factors, K contiguous: for wgmma, which reads elements of other than 16 bits along K only, and for
the copy engine, which reads no rows of an odd pitch.

Takes a factor of a :class:`Contraction` whose rows are contiguous; leaves a kernel that writes it with K contiguous into a
temporary of the kernel function, tile by tile through shared memory, and the factor as it lies there.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from mlirstack.bindings import ir
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.contraction import Contraction, Matrix
from mlirstack.schedules.cuda.product.padded_factor import batch_axes, batch_offset, place_copy
from mlirstack.schedules.cuda.values import Int

_SIDE = 64  # rows and columns of a tile: a warp reads and writes lines of it
_LANES, _WARPS = 32, 8
_WORD = 4  # bytes that a lane writes at least, where elements are smaller


def transposed_copy(function: Any, contraction: Contraction, matrix: Matrix, suffix: str, schedule: str) -> Matrix:
    """Write a kernel that copies ``matrix`` (rows contiguous) with K contiguous, in padded lines.

    A block has a tile of 64 by 64: its warps read lines of rows, all of them at once, and write lines of K.
    """
    k, rows, copied = contraction.k, matrix.rows, place_copy(function, contraction, matrix)
    size = vectors.bytes_of(matrix.element)
    bits = ir.IntegerType.get_signless(8 * size)  # LLVM has no fp8; what is moved need not be understood
    axes = batch_axes(contraction, matrix)

    kernel = Kernel(function, threads=_LANES * _WARPS, schedule=schedule, suffix=suffix)
    source, copy = kernel.pointer(matrix.tensor.value), kernel.pointer(copied.tensor.value)
    across, down = -(-rows // _SIDE), -(-k // _SIDE)
    each = min(2, max(1, _WORD // size))  # elements of a lane side by side, which lie in lines of the tile
    line_bytes = _SIDE * size + _WORD // each  # so that what a warp reads of its lines is in different banks
    with kernel.body():
        shared, thread, block = kernel.shared(), kernel.thread(), kernel.block_index()
        lane, warp = thread % _LANES, thread // _LANES
        product = block // (across * down)
        row0, k0 = block % across * _SIDE, block // across % down * _SIDE
        start = batch_offset(product, axes)

        def place(y: Int, x: Int) -> Any:
            return kernel.offset(shared, y * line_bytes + x * size)

        def read(y: Int, x: Int) -> list[Any]:
            line, row = (k0 + y).minimum(k - 1), (row0 + x).minimum(rows - 1)  # beyond an edge, the last again
            offset = start + line.wide() * matrix.k_stride + row.wide()
            return vectors.load(kernel, bits, kernel.offset(source, offset, bits))

        def write(y: Int, x: Int) -> None:
            values = [value for n in range(each) for value in vectors.load(kernel, bits, place(x + n, y))]
            offset = (product * rows + row0 + y).wide() * copied.row_stride + (k0 + x).wide()
            vectors.store(kernel, values, kernel.offset(copy, offset, bits))

        lines = [warp + first for first in range(0, _SIDE, _WARPS)]
        places = [(y, lane + first) for y in lines for first in range(0, _SIDE, _LANES)]
        for (y, x), values in zip(places, [read(y, x) for y, x in places], strict=True):
            vectors.store(kernel, values, place(y, x))
        kernel.barrier()
        for y in lines:
            for first in range(0, _SIDE, _LANES * each):
                x = lane * each + first
                kernel.when(((row0 + y) < rows) & ((k0 + x) < k), partial(write, y, x))
    kernel.launch((across * down * prod(count for count, _ in axes),), shared_bytes=_SIDE * line_bytes)
    return copied
