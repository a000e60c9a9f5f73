"""How the copy engine sees the factors and the outputs of a warp-specialised product: their tensor maps."""

from __future__ import annotations

from typing import Any

from mlirstack.schedules.cuda.extent import Extent, Size
from mlirstack.schedules.cuda.graph import Tensor
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.instructions.warpgroup import SWIZZLE, WGMMA_ROWS
from mlirstack.schedules.cuda.kernel import TensorMapLayout
from mlirstack.schedules.cuda.product.access import Access
from mlirstack.schedules.cuda.product.contraction import Matrix
from mlirstack.schedules.cuda.wgmma.wgmma_tile import WgmmaProblem


def factor_map(problem: WgmmaProblem, matrix: Matrix, rows: int, *, shared_by_two: bool) -> TensorMapLayout:
    """How the copy engine sees a factor of which a block holds ``rows`` rows; batch axes that share it are left out."""
    operands, batches = problem.operands, problem.contraction.batches
    size, k = operands.bits // 8, problem.contraction.k
    step = SWIZZLE // size
    axes = [(count, stride * size) for count, stride in zip(batches, matrix.batch_strides, strict=True) if stride]
    inner, outer = (k, matrix.rows) if matrix.k_major else (matrix.rows, k)
    box = (step, rows // 2 if shared_by_two else rows) if matrix.k_major else (step, step)
    sizes = (inner, outer, *(count for count, _ in reversed(axes)))
    points = matrix.extent or problem.contraction.outer_batch_points
    return TensorMapLayout(
        tensor_map_element(operands),
        sizes,
        (matrix.leading_stride * size, *(stride for _, stride in reversed(axes))),
        (*box, *(1 for _ in axes)),
        varying=_varying(matrix.tensor, points, 1 if matrix.extent else len(sizes) - 1),
    )


def output_map(problem: WgmmaProblem, access: Access) -> TensorMapLayout:
    """How the copy engine sees an output: boxes of 64 rows."""
    contraction = problem.contraction
    size = vectors.bytes_of(access.tensor.element)
    row, strides = access.row_stride(contraction.m), access.batch_strides(contraction.batches)
    assert row is not None and strides is not None
    sizes = (contraction.n, contraction.m, *reversed(contraction.batches))
    of_rows = isinstance(contraction.row_points, Extent)
    points = contraction.row_points if of_rows else contraction.outer_batch_points
    return TensorMapLayout(
        _element_name(access.tensor.element),
        sizes,
        (row * size, *(stride * size for stride in reversed(strides))),
        (problem.box_row(size) // size, WGMMA_ROWS, *(1 for _ in strides)),
        swizzle=problem.box_row(size),
        l2_promotion=0,
        varying=_varying(access.tensor, points, 1 if of_rows else len(sizes) - 1),
    )


def _varying(tensor: Tensor, points: Size, axis: int) -> tuple[int, ...]:
    """What a tensor map says of its dimension ``axis``, of so many elements, where a size of ``tensor`` varies."""
    if tensor.varying is None or not isinstance(points, Extent):
        return ()
    return axis, tensor.varying, points.factor


def tensor_map_element(operands: Operands) -> str:
    """What a tensor map calls the type of the factors."""
    return operands.name if operands.name in ("f16", "bf16", "tf32") else "i8"


def _element_name(element: Any) -> str:
    """The copy engine only moves bits: integers go as floats of their size."""
    return {"f16": "f16", "bf16": "bf16"}.get(str(element), "f32" if vectors.bytes_of(element) == 4 else "bf16")
