"""Products that are ours on processors: which of a program's contractions, and which ops around each belong to its kernel.

Takes ``@main`` as IREE would get it, gives groups of ops that :mod:`mlirstack.passes.iree.regions` cuts out: the transpose
of a weight, the product, the elementwise ops behind it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.grouping import Group
from mlirstack.passes.hoist_parameters import fixed_values
from mlirstack.passes.iree.linked_ops import RESHAPES, is_instruction, is_row_op, reduces
from mlirstack.passes.regions import is_constant, static_elements
from mlirstack.schedules.contractions import Contraction, contraction
from mlirstack.schedules.cpu.tile_shape import fill_of
from mlirstack.schedules.linalg_ops import linalg_op

PRODUCT = "product"  # class of what is cut out

LEAST_WORK = 1 << 14  # multiplications, below which a call takes longer than they do
_WIDE = 512  # bits of a register; with these, a large result of short sums takes 2% to 5% longer than IREE's
_ROWS_WORTH_PACKING = 128  # of a right-hand side that comes with the call
_LARGE_RESULT, _SHORT_SUM = 1 << 19, 512
# Below that, rows that fill IREE's tiles of eight, by a weight from memory, take up to 40% longer.
_FEW_ROWS, _LARGE_WEIGHT = (*range(5, 9), *range(13, 17)), 1 << 19
_ELEMENT_BITS = 32
_TURNS = RESHAPES | {"linalg.transpose"}


def product_groups(main: Any, needs: Mapping[Any, set[Any]], bits: int) -> list[Group]:
    """A group for each product of ours among the ops of ``main``; ``needs`` is what each of them depends on, in program
    order, ``bits`` the width of a register.

    A group has one result, and nothing that it reads depends on it.
    """
    ops, fixed = list(needs), fixed_values(main)
    groups: list[Group] = []
    taken: set[Any] = set()
    for place, op in enumerate(ops):
        found = contraction(linalg_op(op))
        if found is not None and is_ours(found, fixed, bits):
            group = [*_turns(found.rhs.value, op), *_with_epilogue(op, ops[place + 1 :], needs, taken)]
            groups.append(Group(PRODUCT, group))
            taken.update(group)
    return groups


def is_ours(found: Contraction, fixed: Collection[Any], bits: int) -> bool:
    """f32, one summation, columns for whole registers of ``bits``, a right-hand side that is the same in every call
    (``fixed``), so that it is packed once, or enough rows; and sizes at which ours is as fast as IREE's, or faster."""
    operands = (found.lhs, found.rhs, found.out)
    if not all(isinstance(operand.element, ir.F32Type) and operand.plain for operand in operands):
        return False
    start = fill_of(found.out.value)
    if start is None or not is_constant(functions.defining_op(start)):
        return False
    if len(found.sums) != 1 or not found.columns or found.out.dims[-1] != found.columns[-1]:
        return False
    rows = math.prod(found.op.shape[d] for d in found.rows)
    return (found.rhs.value in fixed or rows >= _ROWS_WORTH_PACKING) and is_fast(found, bits)


def is_fast(found: Contraction, bits: int) -> bool:
    """Is ours as fast as IREE's at these sizes?  ``benchmarks/iree_products.py`` measures it."""
    shape = found.op.shape
    rows, columns, sums = (math.prod(shape[d] for d in loops) for loops in (found.rows, found.columns, found.sums))
    if found.op.points < LEAST_WORK or shape[found.columns[-1]] < bits // _ELEMENT_BITS:
        return False
    if bits >= _WIDE:
        batch = math.prod(shape[d] for d in found.batch)
        return batch * rows * columns < _LARGE_RESULT or sums > _SHORT_SUM
    return rows not in _FEW_ROWS or columns * sums < _LARGE_WEIGHT


def _turns(value: Any, user: Any) -> list[Any]:
    """Transposes and reshapes that make the right-hand side for this product alone, in program order."""
    found: list[Any] = []
    producer = functions.defining_op(value)
    while producer is not None and producer.name in _TURNS and _users(producer) == {user}:
        found.insert(0, producer)
        user, producer = producer, functions.defining_op(producer.operands[0])
    return found


def _users(op: Any) -> set[Any]:
    return {use.owner.operation for result in op.results for use in result.uses}


def _with_epilogue(product: Any, later: Sequence[Any], needs: Mapping[Any, set[Any]], taken: Collection[Any]) -> list[Any]:
    """The product and the ops behind it that work on its elements one by one, as far as they leave one result."""
    size = static_elements(product.results[0])
    members: list[Any] = [product]
    waiting: set[Any] = set()  # what depends on the members, and is none
    inside = {product}
    for op in later:
        if inside.isdisjoint(needs[op]) and waiting.isdisjoint(needs[op]):
            continue
        if op in taken or not waiting.isdisjoint(needs[op]) or not _is_epilogue(op, size):
            waiting.add(op)
        else:
            members.append(op)
            inside.add(op)
    while not _has_one_result(members):
        members.pop()
    return members


def _is_epilogue(op: Any, size: int | None) -> bool:
    """Does it compute ``size`` elements, each of those at its place?"""
    if any(static_elements(result) != size for result in op.results) or len(op.results) != 1:
        return False
    if op.name in RESHAPES:
        return True
    return is_row_op(op) and not reduces(op) and all(is_instruction(inner, on_vectors=True) for inner in walk(op))


def _has_one_result(members: Sequence[Any]) -> bool:
    """Is the last op, a reshape no, the only one that others read?"""
    if len(members) == 1:
        return True
    leaving = [op for op in members if not _users(op) <= set(members)]
    return leaving == [members[-1]] and members[-1].name not in RESHAPES
