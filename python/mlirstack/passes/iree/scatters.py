"""Scatters that IREE 3.13 compiles wrong or not at all, in a form that it can when a program is handed to it.

Into a slice of an argument one element is written after the other: IREE computes the slice together with the scatter, which
it distributes where it is said to write to different places, and then refuses its own code ("write affecting operations on
global resources are restricted to workgroup distributed contexts").  Places and what is written there, where both are
constant, pass a barrier: it makes one global of both.
"""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op
from mlirstack.passes.iree.readings import hold, varies

_VIEWS = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast")
_SLICE = "tensor.extract_slice"


def write_slices_in_order(module: Any) -> None:
    """Before: a scatter writes to different places of a slice of an argument.  After: nothing is said of the places::

    tm_tensor.scatter unique_indices(true) … outs(%slice)      →      tm_tensor.scatter unique_indices(false) … outs(%slice)
    """
    for op in walk(module):
        if op.name == "tm_tensor.scatter" and _is_slice_of_argument(op.operands[len(op.operands) - 1]):
            op.attributes["unique_indices"] = ir.BoolAttr.get(False, op.context)


def hold_constant_places(module: Any) -> None:
    """Before: a scatter writes what is constant at places that are constant.  After: the places pass a barrier."""
    for op in list(walk(module)):
        if op.name == "tm_tensor.scatter" and not varies(op.operands[0]) and not varies(op.operands[1]):
            hold(op.operands[1])


def _is_slice_of_argument(value: Any) -> bool:
    found = False
    while (op := defining_op(value)) is not None and op.name in (*_VIEWS, _SLICE):
        found |= op.name == _SLICE
        value = op.operands[0]
    return found and isinstance(value.owner, ir.Block)
