"""NaN that is known when a program is handed to IREE, kept from being computed with ahead.

IREE 3.13 takes exponentials from the whole part of their operand as an integer.  LLVM has none for NaN: where it knows the
operand, as in a mean of nothing that goes on through ``logsigmoid``, what is left is any number, as zero.
"""

from __future__ import annotations

import math
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.passes.iree.readings import barrier

# These give NaN as it is, or look at it.
_UNCHANGED = frozenset({"arith.select", "arith.cmpf", "linalg.yield", "func.return"})


def hold_nans(module: Any) -> None:
    """Before: ops compute with a constant that is NaN everywhere.  After: with one behind a barrier::

    %nan = arith.constant 0x7FC00000 : f32      →      %nan = arith.constant 0x7FC00000 : f32
    generic ins(%x) { addf %in, %nan }                 %held = util.optimization_barrier %nan
                                                       generic ins(%x) { addf %in, %held }
    """
    for op in walk(module):
        if op.name == "arith.constant" and _is_nan(op.attributes["value"]):
            value = op.results[0]
            if {use.owner.name for use in value.uses} <= _UNCHANGED:
                continue
            with ir.InsertionPoint.after(op), op.location:
                passed = barrier(value)
            value.replace_all_uses_except(passed.result, [passed])


def _is_nan(attribute: Any) -> bool:
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat:
            return False
        attribute = attribute.get_splat_value()
    return isinstance(attribute, ir.FloatAttr) and math.isnan(attribute.value)
