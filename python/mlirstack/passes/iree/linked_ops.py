"""What ops kernels for processors are made of: elementwise ops and reductions, of nothing that would be a call.

IREE links no library, so what has no instruction, and no polynomial of ours, has to stay with IREE.
"""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.passes.kernel_class import is_scalar_body, multiplies_and_adds
from mlirstack.passes.polynomials import POLYNOMIALS
from mlirstack.passes.regions import is_constant

RESHAPES = frozenset({"tensor.expand_shape", "tensor.collapse_shape"})
_INSTRUCTIONS = frozenset({"absf", "absi", "ceil", "copysign", "floor", "fma", "roundeven", "rsqrt", "sqrt", "trunc"})
_EXPONENTS = (0.5, 1.0, 2.0, 3.0, 4.0)  # that powers are multiplied out for
_CALLS = frozenset({"arith.remf"})


def is_row_op(op: Any) -> bool:
    """Is it elementwise or a reduction, every operand read in the order of the loops, or a unit dimension more or less?"""
    if op.name in RESHAPES:
        before, after = (ir.RankedTensorType(value.type) for value in (op.operands[0], op.results[0]))
        return _without_ones(before) == _without_ones(after)
    maps = dialect("linalg").get_indexing_maps(op) if op.name.startswith("linalg.") and op.name != "linalg.fill" else None
    if maps is None or not is_scalar_body(op):
        return False
    if any(not _is_in_order(ir.AffineMapAttr(m).value) for m in maps):
        return False
    return not (reduces(op) and multiplies_and_adds(op))


def _without_ones(kind: Any) -> list[int]:
    sizes = [-1 if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank)]
    return [size for size in sizes if size != 1]


def _is_in_order(indexing: Any) -> bool:
    """Loops, each once and in their order, and constants?"""
    loops = [e.position for e in indexing.results if isinstance(e, ir.AffineDimExpr)]
    plain = all(isinstance(e, (ir.AffineDimExpr, ir.AffineConstantExpr)) for e in indexing.results)
    return plain and loops == sorted(set(loops))


def reduces(op: Any) -> bool:
    """Is it a linalg op with loops that its result does not have?"""
    if not op.name.startswith("linalg."):
        return False
    *_, written = (ir.AffineMapAttr(m).value for m in dialect("linalg").get_indexing_maps(op))
    return len([e for e in written.results if isinstance(e, ir.AffineDimExpr)]) < written.n_dims


def is_instruction(op: Any, on_vectors: bool) -> bool:
    """Is a scalar op of a body one that processors have, or one of our polynomials, which are ``on_vectors`` alone?"""
    if op.name in _CALLS:
        return False
    if not op.name.startswith("math."):
        return True
    if op.name == "math.powf":
        producer = functions.defining_op(op.operands[1])
        return (
            producer is not None and is_constant(producer) and ir.FloatAttr(producer.attributes["value"]).value in _EXPONENTS
        )
    is_polynomial = op.name in POLYNOMIALS and on_vectors and op.results[0].type.width <= 32
    return is_polynomial or op.name.removeprefix("math.") in _INSTRUCTIONS
