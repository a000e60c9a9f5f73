"""Single elements that are joined with others, held apart from what they are picked from when a program is handed to IREE.

IREE 3.13 makes a slice without dimensions of one that picks a single element and is given further ones of size 1, or is so
once a reshape of the joined tensor has come before it.  Where that is joined with others along the first of them, it cannot
take it up again ("expected rank to be smaller or equal to the other rank").
"""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op
from mlirstack.passes.iree.readings import RESHAPES, hold, leads_to


def hold_joined_elements(module: Any) -> None:
    """Before: a slice of one element is joined with others, and reshaped before or after.  After: it is a copy::

    %x = tensor.extract_slice %a[3] [1] [1]                   …
    %y = tensor.expand_shape %x into tensor<1x1xf32>    →     %held = util.optimization_barrier %y
    tensor.concat dim(0) %y, %b                               tensor.concat dim(0) %held, %b
    """
    joins = [op for op in walk(module) if op.name == "tensor.concat"]
    picked = [(value, op.results[0]) for op in joins for value in op.operands if _is_picked(value)]
    for value in dict.fromkeys(value for value, joined in picked if _is_reshaped(value, joined)):
        hold(value)


def _is_reshaped(value: Any, joined: Any) -> bool:
    op = defining_op(value)
    return (op is not None and op.name in RESHAPES) or leads_to(joined, "tensor.expand_shape")


def _is_picked(value: Any) -> bool:
    """Is it a slice of one element, reshaped or not?"""
    kind = ir.RankedTensorType(value.type)
    if not kind.has_static_shape or {*kind.shape} != {1}:
        return False
    op = defining_op(value)
    while op is not None and op.name in (*RESHAPES, "tensor.cast"):
        op = defining_op(op.operands[0])
    return op is not None and op.name == "tensor.extract_slice"
