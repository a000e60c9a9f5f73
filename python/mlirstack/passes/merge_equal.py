"""One function for all that are equal: repeated layers become one kernel, which is compiled once.

What is left still knows all the lines of the model that it computes.  MLIR's own pass compares functions pairwise and drops
the locations of all but one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.locations import fused_location
from mlirstack.ir.ops import functions, walk
from mlirstack.ir.text import module_text
from mlirstack.passes.functions import is_private, name_of
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class MergeEqual(PythonPass):
    """Before: any functions.  After: of private functions that are equal but for their name and their locations the first is
    left, and called in place of the others; each operation has the locations of its twins as well."""

    name = "mlirstack-merge-equal"

    def apply(self, module: Any) -> None:
        equal: dict[str, list[Any]] = defaultdict(list)
        for function in functions(module):
            if is_private(function):
                equal[_without_name(function)].append(function)
        kept: dict[str, Any] = {}  # name of a function that goes → reference to the one that stays
        for first, *others in equal.values():
            if others:
                _share_locations([first, *others], module.context)
                kept |= dict.fromkeys(map(name_of, others), ir.FlatSymbolRefAttr.get(name_of(first)))
                for other in others:
                    other.operation.erase()
        if kept:
            _redirect_calls(module, kept)


def _without_name(function: Any) -> str:
    """The text of ``function`` under a name that all functions have here; constants are compared as they are printed."""
    name = function.attributes["sym_name"]
    function.attributes["sym_name"] = ir.StringAttr.get("")
    text = module_text(function, elide=False, generic=True, local=True)
    function.attributes["sym_name"] = name
    return text


def _share_locations(twins: list[Any], context: Any) -> None:
    first, *others = ([twin.operation, *walk(twin)] for twin in twins)
    for op, *together in zip(first, *others, strict=True):
        op.location = fused_location((one.location for one in (op, *together)), context)


def _redirect_calls(module: Any, kept: dict[str, Any]) -> None:
    for op in walk(module):
        if "callee" in op.attributes:
            reference = kept.get(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
            if reference is not None:
                op.attributes["callee"] = reference
