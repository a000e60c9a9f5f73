"""Which class of kernel a linalg op belongs to, read off its loops, indexing maps and body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir import kernels
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.regions import tensor_type


@dataclass(frozen=True)
class OpShape:
    """The loops of one linalg op: per operand the loop that indexes each dimension (None: an expression), the sizes of the
    loops, and which are reductions."""

    dims: tuple[tuple[int | None, ...], ...]
    sizes: tuple[int | None, ...]
    reductions: tuple[int, ...]

    @property
    def parallel(self) -> tuple[int, ...]:
        """The loops that are not reductions."""
        return tuple(d for d in range(len(self.sizes)) if d not in self.reductions)


def op_shape(op: Any) -> OpShape | None:
    """The loops of a structured linalg op on tensors with one result; None for anything else."""
    maps = dialect("linalg").get_indexing_maps(op) if op.name.startswith("linalg.") else None
    if maps is None or len(op.results) != 1:
        return None
    parsed = [ir.AffineMapAttr(m).value for m in maps]
    dims = tuple(tuple(_dim(e) for e in m.results) for m in parsed)
    sizes: list[int | None] = [None] * parsed[0].n_dims
    for value, of_operand in zip(op.operands, dims, strict=False):
        kind = tensor_type(value)
        for position, dim in enumerate(of_operand):
            if kind is not None and dim is not None and not kind.is_dynamic_dim(position):
                sizes[dim] = kind.get_dim_size(position)
    written = set(dims[-1])
    return OpShape(dims, tuple(sizes), tuple(d for d in range(len(sizes)) if d not in written))


def _dim(expression: Any) -> int | None:
    return expression.position if isinstance(expression, ir.AffineDimExpr) else None


def kernel_class(op: Any, *, any_scalar: bool = False, any_size: bool = False) -> str:
    """One of the classes of :mod:`mlirstack.ir.kernels` for a linalg op; "other" where no schedule can say more.

    ``any_scalar``: booleans and loop indices in a body are no obstacle; ``any_size``: nor are dynamic sizes.
    """
    shape = op_shape(op)
    if shape is None or (None in shape.sizes and not any_size) or 0 in shape.sizes or None in shape.dims[-1]:
        return kernels.OTHER
    if not (is_scalar_body(op) if any_scalar else _is_plain_body(op)):
        return kernels.OTHER
    is_plain = all(None not in dims and len(set(dims)) == len(dims) for dims in shape.dims)
    if not shape.reductions:
        return kernels.ELEMENTWISE if is_plain else kernels.OTHER
    if multiplies_and_adds(op) and len(shape.dims) == 3:
        return kernels.CONTRACTION if is_plain else kernels.CONVOLUTION
    return kernels.REDUCTION if is_plain else kernels.POOLING


def _is_plain_body(op: Any) -> bool:
    """Scalar arithmetic on numbers of whole bytes; a tensor of booleans takes a byte an element, a vector of them a bit."""
    for value in (*op.operands, *op.results):
        kind = value.type.element_type if isinstance(value.type, ir.ShapedType) else value.type
        if not isinstance(kind, (ir.IntegerType, ir.FloatType)) or kind.width % 8:
            return False
    return all(
        inner.name.split(".", 1)[0] in ("arith", "math", "linalg") and inner.name != "linalg.index" for inner in walk(op)
    )


def is_scalar_body(op: Any) -> bool:
    """Scalar arithmetic of any kind: no reads of memory, no control flow, no complex numbers?"""
    return all(inner.name.split(".", 1)[0] in ("arith", "math", "linalg") for inner in walk(op))


def multiplies_and_adds(op: Any) -> bool:
    """Is the body ``out + a * b``, with casts?"""
    add = functions.defining_op(functions.yield_op(op.regions[0].blocks[0]).operands[0])
    if add is None or add.name not in ("arith.addf", "arith.addi"):
        return False
    producers = [functions.defining_op(operand) for operand in add.operands]
    return any(p is not None and p.name in ("arith.mulf", "arith.muli") for p in producers)
