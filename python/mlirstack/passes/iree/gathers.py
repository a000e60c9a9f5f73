"""Gathers held apart from what they read, where IREE makes something wrong of both.

IREE 3.13 reads a slice where it lies, and makes vector code of the gather; of a slice whose neighbours are not next to each
other in memory, as of a column, that code cannot be translated (``builtin.unrealized_conversion_cast``).  A gather with
several results that it finds to be constant is computed once, into one global for each; it then takes these for one.  And it
runs through several dimensions of what is gathered, or computed from places, as through one, which it cannot take back where
it packs the result for a product as well: only the first matrix is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op
from mlirstack.passes.iree.readings import hold, is_elementwise
from mlirstack.schedules.contractions import contraction
from mlirstack.schedules.linalg_ops import LinalgOp, linalg_op

# What moves no element, or is computed together with the gather where it moves none.
_VIEWS = frozenset({"tensor.collapse_shape", "tensor.expand_shape", "tensor.cast", "linalg.transpose"})


def hold_gathered_values(module: Any) -> None:
    """Before: a ``linalg`` body picks elements of a slice.  After: of a copy, if the slice has steps or the op several
    results::

    %column = tensor.extract_slice …        →    %column = tensor.extract_slice …
    generic { tensor.extract %column[%i] }       %held = util.optimization_barrier %column
                                                 generic { tensor.extract %held[%i] }
    """
    gathered = [(value, len(op.results)) for op in walk(module) for value in _gathered(op)]
    for value in dict.fromkeys(value for value, results in gathered if results > 1 or _is_slice_with_steps(value)):
        if defining_op(value) is not None:  # arguments are no constants
            hold(value)


def hold_gathered_factors(module: Any) -> None:
    """Before: a product of matrices reads, be it through elementwise ops and reshapes, what was gathered or computed from
    places.  After: of a copy, which IREE packs for the product on its own::

        %x = generic { tensor.extract … }        →    %x = generic { tensor.extract … }
        %a = tensor.collapse_shape %x                 %a = tensor.collapse_shape %x
        linalg.batch_matmul ins(%a, %b)               %held = util.optimization_barrier %a
                                                      linalg.batch_matmul ins(%held, %b)
    """
    products = [op for op in walk(module) if contraction(linalg_op(op)) is not None]
    factors = dict.fromkeys(factor for op in products for factor in list(op.operands)[: -len(op.results)])
    for factor in [factor for factor in factors if _is_gathered(factor)]:
        hold(factor)


def _is_gathered(value: Any) -> bool:
    """Is it computed, element by element, from a gather or from places?"""
    return any(
        found is not None
        and is_elementwise(found)
        and any(inner.name in ("tensor.extract", "linalg.index") for inner in walk(op))
        for op, found in _element_by_element(value)
    )


def _element_by_element(value: Any) -> Iterator[tuple[Any, LinalgOp | None]]:
    """The ops that ``value`` comes from, each with its record, back through views and elementwise ops."""
    queue, seen = [value], {value}
    while queue:
        op = defining_op(queue.pop())
        if op is None:
            continue
        found = linalg_op(op)
        yield op, found
        if op.name in _VIEWS:
            read = [op.operands[0]]
        elif found is not None and is_elementwise(found):  # nothing is left of one that gives what it reads
            read = [operand.value for operand in found.inputs]
        else:
            continue
        queue += [source for source in read if source not in seen]
        seen.update(read)


def _gathered(op: Any) -> list[Any]:
    """The values that the body of ``op`` picks elements of."""
    if not op.name.startswith("linalg."):
        return []
    return [inner.operands[0] for inner in walk(op) if inner.name == "tensor.extract"]


def _is_slice_with_steps(value: Any) -> bool:
    """Is it, or may IREE make of it, a slice with steps?"""
    for op, found in _element_by_element(value):
        # IREE makes a slice of a gather whose places are known.
        if _gathered(op) or (op.name == "tensor.extract_slice" and _has_steps(op)):
            return True
        windows = found is not None and is_elementwise(found) and any(operand.windows for operand in found.inputs)
        if windows and op.name not in _VIEWS:
            return True
    return False


def _has_steps(slicing: Any) -> bool:
    """Are elements that follow each other in the slice apart in its source?"""
    kind = ir.RankedTensorType(slicing.operands[0].type)
    sizes, steps = (list(ir.DenseI64ArrayAttr(slicing.attributes[name])) for name in ("static_sizes", "static_strides"))
    for axis in reversed(range(kind.rank)):
        if sizes[axis] != 1:
            return bool(steps[axis] != 1)
        if kind.is_dynamic_dim(axis) or kind.get_dim_size(axis) != 1:
            return True
    return False
