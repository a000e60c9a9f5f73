"""Matrix products with few rows or few columns, as decoding has them: what counts is the speed at which one factor streams.

Up to 4 rows, or 16 of f32 that tensor cores do not take, the large factor goes straight through registers (``gemv``).  Up to
64, on sm_90a, the large factor gives the 64 rows of a wgmma and the small one its columns, and blocks of a cluster share K,
so that all multiprocessors stream.  See docs/kernels/gemm_skinny.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.instructions.warpgroup import SWIZZLE
from mlirstack.schedules.cuda.product.contraction import Contraction, match_contraction
from mlirstack.schedules.cuda.product.gemm_mma import operands_of
from mlirstack.schedules.cuda.product.gemv import WARPS, StreamedProduct, Streaming
from mlirstack.schedules.cuda.wgmma.gemm_wgmma import as_loadable, can_load, parameters_of, tile_of, with_loadable_factors
from mlirstack.schedules.cuda.wgmma.wgmma_kernel import write_wgmma
from mlirstack.schedules.cuda.wgmma.wgmma_tile import WgmmaProblem, WgmmaTile

_STREAMED_ROWS = 4  # of the small factor: more would keep the FMA units busier than the memory …
_STREAMED_FMA_ROWS = 16  # … which is still the fastest way where there is nothing but FMA units
_SKINNY_ROWS = 64
_LEAST_STREAM = 2**15  # elements of the large factor below which nothing is worth streaming
_LEAST_K = 64
_WARPS_TO_FILL = 16  # warps of a multiprocessor that keep enough loads in flight …
_FMA_WARPS_TO_FILL = 7  # … and those that do where each has many sums (measured)
_RING_BYTES = (160 * 1024, 88 * 1024)  # of a ring where a multiprocessor has one block, and where it has two
_MOST_STAGES = 12


class SkinnyGemm:
    """Few rows or few columns.  f32, f16 and bf16 are summed in f32, i8 in i32."""

    name = "gemm_skinny"

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        found = self.candidates(graph, device)
        return found[0] if found else None

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        contraction = match_contraction(graph)
        if contraction is None or not _is_skinny(contraction):
            return []
        streamed = [_streaming_parameters(cut) for cut in _streamings(contraction, device)]
        operands = operands_of(contraction, device) if device.has_wgmma else None
        tensor = [] if operands is None else [_tile_parameters(tile) for tile in _tiles(contraction, operands, device)]
        return [*streamed, *tensor]

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        contraction = match_contraction(graph)
        assert contraction is not None
        swapped = contraction.m < contraction.n
        if parameters["kind"] == "stream":
            names = ("columns", "k_warps", "unroll")
            cut = Streaming(**{name: int(parameters[name]) for name in names})
            StreamedProduct(function, contraction, cut, transposed=not swapped, schedule=self.name).write()
            return
        operands = operands_of(contraction, device)
        assert operands is not None
        contraction = with_loadable_factors(function, contraction, operands, self.name, swapped=swapped)
        problem = WgmmaProblem(contraction, operands, tile_of(parameters), swapped)
        write_wgmma(function, problem, device, self.name)


def _is_skinny(contraction: Contraction) -> bool:
    small, large = sorted((contraction.m, contraction.n))
    return small <= _SKINNY_ROWS and contraction.k >= _LEAST_K and large * contraction.k >= _LEAST_STREAM


def _streaming_parameters(cut: Streaming) -> Parameters:
    return {"kind": "stream", "columns": cut.columns, "k_warps": cut.k_warps, "unroll": cut.unroll}


def _tile_parameters(tile: WgmmaTile) -> Parameters:
    return {"kind": "wgmma", **parameters_of(tile)}


def _streamings(contraction: Contraction, device: Device) -> Iterator[Streaming]:
    """Ways to stream, the most promising first: as few warps on a row as fill the chip."""
    small, large = sorted((contraction.m, contraction.n))
    kinds = {str(matrix.element) for matrix in (contraction.a, contraction.b)}
    summed = str(contraction.accumulator) in ("f32", "f16", "bf16")
    k_major = contraction.a.k_major and contraction.b.k_major
    most = _STREAMED_FMA_ROWS if operands_of(contraction, device) is None else _STREAMED_ROWS
    if small > most or not k_major or not summed or len(kinds) > 1 or not kinds <= {"f32", "f16", "bf16"}:
        return
    # What is read of the small factor serves all columns of a warp: of many rows, the first level cache bears no more.
    is_few = small <= _STREAMED_ROWS
    warps = device.multiprocessors * (_WARPS_TO_FILL if is_few else _FMA_WARPS_TO_FILL)
    for columns in (2, 1, 4) if is_few else (4, 2, 1):
        needed = max(1, ceil(warps * columns / (large * contraction.batch)))
        best = min(WARPS, 1 << (needed - 1).bit_length())
        for k_warps in (best, best * 2, best // 2):
            for unroll in (2, 4) if is_few else (4, 2):
                if 1 <= k_warps <= WARPS and large % columns == 0:
                    yield Streaming(columns, k_warps, unroll)


def _tiles(contraction: Contraction, operands: Operands, device: Device) -> Iterator[WgmmaTile]:
    """Tiles of 64 or 128 rows of the large factor and all of the small one, the K of each shared so that the chip fills."""
    small, large = sorted((contraction.m, contraction.n))
    swapped = contraction.m < contraction.n
    if not can_load(contraction, operands, swapped=swapped):
        return
    contraction = as_loadable(contraction, operands, swapped=swapped)
    factor = contraction.a if swapped else contraction.b
    columns = -(-small // 8) * 8 if factor.k_major else _SKINNY_ROWS
    if operands.is_integer and columns > 24:
        columns = -(-columns // 16) * 16  # wgmma on integers comes in fewer widths
    tiles = -(-large // 64) * contraction.batch
    splits = (2, 1, 4) if tiles < device.multiprocessors else (1, 2, 4)
    for rows in (64, 128):
        for split in splits:
            ring = _RING_BYTES[0 if -(-large // rows) * contraction.batch * split <= device.multiprocessors else 1]
            stages = max(3, min(_MOST_STAGES, ring // ((rows + columns) * SWIZZLE)))
            tile = WgmmaTile(rows, columns, stages, split=split, consumers=rows // 64)
            problem = WgmmaProblem(contraction, operands, tile, swapped)
            if problem.fits(device) and problem.steps >= 2 * split:
                yield tile
