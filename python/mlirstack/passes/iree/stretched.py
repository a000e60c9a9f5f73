"""Factors that are stretched, held apart from their product when a program is handed to IREE.

IREE 3.13 lets a product read what is stretched where it lies, which is well where the other factor still varies.  Where
neither does, so that one product stands in the result several times over (``x.expand(4, 8) @ y``, a linear layer on a class
token of each image), it packs the factors for a product that has no such loop, and ends (SIGSEGV).
"""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op
from mlirstack.passes.iree.readings import hold
from mlirstack.schedules.linalg_ops import LinalgOp, expression_loops, linalg_op

_EXPAND, _COLLAPSE, _CAST = "tensor.expand_shape", "tensor.collapse_shape", "tensor.cast"
_SUMS = frozenset({"arith.addf", "arith.addi"})
# IREE converts the elements of a factor within the product.
_CASTS = frozenset(
    {
        "arith.extf", "arith.truncf", "arith.extsi", "arith.extui", "arith.trunci", "arith.sitofp", "arith.uitofp",
        "arith.fptosi", "arith.fptoui",
    }
)  # fmt: skip


def hold_stretched_factors(module: Any) -> None:
    """Before: both factors of a product are the same along a loop, one of them because it is stretched.  After: that one
    passes a barrier, and is copied::

        %a = generic ins(%x) (d1) outs (d0, d1) { yield }    →    %a = generic ins(%x) (d1) outs (d0, d1) { yield }
        linalg.matmul ins(%a, %b)                                 %held = util.optimization_barrier %a
                                                                  linalg.matmul ins(%held, %b)
    """
    held: dict[Any, None] = {}
    for op in walk(module):
        found = linalg_op(op)
        if found is not None and _is_product(found):
            held |= dict.fromkeys(_stretched_in_vain(found))
    for factor in held:
        hold(factor)


def _is_product(found: LinalgOp) -> bool:
    return len(found.inputs) == 2 and bool(found.reductions) and bool(_SUMS.intersection(found.combiners or ()))


def _stretched_in_vain(found: LinalgOp) -> list[Any]:
    """The factors without whose stretching a loop of the result would be no factor's; of two that share it, the first."""
    loops, stretched = [], []
    for factor in found.inputs:
        axes = _stretched_axes(factor.value)
        along = [expression_loops(index) for axis, index in enumerate(factor.expressions) if axis in axes]
        stretched.append({loop for of_axis in along for loop in of_axis})
        loops.append(set(factor.loops) - stretched[-1])
    chosen: list[Any] = []
    for loop in found.parallel:
        if not any(loop in of_factor for of_factor in loops):
            number = next((n for n, of_factor in enumerate(stretched) if loop in of_factor), None)
            if number is not None:
                chosen.append(found.inputs[number].value)
                loops[number] |= stretched[number]
    return chosen


def _stretched_axes(value: Any) -> set[int]:
    """The axes along which ``value`` is a copy of one element, or of several that are joined with others."""
    op = defining_op(value)
    if op is None:
        return set()
    if op.name == _CAST:
        return _stretched_axes(op.operands[0])
    if op.name in (_EXPAND, _COLLAPSE):
        return _through_reshape(op)
    found = linalg_op(op)
    if found is None or found.reductions or not _is_copy(found):
        return set()
    [source], [written] = found.inputs, found.outputs
    before = _stretched_axes(source.value)
    varying = {loop for axis, loop in enumerate(source.dims) if axis not in before} | set(source.windows)
    return {axis for axis, loop in enumerate(written.dims) if loop not in varying and written.shape[axis] != 1}


def _through_reshape(op: Any) -> set[int]:
    before = _stretched_axes(op.operands[0])
    groups = [[int(axis) for axis in group] for group in op.attributes["reassociation"]]
    if op.name == _COLLAPSE:
        return {number for number, group in enumerate(groups) if before.intersection(group)}
    sizes = ir.RankedTensorType(op.results[0].type).shape
    return {axis for number, group in enumerate(groups) if number in before for axis in group if sizes[axis] != 1}


def _is_copy(found: LinalgOp) -> bool:
    """Does it give elements of its only input, as they are or converted, each of its dimensions being a loop of its own?"""
    if len(found.inputs) != 1 or len(found.outputs) != 1 or not found.outputs[0].plain:
        return False
    block = found.op.regions[0].blocks[0]
    value = list(block.operations)[-1].operands[0]
    while (op := defining_op(value)) is not None and op.name in _CASTS:
        value = op.operands[0]
    return bool(value == block.arguments[0])
