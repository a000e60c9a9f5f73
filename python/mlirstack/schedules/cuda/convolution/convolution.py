"""Convolutions of any rank, stride, dilation and layout as matrix products over pixels (implicit GEMM).

Rows are output pixels, columns features, K is the window; tiles of the image are gathered on their way to shared memory, so
that no copy of it is ever unfolded.  16-bit, 8-bit and (where allowed) TF32 convolutions run on tensor cores, all others by
FMA.  See docs/kernels/convolution.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlirstack.schedules.cuda.convolution.convolution_groups import convolution_groups
from mlirstack.schedules.cuda.convolution.wgmma_window import window_copies
from mlirstack.schedules.cuda.convolution.wgmma_window_choice import is_preferred, window_tiles
from mlirstack.schedules.cuda.convolution.window_factor import WindowFactor
from mlirstack.schedules.cuda.convolution.windows import WindowProduct, match_window
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.product.factors import Factor
from mlirstack.schedules.cuda.product.fma_choice import fma_cut_of, fma_cuts
from mlirstack.schedules.cuda.product.fma_engine import FmaEngine
from mlirstack.schedules.cuda.product.gemm_fma import sum_type
from mlirstack.schedules.cuda.product.gemm_mma import operands_for, problem_of
from mlirstack.schedules.cuda.product.mma_choice import Problem, cut_of, cuts
from mlirstack.schedules.cuda.product.mma_engine import MmaEngine
from mlirstack.schedules.cuda.product.product_kernel import Engine, ProductKernel
from mlirstack.schedules.cuda.wgmma.gemm_wgmma import parameters_of, tile_of
from mlirstack.schedules.cuda.wgmma.wgmma_copy_choice import wgmma_copy_cut_of, wgmma_copy_cuts
from mlirstack.schedules.cuda.wgmma.wgmma_copy_engine import WgmmaCopyEngine
from mlirstack.schedules.cuda.wgmma.wgmma_kernel import write_wgmma
from mlirstack.schedules.cuda.wgmma.wgmma_tile import WgmmaProblem

_MAX_ELEMENTS = 2**31  # that offsets of 32 bits reach


class Convolution:
    """Implicit GEMM.  Sums are those of the matrix products: f32 for 16 bits, the type of the IR otherwise."""

    name = "convolution"

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        found = self.candidates(graph, device)
        return found[0] if found else None

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        match = match_window(graph)
        if match is None or _largest_offset(match) >= _MAX_ELEMENTS:
            return []
        product, factors = match.product, window_factors(match)
        operands = operands_for(product, factors, device)
        if operands is not None:
            problem = problem_of(product, factors, operands)
            of_mma: list[Parameters] = [{"engine": "mma", **cut.parameters()} for cut in cuts([problem], device)]
            if not _suits_wgmma(problem, device):
                return of_mma
            of_wgmma: list[Parameters] = [
                {"engine": "wgmma", **cut.parameters()} for cut in wgmma_copy_cuts(problem, device)
            ]
            copies = window_copies(match, operands) if device.image_maps else None
            tiles = window_tiles(copies, device) if copies is not None else []
            of_tma: list[Parameters] = [{"engine": "tma", **parameters_of(tile)} for tile in tiles]
            if copies is not None and tiles and is_preferred(copies, tiles[0]):
                return of_tma + of_wgmma[:4] + of_mma[:2]
            return of_wgmma + of_tma[:4] + of_mma[:2]
        element = sum_type(product, factors)
        if element is None:
            return []
        p = product
        found_fma = fma_cuts([p.m], p.n, p.k, p.batch, int(element.width) // 8, device)
        return [{"engine": "fma", **cut.parameters()} for cut in found_fma]

    def claim(self, operations: Sequence[Any], device: Device) -> list[list[Any]]:
        """Each convolution with the zeros around its image before it, and the elementwise ops after it, layouts changed too.

        ``operations``: those of a function, in order.  A group is what this emitter takes as a whole.
        """

        def takes(ops: Sequence[Any]) -> bool:
            return self.choose(KernelGraph(ops), device) is not None

        return convolution_groups(operations, takes)

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        match = match_window(graph)
        assert match is not None
        product, factors = match.product, window_factors(match)
        if parameters["engine"] == "tma":
            self._emit_tma(function, match, parameters, device)
            return
        numbers = {name: int(value) for name, value in parameters.items() if name != "engine"}
        engine: Engine[Any]
        operands = operands_for(product, factors, device)
        if parameters["engine"] == "mma":
            assert operands is not None
            cut = cut_of(numbers)
            engine, splits, group = MmaEngine(cut.tile, operands), cut.splits, cut.group
        elif parameters["engine"] == "wgmma":
            assert operands is not None
            wgmma_cut = wgmma_copy_cut_of(numbers)
            engine, splits, group = WgmmaCopyEngine(wgmma_cut.tile, operands), wgmma_cut.splits, wgmma_cut.group
        else:
            fma_cut = fma_cut_of(numbers)
            engine = FmaEngine(fma_cut.tile, sum_type(product, factors))
            splits, group = fma_cut.splits, fma_cut.group
        ProductKernel(product, factors, engine, splits, group, self.name).write(function)

    def _emit_tma(self, function: Any, match: WindowProduct, parameters: Parameters, device: Device) -> None:
        """The kernel whose factors the copy engine brings."""
        operands = operands_for(match.product, window_factors(match), device)
        copies = window_copies(match, operands) if operands is not None else None
        assert operands is not None and copies is not None
        problem = WgmmaProblem(copies.contraction(), operands, tile_of(parameters))
        write_wgmma(function, problem, device, self.name, copies)


def window_factors(match: WindowProduct) -> tuple[Factor, Factor]:
    """Image and weights as factors."""
    return WindowFactor(match.image), WindowFactor(match.weights)


def _suits_wgmma(problem: Problem, device: Device) -> bool:
    """Is there work for a warpgroup, and does it come in chunks?"""
    return device.has_wgmma and not problem.gathers and problem.m >= 64 and problem.n >= 32 and problem.k >= 64


def _largest_offset(match: WindowProduct) -> int:
    """An upper bound for what rows and K add to an address, in elements."""
    return max(
        sum((digit.size - 1) * digit.stride for digit in (*window.row_digits, *window.k_digits))
        for window in (match.image, match.weights)
    )
