"""Two matrix products of one left factor as one kernel for Hopper (sm_90a), as ``silu(x · G) * (x · U)`` in a gated MLP.

Both right factors lie side by side in a tile, so that one wgmma multiplies both and every thread gets both sums of its
elements: they meet in registers, where two kernels would write one of them to memory.  See docs/kernels/gemm_pair.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.instructions.warpgroup import SWIZZLE, WGMMA_ROWS
from mlirstack.schedules.cuda.product.gemm_mma import operands_of
from mlirstack.schedules.cuda.product.pair_groups import pair_groups
from mlirstack.schedules.cuda.product.paired import Pair, match_pair
from mlirstack.schedules.cuda.wgmma.gemm_wgmma import parameters_of, tile_of
from mlirstack.schedules.cuda.wgmma.reach import loadable
from mlirstack.schedules.cuda.wgmma.wgmma_choice import candidates
from mlirstack.schedules.cuda.wgmma.wgmma_kernel import write_wgmma
from mlirstack.schedules.cuda.wgmma.wgmma_tile import WgmmaProblem, WgmmaTile

_FEW_ROWS = 64  # up to here, they are columns of a wgmma
_LEAST = 32  # columns and K below which a tile would be mostly padding
_RING_BYTES = (176 * 1024, 88 * 1024)  # for few rows: of one block on a multiprocessor, of two


class PairedGemm:
    """Two products of the types of :class:`~mlirstack.schedules.cuda.wgmma.gemm_wgmma.WgmmaGemm` that meet element by
    element."""

    name = "gemm_pair"
    kernel_class = "contraction"

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        return next(iter(self.candidates(graph, device)), None)

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        pair = match_pair(graph) if device.has_wgmma else None
        operands = operands_of(pair, device) if pair is not None else None
        if pair is None or operands is None or min(pair.n, pair.k) < _LEAST or not _all_loadable(pair, operands):
            return []
        few = pair.m <= _FEW_ROWS
        tiles = list(_tiles_of_few_rows(pair, operands, device)) if few else candidates(pair, operands, device)
        return [parameters_of(tile) for tile in tiles]

    def claim(self, operations: Sequence[Any], device: Device) -> list[list[Any]]:
        """Each two products whose results meet in an elementwise op, with that op and those after it."""
        return pair_groups(operations, lambda ops: self.choose(KernelGraph(ops), device) is not None)

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        pair = match_pair(graph)
        operands = operands_of(pair, device) if pair is not None else None
        assert pair is not None and operands is not None
        write_wgmma(function, WgmmaProblem(pair, operands, tile_of(parameters), pair.m <= _FEW_ROWS), device, self.name)


def _all_loadable(pair: Pair, operands: Operands) -> bool:
    return all(loadable(matrix, operands) for matrix in (pair.a, pair.b, pair.other))


def _tiles_of_few_rows(pair: Pair, operands: Operands, device: Device) -> Iterator[WgmmaTile]:
    """Tiles of 64 rows of either large factor and all rows of the small one: what counts is how much is on its way."""
    columns = -(-pair.m // 8) * 8 if pair.a.k_major else _FEW_ROWS
    if operands.is_integer and columns > 24:
        columns = -(-columns // 16) * 16
    for ring in _RING_BYTES:
        stages = ring // ((2 * WGMMA_ROWS + columns) * SWIZZLE)
        tile = WgmmaTile(2 * WGMMA_ROWS, columns, stages, consumers=1)
        for group in (tile.group, 4):
            if WgmmaProblem(pair, operands, tile, swapped=True).fits(device):
                yield replace(tile, group=group)
