"""An op over memrefs as loops over scalars, in a function of its own: what a single thread runs in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import PassManager, dialect, ir
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
