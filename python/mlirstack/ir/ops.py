"""Walking a module: op counts, dialects, functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from mlirstack.bindings import ir


def walk(operation: Any) -> Iterator[Any]:
    """All operations below ``operation``, itself excluded, in program order (a snapshot: they may be erased meanwhile)."""
    found: list[Any] = []
    append, advance = found.append, ir.WalkResult.ADVANCE  # looked up once for all of them

    def visit(op: Any) -> Any:
        append(op)
        return advance

    operation.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return iter(found[1:])


def op_counts(module: Any) -> dict[str, int]:
    """``{op name: count}`` over the whole module, the module op itself excluded, most frequent first."""
    return dict(Counter(op.name for op in walk(module)).most_common())


def first_op(module: Any, predicate: Callable[[Any], bool]) -> Any | None:
    """The first op for which ``predicate`` holds, or None."""
    return next((op for op in walk(module) if predicate(op)), None)


def is_onnx(op: Any) -> bool:
    """Is ``op`` an operator of ONNX, held by the torch dialect?"""
    return op.name == "torch.operator" and ir.StringAttr(op.attributes["name"]).value.startswith("onnx.")


def functions(module: Any) -> Iterator[Any]:
    """The func.func operations at the top of ``module``."""
    for op in module.body.operations:
        if op.operation.name == "func.func":
            yield op


def function(module: Any, name: str) -> Any:
    """The func.func named ``name``; KeyError if there is none."""
    for op in functions(module):
        if ir.StringAttr(op.attributes["sym_name"]).value == name:
            return op
    raise KeyError(name)
