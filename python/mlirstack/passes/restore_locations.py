"""Locations for operations that a pass has left without one.

MLIR's folder drops the location of every constant that it moves or shares, and some conversions create helper operations
with none.  Such an operation has a place in the user's program all the same: it is there for the operations that use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.locations import OriginCache, fused_location
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class RestoreLocations(PythonPass):
    """Before: any module.  After: the same, and an operation whose location names no file has that of the operations that
    use its results, else of those that make its operands, else of the operation around it.

    Nothing but locations is changed.
    """

    name = "mlirstack-restore-locations"

    def apply(self, module: Any) -> None:
        origins = OriginCache()
        lost = [op for op in walk(module) if not origins(op)]
        unknown = ir.Location.unknown(module.context)
        for op in lost:
            op.location = unknown
        for find in (_of_users, _of_operands, _of_parent):
            order = reversed(lost) if find is _of_users else lost  # users come later, operands and parents earlier
            for op in order:
                if op.location == unknown:
                    op.location = fused_location((at for at in find(op) if at != unknown), module.context)


def _of_users(op: Any) -> list[Any]:
    return [use.owner.operation.location for result in op.results for use in result.uses]


def _of_operands(op: Any) -> list[Any]:
    return [value.owner.location for value in op.operands if isinstance(value, ir.OpResult)]


def _of_parent(op: Any) -> list[Any]:
    parent = op.parent
    return [] if parent is None else [parent.operation.location]
