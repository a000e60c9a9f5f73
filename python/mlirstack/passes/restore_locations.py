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

_FUNCTIONS = ("func.func", "llvm.func")
_TENSOR_OPS = ("linalg.", "tensor.")


@dataclass(frozen=True)
class RestoreLocations(PythonPass):
    """Before: any module.  After: the same, and an operation whose location names no file has that of the operations that
    use its results, else of those that make its operands, else of the operation around it.

    What depends on nothing (constants, empty tensors, tensors filled with a constant) is shared, moved and copied at will:
    its location always is that of its users, whatever it was before.  Nothing but locations is changed.
    """

    name = "mlirstack-restore-locations"

    def apply(self, module: Any) -> None:
        origins = OriginCache()
        operations = list(walk(module))
        floating = _floating(operations)
        lost = [op for op in operations if op not in floating and not origins(op)]
        _restore(lost, module.context)
        for op in reversed(list(floating)):
            users = [at for at in _of_users(op) if origins.of(at)]
            if users or not origins(op):
                op.location = fused_location(users or _of_parent(op), module.context)
                for inner in walk(op) if op.regions else ():
                    inner.location = op.location


def _floating(operations: list[Any]) -> dict[Any, None]:
    """The operations that depend on nothing, in order."""
    found: dict[Any, None] = {}
    for op in operations:
        if not op.results or (op.regions and not op.name.startswith("linalg.")):
            continue
        made = [value.owner for value in op.operands if isinstance(value, ir.OpResult)]
        depends = len(made) < len(op.operands) or not all(maker in found for maker in made)
        if op.name == "linalg.fill":  # whatever it fills, an output of a kernel too
            depends = not made or made[0] not in found
        if not op.operands or (not depends and op.name.startswith(_TENSOR_OPS)):
            found[op] = None
    return found


def _restore(lost: list[Any], context: Any) -> None:
    unknown = ir.Location.unknown(context)
    for op in lost:
        op.location = unknown
    for find in (_of_users, _of_operands, _of_parent):
        order = reversed(lost) if find is _of_users else lost  # users come later, operands and parents earlier
        for op in order:
            if op.location == unknown:
                op.location = fused_location((at for at in find(op) if at != unknown), context)


def _of_users(op: Any) -> list[Any]:
    if op.name in _FUNCTIONS:  # what a pass adds as a helper is there for its callers
        name = ir.StringAttr(op.attributes["sym_name"]).value
        calls = (other for other in walk(op.parent) if "callee" in other.attributes)
        return [call.location for call in calls if ir.FlatSymbolRefAttr(call.attributes["callee"]).value == name]
    return [use.owner.operation.location for result in op.results for use in result.uses]


def _of_operands(op: Any) -> list[Any]:
    return [value.owner.location for value in op.operands if isinstance(value, ir.OpResult)]


def _of_parent(op: Any) -> list[Any]:
    parent = op.parent
    return [] if parent is None else [parent.operation.location]
