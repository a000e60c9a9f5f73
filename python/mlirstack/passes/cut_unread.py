"""Images under windows, cut off where no window reaches: what a stride leaves over at the end is not read.

Folding unit dimensions needs it.  A single window position is no loop any more, and the size of the window is then told from
the image, which must not be larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.linalg_ops import Operand, coefficient, expression_loops, linalg_op


@dataclass(frozen=True)
class CutUnread(PythonPass):
    """Before and after: ``linalg`` on tensors, ops with a name among them.  An operand that is read through windows at one
    position alone is sliced to what that window covers::

        generic ins(%image : 1x4) (d0 * 3 + d1)      →      generic ins(%image[0, 0] [1, 3]) (d0 * 3 + d1)
    """

    name = "mlirstack-cut-unread"

    def apply(self, module: Any) -> None:
        for op in walk(module):
            _cut(op)


def _cut(op: Any) -> None:
    shape = linalg_op(op)
    if shape is None:
        return
    for position, operand in enumerate(shape.inputs):
        read = [_read(operand, dim, shape.sizes) for dim in range(len(operand.shape))]
        if any(size != full for size, full in zip(read, operand.shape, strict=True)):
            with ir.InsertionPoint(op), op.location:
                op.operands[position] = _slice(operand, [-1 if size is None else size for size in read])


def _read(operand: Operand, dim: int, sizes: tuple[int | None, ...]) -> int | None:
    """How much of dimension ``dim`` a window at a single position covers; all of it for any other access."""
    full, expression = operand.shape[dim], operand.expressions[dim]
    loops = expression_loops(expression)
    if operand.dims[dim] is not None or full is None or not any(sizes[loop] == 1 for loop in loops):
        return full
    covered = 1
    for loop in loops:
        size, step = sizes[loop], coefficient(expression, loop)
        if size is None or step <= 0:
            return full
        covered += (size - 1) * step
    return min(covered, full)


def _slice(operand: Operand, sizes: list[int]) -> Any:
    value, element = operand.value, operand.element
    kind = ir.RankedTensorType(value.type)
    dynamic = ir.ShapedType.get_dynamic_size()
    indices = [i for i in range(kind.rank) if kind.is_dynamic_dim(i)]
    tensor, arith = dialect("tensor"), dialect("arith")
    lengths = [tensor.dim(value, arith.constant(ir.IndexType.get(), i)) for i in indices]
    shape = [dynamic if i in indices else size for i, size in enumerate(sizes)]
    return tensor.ExtractSliceOp(
        ir.RankedTensorType.get(shape, element), value, [], lengths, [], [0] * kind.rank, shape, [1] * kind.rank
    ).result
