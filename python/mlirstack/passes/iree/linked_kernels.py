"""Kernels for processors inside a program of IREE's: regions are looked at one by one, and called or given back.

Takes regions (:mod:`mlirstack.passes.iree.regions`), leaves the program with calls of kernel functions where rows or
products are ours (:mod:`mlirstack.passes.iree.rows`, :mod:`mlirstack.passes.iree.products`), and IREE's own form everywhere
else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.kernels import CONTRACTION, KERNEL_ATTRIBUTE
from mlirstack.ir.ops import function, walk
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.text import parse_module
from mlirstack.passes import abi, functions
from mlirstack.passes.grouping import Group, group_operations
from mlirstack.passes.iree.products import PRODUCT
from mlirstack.passes.iree.program import PROGRAM, hidden_program
from mlirstack.passes.iree.rows import outline_rows
from mlirstack.passes.outline import outline_groups
from mlirstack.passes.regions import inline_call
from mlirstack.pipeline.step import PythonPass


@dataclass(frozen=True)
class FormLinkedKernels(PythonPass):
    """Before: functions of regions, elementwise ops fused, and the program that calls them.  After: the program, with the
    regions in it again; it calls a kernel function ``@kernel_contraction_<n>`` for a product of ours,
    ``@kernel_reduction_<n>`` where a group of reductions over rows is.  A region without such a group is as it was before.
    """

    name = "mlirstack-iree-linked-kernels"

    def apply(self, module: Any) -> None:
        program = parse_module(hidden_program(module), module.context)
        counts: Counter[str] = Counter()
        bodies = {functions.name_of(f): f for f in _marked(program)}
        regions = [*_marked(program), *_marked(module)]
        for region in _marked(module):
            is_product = ir.StringAttr(region.attributes[KERNEL_ATTRIBUTE]).value == PRODUCT
            if (_outline_product if is_product else outline_rows)(region, counts):
                bodies[functions.name_of(region)] = region
        for call in [op for op in walk(function(program, abi.MAIN)) if op.name == "func.call"]:
            callee = str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)
            if callee in bodies:
                inline_call(call, bodies[callee])
        for region in regions:
            region.operation.erase()
        for op in list(program.body.operations):
            module.body.append(op.operation.detach_from_parent())
        del module.operation.attributes[PROGRAM]


def _marked(module: Any) -> list[Any]:
    return [f for f in functions_of(module) if KERNEL_ATTRIBUTE in f.attributes]


def _outline_product(region: Any, counts: Counter[str]) -> bool:
    """Make a kernel of the product in a region, with what is fused behind it; is there one still?"""
    body = [op.operation for op in list(region.regions[0].blocks[0].operations)[:-1]]
    for op in body:
        _write_to_new_memory(op)
    body = [op.operation for op in list(region.regions[0].blocks[0].operations)[:-1]]
    groups = [group if group.kind == CONTRACTION else Group(None, group.ops) for group in group_operations(body)]
    if not any(group.kind for group in groups):
        return False
    outline_groups(region, groups, counts, pull_slices=False)
    return True


def _write_to_new_memory(op: Any) -> None:
    """Let an op that does not read what it writes over write to memory of its own, not to a reshape of some other."""
    if not op.name.startswith("linalg.") or len(op.results) != 1:
        return
    kind = ir.RankedTensorType(op.results[0].type)
    reads = op.name != "linalg.fill" and any(True for _ in list(op.regions[0].blocks[0].arguments)[-1].uses)
    if not reads and kind.has_static_shape:
        with ir.InsertionPoint(op), op.location:
            op.operands[len(op.operands) - 1] = dialect("tensor").EmptyOp(list(kind.shape), kind.element_type).result
