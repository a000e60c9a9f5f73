"""Matrix products on the tensor cores of sm_80, sm_86, sm_89 and sm_90, and of sm_90a where ``wgmma`` does not fit.

Takes f16, bf16, fp8 (sm_89), i8 and, where it is allowed, f32 as TF32; any sizes, layouts and batches, with what
comes after the product in the same kernel.  See docs/kernels/gemm_mma.md.
"""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import ir
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.graph import KernelGraph, Node
from mlirstack.schedules.cuda.instructions.tensor_core import HOPPER_TF32, OPERANDS, Operands
from mlirstack.schedules.cuda.product.contraction import PRODUCT, Contraction, Product, match_contraction
from mlirstack.schedules.cuda.product.factors import Factor, factors_of
from mlirstack.schedules.cuda.product.mma_choice import Problem, cut_of, cuts
from mlirstack.schedules.cuda.product.mma_engine import MmaEngine, gathers
from mlirstack.schedules.cuda.product.product_kernel import ProductKernel

_NAMES = {"f16": "f16", "bf16": "bf16", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2", "f32": "tf32"}


class MmaGemm:
    """``mma.sync`` behind asynchronous copies.  f16, bf16, TF32 and fp8 are summed in f32, i8 in i32."""

    name = "gemm_mma"
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
        factors = factors_of(contraction)
        operands = operands_for(contraction, factors, device)
        if operands is None:
            return []
        problems = [problem_of(sample, factors, operands) for sample in contraction.sampled()]
        return [cut.parameters() for cut in cuts(problems, device)]

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        contraction = match_contraction(graph)
        assert contraction is not None
        factors = factors_of(contraction)
        operands = operands_for(contraction, factors, device)
        assert operands is not None
        cut = cut_of({name: int(value) for name, value in parameters.items()})
        engine = MmaEngine(cut.tile, operands)
        ProductKernel(contraction, factors, engine, cut.splits, cut.group, self.name).write(function)


def operands_of(contraction: Contraction, device: Device) -> Operands | None:
    """:func:`operands_for` a product of matrices."""
    return operands_for(contraction, factors_of(contraction), device)


def operands_for(product: Product, factors: tuple[Factor, Factor], device: Device) -> Operands | None:
    """What the tensor cores of ``device`` call the factors' type; None where they do not multiply it as exactly as
    is asked for."""
    a, b = factors
    if device.capability < 80 or str(a.element) != str(b.element):
        return None
    name = _integer_name(a, b) if isinstance(a.element, ir.IntegerType) else _NAMES.get(str(a.element))
    if name is None or (name == "tf32" and not product.node.allows_tf32):
        return None
    operands = HOPPER_TF32 if name == "tf32" and device.capability >= 90 else OPERANDS[name]
    if device.capability < operands.capability or not _can_sum(product, operands):
        return None
    return operands


def _integer_name(a: Factor, b: Factor) -> str | None:
    if int(a.element.width) != 8 or a.signed != b.signed:
        return None
    return "s8" if a.signed else "u8"


def _can_sum(product: Product, operands: Operands) -> bool:
    """Is the sum of the IR no wider than that of the tensor cores, or are only so many of its bits wanted?"""
    accumulator = str(product.accumulator)
    if operands.is_integer:
        return accumulator == "i32" or (accumulator == "i64" and _is_cut(product))
    return accumulator in ("f32", "f16", "bf16")


def _is_cut(product: Product) -> bool:
    """Is nothing left of the sum but its low 32 bits?  They do not depend on the others."""
    readers = [step.node for step in product.steps if PRODUCT in step.sources]
    kept = [output.value for output in product.outputs]
    return PRODUCT not in kept and all(node.body_ops() == ["arith.trunci"] and _width(node) <= 32 for node in readers)


def _width(node: Node) -> int:
    """Bits of what an op writes."""
    tensor = node.outputs[0].tensor
    assert tensor is not None
    return int(tensor.element.width)


def problem_of(product: Product, factors: tuple[Factor, Factor], operands: Operands) -> Problem:
    """What the choice of tiles depends on."""
    p = product
    gathered = any(gathers(factor) for factor in factors)
    rows = any(f.layout is not None and not f.layout.k_major and not gathers(f) for f in factors)
    return Problem(p.m, p.n, p.k, p.batch, operands, gathered, rows)
