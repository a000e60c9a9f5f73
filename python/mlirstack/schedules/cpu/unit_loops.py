"""Windows after tiling: where every sliding index is down to one loop, plain indices over (strided) slices.

Upstream's folding of unit dimensions drops a summation of one step as well, and leaves the stride of a window in the
indexing map; the one undoes contractions, the other keeps an op from being vectorized.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.contractions import Contraction, contraction
from mlirstack.schedules.cpu.tile_shape import BodyCopy, generic
from mlirstack.schedules.linalg_ops import LinalgOp, Operand, coefficient, expression_loops, kernels, linalg_ops


@dataclass(frozen=True)
class DropUnitLoops(PythonPass):
    """Before: tiled kernels.  After: ops with windows have no loops of one iteration, except for one summation of a
    contraction (over channels, where there are any); what the window's stride skips is skipped by a strided slice, and
    indices are plain.

    Ops that still slide a window over several elements are left alone.
    """

    name: ClassVar[str] = "mlirstack-cpu-drop-unit-loops"

    def apply(self, module: Any) -> None:
        for _, _, function in kernels(module):
            for op in linalg_ops(function):
                if op.static and any(operand.windows for operand in op.inputs) and len(op.outputs) == 1:
                    _drop(op)


def _drop(op: LinalgOp) -> None:
    found = contraction(op)
    if found is not None and op.outputs[0].dims[-1] not in found.columns:
        found = None  # not in packed form: no outer product, but one multiplication an element
    summed = _sum_to_keep(found, op.shape) if found is not None else None
    kept = [d for d, size in enumerate(op.shape) if size > 1 or d == summed]
    if any(_kept_loops(e, kept) is None for operand in op.operands for e in operand.expressions):
        return
    with ir.InsertionPoint(op.op), op.op.location:
        sliced = [_slice(operand, op.shape, kept) for operand in op.operands]
        maps = [[kept.index(d) for d in _slice_loops(operand, kept)] for operand in op.operands]
        kinds = ["reduction" if d in op.reductions else "parallel" for d in kept]
        body = BodyCopy(op) if found is not None else _Fused(BodyCopy(op))
        result = generic(sliced[:-1], sliced[-1], maps, kinds, body)
        out = op.outputs[0]
        if result.type != out.value.type:
            offsets, sizes, strides = _window(out, op.shape, kept)
            result = dialect("tensor").insert_slice(result, out.value, [], [], [], offsets, sizes, strides)
    op.op.results[0].replace_all_uses_with(result)
    op.op.erase()


def _sum_to_keep(found: Contraction, shape: Sequence[int]) -> int:
    """The last summation that no other kept loop slides along: with channels before rows and columns of an image, one over
    channels, for the tap slides along the rows of a register tile.  The last of all where there is none."""
    indices = [expression_loops(e) for e in found.lhs.expressions]
    sliding = {d for loops in indices for d in loops if any(shape[other] > 1 for other in loops if other != d)}
    return next((d for d in reversed(found.sums) if d not in sliding), found.sums[-1])


def _kept_loops(expression: Any, kept: Sequence[int]) -> tuple[int, ...] | None:
    """The kept loops of an index, at most one; None where there are more, and it still slides."""
    loops = tuple(d for d in expression_loops(expression) if d in kept)
    return loops if len(loops) <= 1 else None


def _slice_loops(operand: Operand, kept: Sequence[int]) -> list[int]:
    return [d for e in operand.expressions for d in _kept_loops(e, kept) or ()]


def _window(operand: Operand, shape: Sequence[int], kept: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Offsets, sizes and strides of what a tile reads of ``operand``."""
    sizes, strides = [], []
    for e in operand.expressions:
        loops = _kept_loops(e, kept) or ()
        sizes.append(shape[loops[0]] if loops else 1)
        strides.append(coefficient(e, loops[0]) if loops else 1)
    return [0] * len(sizes), sizes, strides


def _slice(operand: Operand, shape: Sequence[int], kept: Sequence[int]) -> Any:
    if not operand.shape:
        return operand.value
    result = ir.RankedTensorType.get([shape[d] for d in _slice_loops(operand, kept)], operand.element)
    if result == operand.value.type:
        return operand.value
    return dialect("tensor").extract_slice(result, operand.value, [], [], [], *_window(operand, shape, kept))


@dataclass(frozen=True)
class _Fused:
    """A body with ``out + a * b`` of floating-point numbers as one operation, as in a contraction."""

    body: BodyCopy

    def __call__(self, *scalars: Any) -> Any:
        result = self.body(*scalars)
        # A body may also hand on what it was given.
        if not isinstance(result.owner, (ir.Operation, ir.OpView)) or result.owner.operation.name != "arith.addf":
            return result
        terms = list(result.owner.operation.operands)
        products = [t for t in terms if isinstance(t.owner, (ir.Operation, ir.OpView))]
        products = [t for t in products if t.owner.operation.name == "arith.mulf"]
        if len(products) != 1:
            return result
        (product,) = products
        other = next(t for t in terms if t != product)
        return dialect("math").fma(*product.owner.operation.operands, other)
