"""Matrix products by FMA on ordinary registers: f32 without TF32, f64, integers, and whatever tensor cores do not take.

Any sizes, layouts and batches, with what comes after the product in the same kernel.  f32 is IEEE's, summed in f32 as eager
does without TF32.  See docs/kernels/gemm_fma.md.
"""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import ir
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.product.contraction import Product, match_contraction
from mlirstack.schedules.cuda.product.factors import Factor, factors_of
from mlirstack.schedules.cuda.product.fma_choice import fma_cut_of, fma_cuts
from mlirstack.schedules.cuda.product.fma_engine import FmaEngine
from mlirstack.schedules.cuda.product.product_kernel import ProductKernel

_FLOATS = ("f16", "bf16", "f32", "f64")
_INTEGERS = ("i8", "i16", "i32", "i64")


class FmaGemm:
    """Register tiles of results, double-buffered vectors from shared memory, ``cp.async`` in any layout."""

    name = "gemm_fma"
    takes_extents = True

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        found = self.candidates(graph, device)
        return found[0] if found else None

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        contraction = match_contraction(graph)
        if contraction is None:
            return []
        element = sum_type(contraction, factors_of(contraction))
        if element is None:
            return []
        c = contraction
        rows = [sample.m for sample in c.sampled()]
        return [cut.parameters() for cut in fma_cuts(rows, c.n, c.k, c.batch, int(element.width) // 8, device)]

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        contraction = match_contraction(graph)
        assert contraction is not None
        factors = factors_of(contraction)
        element = sum_type(contraction, factors)
        assert element is not None
        cut = fma_cut_of({name: int(value) for name, value in parameters.items()})
        engine = FmaEngine(cut.tile, element)
        ProductKernel(contraction, factors, engine, cut.splits, cut.group, self.name).write(function)


def sum_type(product: Product, factors: tuple[Factor, Factor]) -> Any:
    """The MLIR type to sum in: that of the IR, at least 32 bits; None where the factors cannot be brought to it."""
    accumulator = product.accumulator
    names = _INTEGERS if isinstance(accumulator, ir.IntegerType) else _FLOATS
    elements = [factor.element for factor in factors]
    if any(str(kind) not in names for kind in (*elements, accumulator)):
        return None
    width = max(32, int(accumulator.width))
    if any(int(kind.width) > width for kind in elements):
        return None
    if isinstance(accumulator, ir.IntegerType):
        # A sum narrower than 32 bits wraps around; the epilogue has no place for that.
        return accumulator if width == accumulator.width else None
    return ir.F64Type.get() if width == 64 else ir.F32Type.get()
