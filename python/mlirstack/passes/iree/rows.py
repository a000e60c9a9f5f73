"""Kernels over the rows of tensors, for processors: softmax and norms with the elementwise ops around them.

Every row is computed alone, so a kernel is compiled for one row of static length, whatever the number of rows: IREE's
workgroups each take a few.  Takes a region (:mod:`mlirstack.passes.iree.regions`), leaves calls of kernel functions in it
where a group of ops has that form.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.errors import StageError
from mlirstack.ir.kernels import REDUCTION
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.grouping import Group, Policy, group_operations
from mlirstack.passes.iree.linked_ops import is_instruction, reduces
from mlirstack.passes.kernel_class import op_shape
from mlirstack.passes.outline import outline_groups
from mlirstack.passes.polynomials import POLYNOMIALS
from mlirstack.passes.regions import external_values, is_constant, tensor_type
from mlirstack.pipeline.step import PythonPass

# Function attribute: for each argument, the loops over rows that its first dimensions follow; none for what all rows share.
ROWS = "mlirstack.rows"

LEAST_POINTS = 32  # of a row; on rows of 24 IREE's code takes half the time
MOST_SCRATCH = 1 << 18  # bytes of a row's intermediate values, which lie on the stack of a worker
# One result: what is used elsewhere as well, as a residual sum is, had better be the epilogue of what comes before.
_POLICY = Policy(any_size=True)


def outline_rows(region: Any, counts: Counter[str]) -> bool:
    """Make kernels ``@kernel_reduction_<n>`` with ``mlirstack.rows`` of a region's groups that are ours; is there one?"""
    body = [op.operation for op in list(region.regions[0].blocks[0].operations)[:-1]]
    groups = group_operations(body, policy=_POLICY)
    chosen = [group if _is_ours(group) else Group(None, group.ops) for group in groups]
    if not any(group.kind for group in chosen):
        return False
    for kernel in outline_groups(region, chosen, counts, pull_slices=False):
        if kernel is not None:
            block = kernel.regions[0].blocks[0]
            loops = _row_loops([op.operation for op in block.operations if op.operation.name.startswith("linalg.")])
            assert loops is not None
            given = [ir.DenseI64ArrayAttr.get(loops.get(argument, ())) for argument in block.arguments]
            kernel.attributes[ROWS] = ir.ArrayAttr.get(given)
    return True


# ------------------------------------------------------------------------------------------------------------ what is ours


def _is_ours(group: Group) -> bool:
    """Reductions of rows, of a length that is known, not tiny, and not too long for the stack; nothing but instructions."""
    if group.kind != REDUCTION or not _rows(group.ops) or _row_loops(group.ops) is None or _is_as_fast(group):
        return False
    outside = {value for op in group.ops for value in external_values(op)}
    if any(tensor_type(value) is None and not _is_constant(value) for value in outside):
        return False
    count = _rows(group.ops)
    points, scratch = 0, 0
    for op in group.ops:
        shape = op_shape(op)
        assert shape is not None
        row = shape.sizes[count:]
        if None in row or 0 in shape.sizes or not all(is_instruction(inner, bool(row)) for inner in walk(op)):
            return False
        points = max(points, math.prod(size or 1 for size in row))
        scratch += math.prod(size or 1 for size in row) * op.results[0].type.element_type.width // 8
    return points >= LEAST_POINTS and scratch <= MOST_SCRATCH


def _is_as_fast(group: Group) -> bool:
    """Is IREE's own code as fast: a sum of rows without a rest, or one reduction of 16-bit numbers and no function of them
    (RMS norm: 0.9 to 1.2 of ours)?"""
    if sum(reduces(op) for op in group.ops) > 1 or any(inner.name in POLYNOMIALS for op in group.ops for inner in walk(op)):
        return False
    kinds = [kind for op in group.ops for kind in map(tensor_type, op.operands) if kind is not None]
    if any(kind.element_type.width == 16 for kind in kinds):
        return True
    shape, [*before, _] = op_shape(group.ops[0]), list(walk(group.ops[0]))
    size = shape.sizes[-1] if shape is not None else None
    is_whole = size is not None and size % LEAST_POINTS == 0
    return len(group.ops) == 1 and [op.name for op in before] == ["arith.addf"] and is_whole


def _is_constant(value: Any) -> bool:
    producer = functions.defining_op(value)
    return producer is not None and is_constant(producer)


def _rows(ops: Iterable[Any]) -> int:
    """Over how many loops the rows are: those of the first reduction that it leaves."""
    shapes = [op_shape(op) for op in ops]
    return next((len(shape.parallel) for shape in shapes if shape is not None and shape.reductions), 0)


def _row_loops(ops: Sequence[Any]) -> dict[Any, tuple[int, ...]] | None:
    """For each tensor that ``ops`` read and write, the loops over rows that its first dimensions follow; None where other
    loops are reduced, or where some tensor holds no row in one piece, or is read in two ways."""
    count = _rows(ops)
    found: dict[Any, tuple[int, ...]] = {}
    for op in reversed(ops):  # a fill is what the op that follows makes of it
        values: list[tuple[Any, tuple[int, ...] | None]]
        if op.name == "linalg.fill":
            values = [(op.operands[1], found.get(op.results[0], ()))]
        else:
            shape = op_shape(op)
            assert shape is not None
            if shape.reductions and shape.parallel != tuple(range(count)):
                return None
            leading = [_leading(dims, count) for dims in shape.dims]
            values = list(zip((*op.operands, op.results[0]), [*leading, leading[-1]], strict=True))
        for value, loops in values:
            if loops is None or (tensor_type(value) is not None and found.setdefault(value, loops) != loops):
                return None
    return found


def _leading(dims: Sequence[int | None], count: int) -> tuple[int, ...] | None:
    """The loops below ``count`` that the first of ``dims`` are; None if a later one is such a loop, or none at all."""
    first = tuple(d for d in itertools.takewhile(lambda d: d is not None and d < count, dims) if d is not None)
    return first if all(d is not None and d >= count for d in dims[len(first) :]) else None


# ----------------------------------------------------------------------------------------------------------------- one row


@dataclass(frozen=True)
class OneRow(PythonPass):
    """Before: kernel functions with ``mlirstack.rows``.  After: the same over one row; dimensions over rows are 1, and what
    is known of the number of rows is gone::

        func.func private @k(%x: tensor<?x64xf32>, %w: tensor<64xf32>, %rows: index, %out: tensor<?x64xf32>)
        →  func.func private @k(%x: tensor<1x64xf32>, %w: tensor<64xf32>, %out: tensor<1x64xf32>)
    """

    name = "mlirstack-iree-one-row"

    def apply(self, module: Any) -> None:
        for kernel in [f for f in functions_of(module) if ROWS in f.attributes]:
            ops = [op.operation for op in kernel.regions[0].blocks[0].operations]
            loops = _row_loops([op for op in ops if op.name.startswith("linalg.")])
            assert loops is not None
            _narrow(kernel, ops, loops)


def _narrow(kernel: Any, ops: Sequence[Any], loops: Mapping[Any, tuple[int, ...]]) -> None:
    for value, leading in loops.items():
        kind = ir.RankedTensorType(value.type)
        sizes = [1] * len(leading) + [kind.get_dim_size(axis) for axis in range(len(leading), kind.rank)]
        value.set_type(ir.RankedTensorType.get(sizes, kind.element_type))
    for op in ops:
        if op.name == "tensor.empty" and len(op.operands):
            with ir.InsertionPoint(op), op.location:
                static = dialect("tensor").EmptyOp(list(op.results[0].type.shape), op.results[0].type.element_type)
            op.results[0].replace_all_uses_with(static.result)
            op.erase()
    block = kernel.regions[0].blocks[0]
    given = list(ir.ArrayAttr(kernel.attributes[ROWS]))
    for number in reversed(range(len(block.arguments))):
        argument = block.arguments[number]
        if tensor_type(argument) is None:
            if any(True for _ in argument.uses):
                raise StageError(f"kernel '{functions.name_of(kernel)}' computes with a number of rows", stage="rows")
            block.erase_argument(number)
            del given[number]
    kernel.attributes[ROWS] = ir.ArrayAttr.get(given)
    results = [value.type for value in functions.return_op(kernel).operands]
    functions.set_type(kernel, [argument.type for argument in block.arguments], results)
