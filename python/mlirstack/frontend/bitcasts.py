"""``x.view(dtype)`` between dtypes of one size: the same bits read as another type, which torch-mlir has no lowering for.

The decompositions of :mod:`mlirstack.frontend.decompositions.bits` bring all else that looks at bits to this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir
from mlirstack.frontend.reshapes import builtin_type, from_builtin, to_builtin
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
    arith, linalg, tensor = dialect("arith"), dialect("linalg"), dialect("tensor")
    kind = ir.RankedTensorType.get(list(source.type.shape), element)
    sizes = [
        tensor.DimOp(source, arith.ConstantOp(ir.IndexType.get(), axis).result).result
        for axis in range(kind.rank)
        if kind.is_dynamic_dim(axis)
    ]
    dynamic = ir.ShapedType.get_dynamic_size()
    shape = [None if size == dynamic else size for size in kind.shape]
    given = iter(sizes)
    empty = tensor.EmptyOp([next(given) if size is None else size for size in shape], element).result
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    parallel = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * kind.rank)
    op = linalg.GenericOp([kind], [source], [empty], ir.ArrayAttr.get([identity, identity]), parallel)
    body = op.regions[0].blocks.append(source.type.element_type, element, arg_locs=[op.location] * 2)
    with ir.InsertionPoint(body):
        linalg.YieldOp([arith.BitcastOp(element, body.arguments[0]).result])
    return op.results[0]
