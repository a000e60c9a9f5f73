"""Broadcasts that TOSA decides at run time, without control flow.

A dynamic size may turn out to be 1, and then stretches: TOSA's lowering asks so with an ``scf.if`` around each operand.  A
launch plan has no branches, and fusion does not see through them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.sizes import origin
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class SettleBroadcasts(PythonPass):
    """Before: linalg on tensors.  After: no ``scf.if`` that stretches a tensor where a size is 1 and else passes it on::

        scf.if (%n == 1) { broadcast %x to %m } else { %x }    →    %x if %m is %n, else generic { %x[min(i, %n - 1)] }

    An operand is either of the broadcast's size or of size 1, so that the last position is the right one in both cases.
    """

    name = "mlirstack-settle-broadcasts"

    def apply(self, module: Any) -> None:
        for branch in [op for op in walk(module) if op.name == "scf.if"]:
            stretched = _broadcasts(branch)
            if stretched is None:
                continue
            for result, broadcast in zip(branch.results, stretched, strict=True):
                result.replace_all_uses_with(_settled(branch, broadcast))
            branch.erase()


@dataclass(frozen=True)
class _Broadcast:
    """``source`` stretched along ``axes``; ``generic`` is the op that does it, ``sizes`` those of its result that vary."""

    source: Any
    generic: Any
    axes: tuple[int, ...]
    sizes: dict[int, Any]


def _broadcasts(branch: Any) -> list[_Broadcast] | None:
    """What the results of ``branch`` are; None if it is anything else."""
    condition = functions.defining_op(branch.operands[0])
    if condition is None or condition.name != "arith.cmpi" or len(branch.regions[1].blocks) != 1:
        return None
    yes, no = (list(functions.yield_op(region.blocks[0]).operands) for region in branch.regions)
    found = [_broadcast(stretched, source) for stretched, source in zip(yes, no, strict=True)]
    return [b for b in found if b is not None] if None not in found else None


def _broadcast(stretched: Any, source: Any) -> _Broadcast | None:
    generic = functions.defining_op(stretched)
    if generic is None or generic.name != "linalg.generic" or list(generic.operands)[:1] != [source]:
        return None
    read, written = (ir.AffineMapAttr(m).value for m in dialect("linalg").get_indexing_maps(generic))
    body = generic.regions[0].blocks[0]
    empty = functions.defining_op(generic.operands[1])
    is_copy = functions.yield_op(body).operands[0] == body.arguments[0]
    is_in_order = written == ir.AffineMap.get_identity(written.n_dims)
    if not is_copy or not is_in_order or empty is None or empty.name != "tensor.empty":
        return None
    axes = []
    for axis, expression in enumerate(read.results):
        if isinstance(expression, ir.AffineConstantExpr):
            axes.append(axis)
        elif expression != ir.AffineDimExpr.get(axis):
            return None
    kind = ir.RankedTensorType(generic.results[0].type)
    dynamic = [axis for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
    return _Broadcast(source, generic, tuple(axes), dict(zip(dynamic, empty.operands, strict=True)))


def _settled(branch: Any, broadcast: _Broadcast) -> Any:
    condition: Any = functions.defining_op(branch.operands[0])
    source = origin(condition.operands[0])
    # Sizes that branches before this one have hidden are seen now.
    if all(axis in broadcast.sizes and origin(broadcast.sizes[axis]) == source for axis in broadcast.axes):
        return broadcast.source
    with ir.InsertionPoint(branch), branch.location:
        return _clamped_reads(broadcast)


def _clamped_reads(broadcast: _Broadcast) -> Any:
    """A generic op that reads ``source`` no further than it goes."""
    arith, tensor, index = dialect("arith"), dialect("tensor"), ir.IndexType.get()
    made: Any = functions.defining_op(broadcast.generic.operands[1])
    empty = made.clone().operation
    one = arith.ConstantOp(index, 1).result
    last = {}
    for axis in broadcast.axes:
        size = tensor.DimOp(broadcast.source, arith.ConstantOp(index, axis).result).result
        last[axis] = arith.SubIOp(size, one).result
    kind = ir.RankedTensorType(empty.results[0].type)
    return _generic(kind, empty.results[0], broadcast.source, last)


def _generic(kind: Any, empty: Any, source: Any, last: dict[int, Any]) -> Any:
    arith, linalg, tensor = dialect("arith"), dialect("linalg"), dialect("tensor")
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    parallel = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * kind.rank)
    op = linalg.GenericOp([kind], [], [empty], ir.ArrayAttr.get([identity]), parallel)
    body = op.regions[0].blocks.append(kind.element_type)
    with ir.InsertionPoint(body):
        indices: Sequence[Any] = [linalg.IndexOp(axis).result for axis in range(kind.rank)]
        clamped = [arith.MinUIOp(i, last[axis]).result if axis in last else i for axis, i in enumerate(indices)]
        linalg.YieldOp([tensor.ExtractOp(source, clamped).result])
    return op.results[0]
