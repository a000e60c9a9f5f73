"""Locations for operations that a pass has left without one.

MLIR's folder drops the location of every constant that it moves or shares, and some conversions create helper operations
with none.  Such an operation has a place in the user's program all the same: it is there for the operations that use it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.locations import fused_location, names_a_line
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
        known = _Known()
        operations = list(walk(module))
        lost = [op for op in operations if not known(op.location)]
        if len(lost) == len(operations):  # a program that was not written in files
            return
        floating = _floating(operations)
        neighbours = _Neighbours(operations)
        _restore([op for op in lost if op not in floating], neighbours, module.context)
        for op in reversed(list(floating)):
            users = [at for at in neighbours.users(op) if known(at)]
            if users or not known(op.location):
                op.location = fused_location(users or neighbours.parent(op), module.context)
                for inner in walk(op) if op.regions else ():
                    inner.location = op.location


class _Known:
    """Which locations name a line; a module has many operations, and few locations."""

    def __init__(self) -> None:
        self._known: dict[Any, bool] = {}

    def __call__(self, location: Any) -> bool:
        key = location.attr  # equal locations are equal in Python, but do not hash equal
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = names_a_line(location)
        return known


def _floating(operations: Sequence[Any]) -> dict[Any, None]:
    """The operations that depend on nothing, in order."""
    found: dict[Any, None] = {}
    for op in operations:
        operands, name = op.operands, op.name
        if not len(operands):
            if len(op.results) and (not len(op.regions) or name.startswith("linalg.")):
                found[op] = None
        elif name.startswith(_TENSOR_OPS) and len(op.results):
            # A fill is one whatever it fills, an output of a kernel too.
            decisive = [operands[0]] if name == "linalg.fill" else operands
            if all(isinstance(value, ir.OpResult) and value.owner in found for value in decisive):
                found[op] = None
    return found


def _restore(lost: Sequence[Any], neighbours: _Neighbours, context: Any) -> None:
    unknown = ir.Location.unknown(context)
    for op in lost:
        op.location = unknown
    for find in (neighbours.users, neighbours.operands, neighbours.parent):
        order = reversed(lost) if find == neighbours.users else lost  # users come later, operands and parents earlier
        for op in order:
            if op.location == unknown:
                op.location = fused_location((at for at in find(op) if at != unknown), context)


@dataclass(frozen=True)
class _Neighbours:
    """The locations of what is next to an operation, in a module that holds ``operations``."""

    operations: Sequence[Any]

    def users(self, op: Any) -> list[Any]:
        """Of what reads its results; what a pass adds as a helper function is there for its callers."""
        if op.name in _FUNCTIONS:
            return [call.location for call in self._calls[ir.StringAttr(op.attributes["sym_name"]).value]]
        return [use.owner.operation.location for result in op.results for use in result.uses]

    def operands(self, op: Any) -> list[Any]:
        """Of what makes its operands."""
        return [value.owner.location for value in op.operands if isinstance(value, ir.OpResult)]

    def parent(self, op: Any) -> list[Any]:
        """Of the operation around it."""
        parent = op.parent
        return [] if parent is None else [parent.operation.location]

    @cached_property
    def _calls(self) -> defaultdict[str, list[Any]]:
        """The calls of each function, found in one walk for all functions."""
        found: defaultdict[str, list[Any]] = defaultdict(list)
        for op in self.operations:
            if "callee" in op.attributes:
                found[ir.FlatSymbolRefAttr(op.attributes["callee"]).value].append(op)
        return found
