"""What sorts give, held apart from a larger tensor that it is put into when a program is handed to IREE.

IREE 3.13 lets a sort write its places straight to where they go, computes the keys in the same dispatch, and then refuses
its own code ("write affecting operations on global resources are restricted to workgroup distributed contexts").
"""

from __future__ import annotations

from typing import Any

from mlirstack.ir.ops import walk
from mlirstack.passes.iree.readings import hold

_SORT = "tm_tensor.sort"
_LARGER = ("tensor.pad", "tensor.insert_slice")


def hold_sorted_values(module: Any) -> None:
    """Before: a result of a sort is padded, or put into another tensor.  After: behind a barrier::

    %keys, %places = tm_tensor.sort …      →      %keys, %places = tm_tensor.sort …
    tensor.pad %places                            %held = util.optimization_barrier %places
                                                  tensor.pad %held
    """
    for op in walk(module):
        if op.name == _SORT:
            for value in op.results:
                if any(use.operand_number == 0 and use.owner.name in _LARGER for use in value.uses):
                    hold(value)
