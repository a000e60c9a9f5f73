"""Locations of equal functions, brought together before one of them stands for all.

Repeated layers become one kernel; what is left must still know all the lines of the model that it computes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.locations import fused_location
from mlirstack.ir.ops import functions, walk
from mlirstack.ir.text import module_text
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class ShareLocations(PythonPass):
    """Before: any functions.  After: the same, and in functions that are equal but for their name and their locations each
    operation has the locations of its twins as well, so that duplicate-function-elimination loses none."""

    name = "mlirstack-share-locations"

    def apply(self, module: Any) -> None:
        equal: dict[str, list[Any]] = defaultdict(list)
        for function in functions(module):
            equal[_without_name(function)].append(function)
        for twins in equal.values():
            if len(twins) > 1:
                _share(twins, module.context)


def _without_name(function: Any) -> str:
    """The text of ``function`` under a name that all functions have here; constants are compared as they are printed."""
    name = function.attributes["sym_name"]
    function.attributes["sym_name"] = ir.StringAttr.get("")
    text = module_text(function, elide=False, generic=True, local=True)
    function.attributes["sym_name"] = name
    return text


def _share(twins: list[Any], context: Any) -> None:
    for together in zip(*([twin.operation, *walk(twin)] for twin in twins), strict=True):
        location = fused_location((op.location for op in together), context)
        for op in together:
            op.location = location
