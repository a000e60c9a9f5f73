"""An op over memrefs as loops over scalars, in a function of its own: what a thread runs in order.

Scans, sorts and scatters have an order along one axis only; :func:`parallel_axes` says which loops can be threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import PassManager, dialect, ir
from mlirstack.passes import functions
from mlirstack.passes.regions import clone_with, external_values

_PASSES = (
    "tm-tensor-to-loops",
    "refback-munge-memref-copy",
    "convert-linalg-to-loops",
    "fold-memref-alias-ops",
    "canonicalize",
    "cse",
)


@dataclass(frozen=True)
class Loops:
    """``operations`` use ``arguments``, one for each external value of the op they came from, in that order."""

    module: Any  # keeps the operations alive
    arguments: list[Any]
    operations: list[Any]

    @property
    def nest(self) -> list[Any]:
        """The perfect nest of loops that the op became, outermost first."""
        return nest_of(self.operations)


def nest_of(operations: Sequence[Any]) -> list[Any]:
    """The loops among ``operations`` that stand in each other with nothing beside them, outermost first."""
    nest: list[Any] = []
    inside = list(operations)
    while True:
        loops = [op for op in inside if op.name == "scf.for"]
        if len(loops) != 1 or (nest and len(inside) > 1):
            return nest
        nest.append(loops[0])
        inside = [op.operation for op in loops[0].regions[0].blocks[0].operations][:-1]


def parallel_axes(op: Any) -> list[int]:
    """Axes of the first operand along which the order does not matter to a ``tm_tensor`` op; none for other ops."""
    if not op.name.startswith("tm_tensor.") or not isinstance(op.operands[0].type, ir.MemRefType):
        return []
    axes = list(range(ir.MemRefType(op.operands[0].type).rank))
    if op.name == "tm_tensor.scatter":
        # Of the updates, two may go to one place; their elements do not.
        return axes if functions.integer(op.attributes["unique_indices"]) else axes[1:]
    if "dimension" in op.attributes:
        return [axis for axis in axes if axis != functions.integer(op.attributes["dimension"])]
    return []


def loop_of_axis(op: Any, axis: int) -> int | None:
    """The loop of an axis in the nest of a ``tm_tensor`` op, where an axis of size 1 has none."""
    kind = ir.MemRefType(op.operands[0].type)
    is_unit = [not kind.is_dynamic_dim(i) and kind.get_dim_size(i) == 1 for i in range(kind.rank)]
    return None if is_unit[axis] else axis - sum(is_unit[:axis])


def as_loops(op: Any) -> Loops:
    """``op`` lowered to scf loops with loads and stores; it stays where it is."""
    outside = external_values(op)
    with op.location:
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = dialect("func").FuncOp("loops", ([value.type for value in outside], []))
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            clone_with(op, dict(zip(outside, block.arguments, strict=True)))
            dialect("func").ReturnOp([])
    PassManager.parse(f"builtin.module(func.func({','.join(_PASSES)}),lower-affine)").run(module.operation)
    operations = [inner.operation for inner in list(block.operations)[:-1]]
    return Loops(module, list(block.arguments), operations)
