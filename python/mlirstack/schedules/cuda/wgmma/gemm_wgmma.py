"""Matrix products on Hopper's tensor cores (sm_90a): ``wgmma`` fed by the copy engine, a persistent grid, fused epilogue.

Takes f16, bf16, fp8, i8 and, where it is allowed, f32 as TF32, with any M, N, K and batches, from about 64 rows up;
other shapes are left to the emitters after this one.  See docs/kernels/gemm_wgmma.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameter, Parameters
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.product.contraction import Contraction, Matrix, match_contraction
from mlirstack.schedules.cuda.product.gemm_mma import operands_of
from mlirstack.schedules.cuda.product.padded_factor import copy_layout, padded_copy
from mlirstack.schedules.cuda.product.transposed_factor import transposed_copy
from mlirstack.schedules.cuda.wgmma.reach import loadable, swaps
from mlirstack.schedules.cuda.wgmma.wgmma_choice import candidates
from mlirstack.schedules.cuda.wgmma.wgmma_kernel import write_wgmma
from mlirstack.schedules.cuda.wgmma.wgmma_tile import WgmmaProblem, WgmmaTile

_SMALL = 2 * 64 * 64 * 64  # floating-point operations below which a tile would be mostly padding
_LEAST = 32  # rows, columns and K below which it would be, too
_LEAST_COPIED = 2**28  # operations below which a copy of a factor does not pay


class WgmmaGemm:
    """Warp-specialised matrix products.  f16, bf16, TF32 and fp8 are summed in f32, i8 in i32."""

    name = "gemm_wgmma"
    takes_extents = True

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        found = self.candidates(graph, device)
        return found[0] if found else None

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        contraction = match_contraction(graph) if device.has_wgmma else None
        operands = operands_of(contraction, device) if contraction is not None else None
        if contraction is None or operands is None or not _is_suitable(contraction, operands):
            return []
        swapped = swaps(contraction, operands)
        contraction = as_loadable(contraction, operands, swapped=swapped)
        return [parameters_of(tile) for tile in candidates(contraction, operands, device, swapped=swapped)]

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`.

        A factor that the copy engine cannot read is copied by a kernel of its own first.
        """
        contraction = match_contraction(graph)
        operands = operands_of(contraction, device) if contraction is not None else None
        assert contraction is not None and operands is not None
        swapped = swaps(contraction, operands)
        contraction = with_loadable_factors(function, contraction, operands, self.name, swapped=swapped)
        write_wgmma(function, WgmmaProblem(contraction, operands, tile_of(parameters), swapped), device, self.name)


def parameters_of(tile: WgmmaTile) -> dict[str, Parameter]:
    """A tile as parameters of a schedule; the inverse of :func:`tile_of`."""
    return {
        "rows": tile.rows, "columns": tile.columns, "stages": tile.stages, "multicast": tile.multicast,
        "split": tile.split, "consumers": tile.consumers, "group": tile.group, "pingpong": tile.pingpong,
    }  # fmt: skip


def tile_of(parameters: Mapping[str, Parameter]) -> WgmmaTile:
    """The tile that parameters of a schedule describe."""
    names = ("rows", "columns", "stages", "split", "consumers", "group")
    multicast, pingpong = str(parameters["multicast"]), bool(parameters["pingpong"])
    return WgmmaTile(multicast=multicast, pingpong=pingpong, **{name: int(parameters[name]) for name in names})


def as_loadable(contraction: Contraction, operands: Operands, *, swapped: bool) -> Contraction:
    """``contraction`` as it will be when factors that the copy engine cannot read have been copied; nothing is written.

    ``swapped``: the left factor of a wgmma will be B.
    """
    return _with_copies(contraction, operands, lambda matrix, _: copy_layout(contraction, matrix), swapped=swapped)


def with_loadable_factors(
    function: Any, contraction: Contraction, operands: Operands, schedule: str, *, swapped: bool
) -> Contraction:
    """The same, after kernels that copy them."""

    def copied(matrix: Matrix, suffix: str) -> Matrix:
        copy = padded_copy if matrix.k_major else transposed_copy
        return copy(function, contraction, matrix, suffix, schedule)

    return _with_copies(contraction, operands, copied, swapped=swapped)


def _with_copies(
    contraction: Contraction, operands: Operands, copied: Callable[[Matrix, str], Matrix], *, swapped: bool
) -> Contraction:
    a, b = contraction.a, contraction.b
    a = a if loadable(a, operands, is_left=not swapped) else copied(a, "_copy_a")
    return replace(contraction, a=a, b=b if loadable(b, operands, is_left=swapped) else copied(b, "_copy_b"))


def can_load(contraction: Contraction, operands: Operands, *, swapped: bool) -> bool:
    """Can both factors be read, if need be from copies?"""
    sides = ((contraction.a, not swapped), (contraction.b, swapped))
    if not all(matrix.is_contiguous for matrix, _ in sides):
        return False
    direct = all(loadable(matrix, operands, is_left=is_left) for matrix, is_left in sides)
    is_known = isinstance(contraction.row_points, int) and isinstance(contraction.batch_points, int)
    return direct or (is_known and contraction.flops >= _LEAST_COPIED)


def _is_suitable(contraction: Contraction, operands: Operands) -> bool:
    large = contraction.flops >= _SMALL and min(contraction.m, contraction.n, contraction.k) >= _LEAST
    return large and can_load(contraction, operands, swapped=swaps(contraction, operands))
