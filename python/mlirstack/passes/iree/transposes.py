"""What an op with several results gives, held apart from a transpose when a program is handed to IREE.

IREE 3.13 lets an op that a transpose reads give its result transposed.  Of an op with several results, as a maximum with its
place, it forgets the others: it refuses its own code ("expected number of yield values (2) to match the number of inits /
outs operands of the enclosing LinalgOp (1)"), or dies (SIGSEGV).
"""

from __future__ import annotations

from typing import Any

from mlirstack.ir.ops import walk
from mlirstack.passes.iree.readings import hold, leads_to


def hold_transposed_results(module: Any) -> None:
    """Before: a transpose, be it behind elementwise ops and reshapes, reads an op with several results.  After: what it
    reads is behind a barrier::

        %place, %largest = generic …          →    %place, %largest = generic …
        linalg.transpose ins(%place)               %held = util.optimization_barrier %place
                                                   linalg.transpose ins(%held)
    """
    for op in walk(module):
        if op.name == "linalg.generic" and len(op.results) > 1:
            for value in [value for value in op.results if leads_to(value, "linalg.transpose")]:
                hold(value)
