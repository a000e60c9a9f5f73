"""Scalar arithmetic of the host, from ops of the arith dialect to expressions of the launch plan."""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes.cuda.plan import Expr
from mlirstack.passes.cuda.plan_views import fold

# Sizes are never negative: signed and unsigned division are the same.
_BINARY = {
    "arith.addi": "add", "arith.subi": "sub", "arith.muli": "mul", "arith.divsi": "floordiv", "arith.divui": "floordiv",
    "arith.floordivsi": "floordiv", "arith.ceildivsi": "ceildiv", "arith.ceildivui": "ceildiv", "arith.remsi": "mod",
    "arith.remui": "mod", "arith.minsi": "min", "arith.minui": "min", "arith.maxsi": "max", "arith.maxui": "max",
    "arith.andi": "and", "arith.ori": "or",
}  # fmt: skip
# Python's numbers have no width.
_SAME = (
    "arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui", "arith.trunci", "arith.extf", "arith.truncf",
    "arith.sitofp",
)  # fmt: skip
_PREDICATES = {
    "eq": "eq", "ne": "ne", "slt": "lt", "sle": "le", "sgt": "gt", "sge": "ge", "ult": "lt", "ule": "le", "ugt": "gt",
    "uge": "ge",
}  # fmt: skip


def constant_number(op: Any) -> int | float | None:
    """The value of an ``arith.constant``; None where it is no number."""
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.BoolAttr):
        return int(attribute.value)
    if isinstance(attribute, ir.IntegerAttr):
        return int(attribute.value)
    return float(attribute.value) if isinstance(attribute, ir.FloatAttr) else None


def expression(op: Any, operands: list[Any]) -> Expr | float | None:
    """What an op computes from host numbers; None where the host has no such operation."""
    name = op.name
    if name in _SAME:
        return operands[0]
    if any(isinstance(operand, float) for operand in operands):
        return None
    if name in _BINARY:
        return fold(_BINARY[name], *operands)
    if name == "arith.select":
        return fold("select", *operands)
    if name == "arith.xori" and str(op.results[0].type) == "i1":
        return fold("ne", *operands)
    if name == "arith.cmpi":
        arith = dialect("arith")
        predicate = arith.CmpIPredicate(ir.IntegerAttr(op.attributes["predicate"]).value)
        return fold(_PREDICATES[predicate.name], *operands)
    return None
