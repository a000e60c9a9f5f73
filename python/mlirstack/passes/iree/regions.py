"""Regions of a program that could be kernels of ours, taken out as functions before anything is changed in them.

IREE's compiler gets the rest of a program as the plain way hands it over, and its own form of a region where no kernel of
ours is faster.  So regions are cut out first, everything between two ops that IREE is good at, and fused and looked at alone
(:mod:`mlirstack.passes.iree.rows`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import function, walk
from mlirstack.ir.ops import functions as functions_of
from mlirstack.passes import abi, functions
from mlirstack.passes.grouping import Group, dependences, order_with
from mlirstack.passes.iree.linked_ops import is_row_op, reduces
from mlirstack.passes.iree.products import product_groups
from mlirstack.passes.iree.program import hide_program
from mlirstack.passes.outline import outline_groups
from mlirstack.passes.regions import is_constant
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.cpu.machine import HOST, vector_bits

REGION = "region"  # class of what is cut out, where a kernel has its own


@dataclass(frozen=True)
class FormRegions(PythonPass):
    """Before: ``@main`` holds linalg ops on tensors.  After: the module holds functions ``@kernel_product_<n>`` alone, each
    with a product of ours and what belongs to it (:mod:`mlirstack.passes.iree.products`), and ``@kernel_region_<n>``, each
    with elementwise ops and reductions that depend on each other, a reduction among them.  The program that calls them rides
    along (:mod:`mlirstack.passes.iree.program`), with the same bodies.  ``vector_bits`` is the width of a register (0: that
    of this machine).
    """

    name = "mlirstack-iree-regions"
    vector_bits: int = HOST

    def apply(self, module: Any) -> None:
        main = function(module, abi.MAIN)
        if len(main.regions[0].blocks) == 1:
            ops = [op.operation for op in list(main.regions[0].blocks[0].operations)[:-1]]
            for region in outline_groups(
                main, _in_order(main, ops, vector_bits(self.vector_bits)), Counter(), pull_slices=False
            ):
                if region is not None:
                    _sink_numbers(main, region)
        hide_program(module)
        for other in [f for f in functions_of(module) if KERNEL_ATTRIBUTE not in f.attributes]:
            other.operation.erase()


def _sink_numbers(main: Any, region: Any) -> None:
    """Tensors of one number that ``main`` calls ``region`` with: constants in it, which fuse to scalars."""
    name, block = functions.name_of(region), region.regions[0].blocks[0]
    [call] = [op for op in walk(main) if op.name == "func.call" and _callee(op) == name]
    for operand, argument in zip(call.operands, block.arguments, strict=True):
        producer = functions.defining_op(operand)
        if producer is not None and is_constant(producer) and _is_one_number(producer.attributes["value"]):
            with ir.InsertionPoint.at_block_begin(block), producer.location:
                argument.replace_all_uses_with(producer.clone().results[0])


def _is_one_number(value: Any) -> bool:
    return isinstance(value, ir.DenseElementsAttr) and bool(value.is_splat)


def _callee(call: Any) -> str:
    return str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)


def _in_order(main: Any, ops: Sequence[Any], bits: int) -> list[Group]:
    """All of ``ops`` in an order in which they can run, those of a region together."""
    needs = dependences(ops)
    products = product_groups(main, needs, bits)
    taken = {op for group in products for op in group.ops}
    rows = [group for group in _connected(needs, taken) if any(reduces(op) for op in group.ops)]
    regions = [*products, *rows]
    ordered = order_with(needs, regions)
    assert ordered is not None, "regions are convex"
    home = {op: region for region in regions for op in region.ops}
    groups: list[Group] = []
    for op in ordered:
        if op not in home:
            groups.append(Group(None, [op]))
        elif home[op] not in groups[-1:]:
            groups.append(home[op])
    return groups


def _connected(needs: Mapping[Any, set[Any]], taken: Collection[Any]) -> list[Group]:
    """The ops that a region of rows may hold, those together that depend on each other with nothing else in between;
    ``taken`` are ops of other regions.

    An op's level is the largest number of times that a path to it leaves a region.  What leaves one does not come back to
    the same level: ops of one level never wait for each other through something else.  A product leaves one result, which
    depends on all of its ops; so what comes back out of one has another level as well.
    """
    takes_part = {op: op not in taken and is_row_op(op) for op in needs}
    level: dict[Any, int] = {}
    number: dict[Any, int] = {}
    members: dict[int, list[Any]] = {}
    for op, producers in needs.items():
        level[op] = max((level[p] + (takes_part[p] and not takes_part[op]) for p in producers), default=0)
        if not takes_part[op]:
            continue
        joined = {number[p] for p in producers if takes_part[p] and level[p] == level[op]}
        own = len(number) if not joined else min(joined)
        merged = [member for n in sorted(joined) for member in members.pop(n)] + [op]
        while own in members:
            own += 1
        members[own] = merged
        number.update(dict.fromkeys(merged, own))
    position = {op: place for place, op in enumerate(needs)}
    return [Group(REGION, sorted(found, key=position.__getitem__)) for found in members.values()]
