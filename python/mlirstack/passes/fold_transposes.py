"""Transposes in front of matrix products, folded into the way the product reads its factors.

A weight of a linear layer is stored as ``[N, K]`` and arrives as a transpose and a product with ``[K, N]``.  Hardware reads
either layout; the copy of the weight, and the time and memory that it takes, are for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.kernel_class import op_shape
from mlirstack.passes.regions import static_elements, tensor_type
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class FoldTransposes(PythonPass):
    """Before and after: linalg on tensors.  A factor of a ``linalg.matmul`` or ``linalg.batch_matmul`` that is the transpose
    of a matrix, be it as a batch of one or one of each batch and head, is that matrix, read through another indexing map; so
    is any permuted factor of a product written as ``linalg.generic``.

    ::

        %t = linalg.transpose %w [1, 0]              →      linalg.matmul indexing_maps = [(m, k), (n, k), (m, n)]
        linalg.matmul ins(%x, %t)                               ins(%x, %w)
    """

    name = "mlirstack-fold-transposes"

    def apply(self, module: Any) -> None:
        for op in walk(module):
            is_named = op.name in ("linalg.matmul", "linalg.batch_matmul")
            if is_named or (op.name == "linalg.generic" and _is_product(op)):
                for position in (0, 1):
                    _fold(op, position, only_matrices=is_named)


def _is_product(op: Any) -> bool:
    """Two factors, all operands read and written at plain loop indices, and a reduction."""
    shape = op_shape(op)
    return shape is not None and len(shape.dims) == 3 and bool(shape.reductions) and all(None not in d for d in shape.dims)


def _fold(op: Any, position: int, *, only_matrices: bool) -> None:
    value = op.operands[position]
    expansion = functions.defining_op(value)
    if expansion is not None and expansion.name == "tensor.expand_shape" and _adds_a_batch(expansion):
        value = expansion.operands[0]
    else:
        expansion = None
    permuted = _permutation(functions.defining_op(value)) or _permutation_below_batches(op, value)
    if permuted is None:
        return
    source, order = permuted
    if expansion is not None:
        order = [0, *(axis + 1 for axis in order)]
        with ir.InsertionPoint(op), op.location:
            source = _as_batch(source)
    if only_matrices and order not in ([1, 0], [0, 2, 1]):
        return
    maps = list(dialect("linalg").get_indexing_maps(op))
    read = ir.AffineMapAttr(maps[position]).value
    # Axis i of the transpose is axis order[i] of its source.
    results = [read.results[order.index(axis)] for axis in range(len(order))]
    maps[position] = ir.AffineMapAttr.get(ir.AffineMap.get(read.n_dims, 0, results))
    op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)
    op.operands[position] = source


def _permutation_below_batches(op: Any, value: Any) -> tuple[Any, list[int]] | None:
    """Source and order where ``value`` is matrices turned one by one, their batch axes then made one: the source gets one
    batch axis too."""
    merge = functions.defining_op(value)
    if merge is None or merge.name != "tensor.collapse_shape":
        return None
    permuted = _permutation(functions.defining_op(merge.operands[0]))
    if permuted is None:
        return None
    source, order = permuted
    kind = ir.RankedTensorType(source.type)
    last = kind.rank - 1
    groups = [[functions.integer(axis) for axis in group] for group in ir.ArrayAttr(merge.attributes["reassociation"])]
    batches = list(range(last - 1))
    if order != [*batches, last, last - 1] or groups != [batches, [last - 1], [last]]:
        return None
    sizes = [ir.RankedTensorType(value.type).shape[0], *kind.shape[-2:]]
    with ir.InsertionPoint(op), op.location:
        merged = ir.RankedTensorType.get(sizes, kind.element_type)
        return dialect("tensor").CollapseShapeOp(merged, source, groups).result, [0, 2, 1]


def _adds_a_batch(expansion: Any) -> bool:
    """Is it ``[a, b]`` seen as ``[1, a, b]``?"""
    before, after = (tensor_type(value) for value in (expansion.operands[0], expansion.results[0]))
    return before is not None and after is not None and before.rank == 2 and after.rank == 3 and after.shape[0] == 1


def _as_batch(matrix: Any) -> Any:
    kind = ir.RankedTensorType(matrix.type)
    batch = ir.RankedTensorType.get([1, *kind.shape], kind.element_type)
    return dialect("tensor").ExpandShapeOp(batch, matrix, [[0, 1], [2]], [], [1, *kind.shape]).result


def _permutation(op: Any | None) -> tuple[Any, list[int]] | None:
    """Source and order of a transpose of static shape, as a named op or as a generic one; None for anything else."""
    if op is None or len(op.results) != 1 or static_elements(op.results[0]) is None:
        return None
    if op.name == "linalg.transpose":
        return op.operands[0], list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
    shape = op_shape(op) if op.name == "linalg.generic" else None
    if shape is None or len(shape.dims) != 2 or shape.reductions:
        return None
    read, written = shape.dims
    body = op.regions[0].blocks[0]
    is_copy = functions.yield_op(body).operands[0] == body.arguments[0]
    if not is_copy or sorted(d for d in read if d is not None) != list(range(len(written))) or None in written:
        return None
    return op.operands[0], [read.index(loop) for loop in written]
