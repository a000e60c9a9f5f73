"""Square roots, which TOSA has no operation for: torch-mlir says them as powers of 0.5, and so does a model's ``x ** 0.5``.

Of minus infinity and of -0.0 a power is no square root, which is what eager computes for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class LowerRoots(PythonPass):
    """Before: TOSA.  After: powers of the constants 0.5 and -0.5 are ``math.sqrt`` and ``math.rsqrt`` of tensors."""

    name: ClassVar[str] = "mlirstack-lower-roots"

    def apply(self, module: Any) -> None:
        """Rewrite each such operation."""
        for op in walk(module):
            if op.name != "tosa.pow" or op.operands[0].type != op.results[0].type:
                continue
            function = {0.5: "sqrt", -0.5: "rsqrt"}.get(number_everywhere(op.operands[1]) or 0.0)
            if function is None:
                continue
            with ir.InsertionPoint(op), op.location:
                root = getattr(dialect("math"), function)(op.operands[0])
            op.results[0].replace_all_uses_with(root)
            op.erase()


def number_everywhere(value: Any) -> float | None:
    """The one number that a constant holds everywhere; None where it is no such constant."""
    source = defining_op(value)
    while source is not None and source.name in ("tosa.reshape", "tosa.cast", "tosa.tile"):
        source = defining_op(source.operands[0])
    if source is None or source.name != "tosa.const":
        return None
    values = source.attributes["values"]
    if not isinstance(values, ir.DenseElementsAttr) or not values.is_splat:
        return None
    number = values.get_splat_value()
    return float(number.value) if isinstance(number, ir.FloatAttr) else None
