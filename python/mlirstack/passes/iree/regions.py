"""Regions of a program that could be kernels of ours, taken out as functions before anything is changed in them.

IREE's compiler gets the rest of a program as the plain way hands it over, and its own form of a region where no kernel of
ours is faster.  So regions are cut out first, everything between two ops that IREE is good at, and fused and looked at alone
(:mod:`mlirstack.passes.iree.rows`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import function, walk
from mlirstack.ir.ops import functions as functions_of
from mlirstack.passes import abi, functions
from mlirstack.passes.grouping import Group, dependences, order_with
from mlirstack.passes.iree.program import hide_program
from mlirstack.passes.kernel_class import is_scalar_body, multiplies_and_adds
from mlirstack.passes.outline import outline_groups
from mlirstack.passes.regions import is_constant
from mlirstack.pipeline.step import PythonPass

REGION = "region"  # class of what is cut out, where a kernel has its own


@dataclass(frozen=True)
class FormRegions(PythonPass):
    """Before: ``@main`` holds linalg ops on tensors.  After: the module holds functions ``@kernel_region_<n>`` alone, each
    with elementwise ops and reductions that depend on each other, a reduction among them; the program that calls them rides
    along (:mod:`mlirstack.passes.iree.program`), with the same bodies.
    """

    name = "mlirstack-iree-regions"

    def apply(self, module: Any) -> None:
        main = function(module, abi.MAIN)
        if len(main.regions[0].blocks) == 1:
            ops = [op.operation for op in list(main.regions[0].blocks[0].operations)[:-1]]
            for region in outline_groups(main, _in_order(ops), Counter(), pull_slices=False):
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


def _in_order(ops: Sequence[Any]) -> list[Group]:
    """All of ``ops`` in an order in which they can run, those of a region together."""
    needs = dependences(ops)
    regions = [group for group in _connected(needs) if any(_reduces(op) for op in group.ops)]
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


def _connected(needs: Mapping[Any, set[Any]]) -> list[Group]:
    """The ops that a region may hold, those together that depend on each other with nothing else in between.

    An op's level is the largest number of times that a path to it leaves a region.  What leaves one does not come back to
    the same level: ops of one level never wait for each other through something else.
    """
    takes_part = {op: _takes_part(op) for op in needs}
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


def _takes_part(op: Any) -> bool:
    """Is it elementwise or a reduction, every operand read in the order of the loops, or a unit dimension more or less?"""
    if op.name in ("tensor.expand_shape", "tensor.collapse_shape"):
        before, after = (ir.RankedTensorType(value.type) for value in (op.operands[0], op.results[0]))
        return _without_ones(before) == _without_ones(after)
    maps = dialect("linalg").get_indexing_maps(op) if op.name.startswith("linalg.") and op.name != "linalg.fill" else None
    if maps is None or not is_scalar_body(op):
        return False
    if any(not _is_in_order(ir.AffineMapAttr(m).value) for m in maps):
        return False
    return not (_reduces(op) and multiplies_and_adds(op))


def _without_ones(kind: Any) -> list[int]:
    sizes = [-1 if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank)]
    return [size for size in sizes if size != 1]


def _is_in_order(indexing: Any) -> bool:
    """Loops, each once and in their order, and constants?"""
    loops = [e.position for e in indexing.results if isinstance(e, ir.AffineDimExpr)]
    plain = all(isinstance(e, (ir.AffineDimExpr, ir.AffineConstantExpr)) for e in indexing.results)
    return plain and loops == sorted(set(loops))


def _reduces(op: Any) -> bool:
    if not op.name.startswith("linalg."):
        return False
    *_, written = (ir.AffineMapAttr(m).value for m in dialect("linalg").get_indexing_maps(op))
    return len([e for e in written.results if isinstance(e, ir.AffineDimExpr)]) < written.n_dims
