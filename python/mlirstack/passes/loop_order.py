"""Loop order of kernels that no schedule tiles: dynamic shapes, mostly.

Such an op becomes plain loops in the order of its iterators, a matmul with the reduction innermost: strided reads, and a sum
that LLVM must not reorder.  With a parallel loop of unit stride innermost, LLVM vectorizes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import ir
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE, OTHER
from mlirstack.ir.ops import functions, walk
from mlirstack.passes import functions as functions_of
from mlirstack.passes.kernel_class import op_shape
from mlirstack.pipeline.step import Schedule


@dataclass(frozen=True)
class OrderLoops(Schedule):
    """Before: kernels of class "other", or with ``everywhere`` any functions.  After: reductions there whose operands all
    have unit stride, or none, along one parallel loop have it innermost."""

    name: ClassVar[str] = "mlirstack-order-loops"
    everywhere: bool = False

    def build(self, module: Any) -> str | None:
        lines: list[str] = []
        for function in functions(module):
            if not (self.everywhere or _is_kernel_without_schedule(function)):
                continue
            orders = [innermost_last(op) for op in walk(function) if op.name == "linalg.generic"]
            if any(orders):
                lines += _section(functions_of.name_of(function), orders, len(lines))
        if not lines:
            return None
        body = "\n".join(f"    {line}" for line in lines)
        return (
            "module attributes {transform.with_named_sequence} {\n"
            f"  transform.named_sequence @__transform_main(%module: !transform.any_op) {{\n{body}\n"
            "    transform.yield\n  }\n}\n"
        )


def _is_kernel_without_schedule(function: Any) -> bool:
    attributes = function.attributes
    return KERNEL_ATTRIBUTE in attributes and ir.StringAttr(attributes[KERNEL_ATTRIBUTE]).value == OTHER


def innermost_last(op: Any) -> list[int] | None:
    """The new order of the loops of a reduction (old numbers), or None where it stays as it is."""
    shape = op_shape(op)
    if shape is None or not shape.reductions:
        return None
    loops = range(len(shape.sizes))
    for candidate in reversed(shape.parallel):
        if candidate != loops[-1] and all(_is_unit_or_absent(dims, candidate) for dims in shape.dims):
            return [*(d for d in loops if d != candidate), candidate]
    return None


def _is_unit_or_absent(dims: tuple[int | None, ...], loop: int) -> bool:
    """Does ``loop`` step by one element, or not at all, through an operand (one that no expression indexes)?"""
    return None not in dims and (loop not in dims or dims.index(loop) == len(dims) - 1)


def _section(symbol: str, orders: list[list[int] | None], start: int) -> list[str]:
    """The lines that reorder the generic ops of one function, in program order."""
    any_op = "!transform.any_op"
    function, found = f"%f{start}", f"%g{start}"
    lines = [
        f'{function} = transform.structured.match ops{{["func.func"]}} attributes {{sym_name = "{symbol}"}} in %module'
        f" : ({any_op}) -> {any_op}",
        f'{found} = transform.structured.match ops{{["linalg.generic"]}} in {function} : ({any_op}) -> {any_op}',
    ]
    handles = [found]
    if len(orders) > 1:
        lines.append(
            f"{found}s:{len(orders)} = transform.split_handle {found} : ({any_op}) -> ({', '.join([any_op] * len(orders))})"
        )
        handles = [f"{found}s#{i}" for i in range(len(orders))]
    for i, (handle, order) in enumerate(zip(handles, orders, strict=True)):
        if order is not None:
            interchange = ", ".join(map(str, order))
            lines.append(
                f"%o{start}_{i} = transform.structured.interchange {handle} iterator_interchange = [{interchange}]"
                f" : ({any_op}) -> {any_op}"
            )
    return lines
