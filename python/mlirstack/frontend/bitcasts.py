"""``x.view(dtype)`` between dtypes of one size: the same bits read as another type, which torch-mlir has no lowering for.

The decompositions of :mod:`mlirstack.frontend.decompositions.bits` bring all else that looks at bits to this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.frontend.reshapes import builtin_type, from_builtin, to_builtin
from mlirstack.ir.elementwise import elementwise
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class LowerBitcasts(PythonPass):
    """Before: ``torch.aten.view.dtype`` between types of one width.  After: ``arith.bitcast`` of each element, between
    conversions to builtin tensors and back.
    """

    name: ClassVar[str] = "mlirstack-lower-bitcasts"

    def apply(self, module: Any) -> None:
        """Rewrite each such operation."""
        for op in walk(module):
            if op.name != "torch.aten.view.dtype":
                continue
            wanted = builtin_type(op.results[0].type)
            with ir.InsertionPoint(op), op.location:
                source = to_builtin(op.operands[0])
                if source is None or wanted is None or _width(source.type) != _width(wanted):
                    continue
                same = source.type.element_type == wanted.element_type  # signed and unsigned integers
                value = source if same else _bitcast(source, wanted.element_type)
                op.results[0].replace_all_uses_with(from_builtin(value, op.results[0].type))
            op.erase()


def _width(kind: Any) -> int:
    return int(kind.element_type.width)


def _bitcast(source: Any, element: Any) -> Any:
    return elementwise([source], element, lambda value: dialect("arith").BitcastOp(element, value).result)
