"""Rewrites an exported graph so that it computes nothing from tensors without elements, nor any of them.

Torch-mlir's conversions and MLIR's passes do not count with a size of zero: reshapes divide by it and end the process, a
slice of nothing is out of bounds, TOSA has no such tensor at all.  A result without elements is another empty tensor; one
that is computed from nothing else is a constant, which eager tells (torch-mlir 20261001).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.decompositions.uniform import Number, fill_with, uniform_result
from mlirstack.frontend.graph import calls, is_mapped, node_tensors

aten = torch.ops.aten

# Called with a tensor, and, among the other operands, with places in it and what is written there.
_WRITES = (
    aten.index_add.default, aten.index_copy.default, aten.index_fill.int_Scalar, aten.index_fill.int_Tensor,
    aten.index_put.default, aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce,
    aten.scatter_add.default, aten.scatter_reduce.two, aten.slice_scatter.default, aten.put.default,
)  # fmt: skip


def rewrite_empty_tensors(module: fx.GraphModule) -> None:
    """Replace calls in ``module`` and in the bodies of its control flow, in place; names of nodes stay.

    Complex tensors are left alone: torch-mlir makes none of nothing.
    """
    nodes = list(calls(module))
    kept = _looked_through(nodes)
    for node in nodes:
        found = node_tensors(node)
        if node in kept:
            continue
        if isinstance(node.target, torch._ops.HigherOrderOperator) or len(found) != 1 or found[0] is not node.meta["val"]:
            continue  # results of a call that has several are replaced where they are taken out of it
        if found[0].is_complex() or any(map(is_mapped, (found[0], *_read(node)))):
            continue
        if is_empty(found[0]):
            node.target, node.args = aten.empty.memory_format, ([*found[0].shape],)
            node.kwargs = {"dtype": found[0].dtype, "device": found[0].device}
        elif (number := _constant(node)) is not None:
            fill_with(node, number)


def _looked_through(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """``as_strided`` of views of nothing, and those views: it reads the memory around them, so they stay what they are."""
    found: set[fx.Node] = set()
    for node in reversed(nodes):
        source = node.args[0] if node.args and (node.target is aten.as_strided.default or node in found) else None
        if isinstance(source, fx.Node) and any(is_empty(tensor) for tensor in node_tensors(source)):
            found |= {node, source}
    return found


def add_empty_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``: tensors without elements are left out where others are joined; writing nothing is a copy."""
    extend(table, aten.cat.default, _cat)
    for op in _WRITES:
        extend(table, op, _nothing_written)


def is_empty(x: Tensor) -> bool:
    """Is a size known to be zero?  Dynamic ones are at least one."""
    return any(isinstance(size, int) and size == 0 for size in x.shape)


def _read(node: fx.Node) -> list[Tensor]:
    return [tensor for operand in node.all_input_nodes for tensor in node_tensors(operand)]


def _constant(node: fx.Node) -> Number | None:
    """The number that ``node``, which reads nothing but empty tensors, gives in all places; None where it is another."""
    read = {operand: operand.meta.get("val") for operand in node.all_input_nodes}
    if not read or not all(isinstance(x, Tensor) and is_empty(x) for x in read.values()):
        return None
    empty = {operand: torch.empty(x.shape, dtype=x.dtype) for operand, x in read.items() if isinstance(x, Tensor)}
    return uniform_result(node, empty.__getitem__)


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    kept = [x for x in tensors if not is_empty(x)]
    if not kept or len(kept) == len(tensors):
        return NotImplemented
    dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors])
    return aten.cat.default([x.to(dtype) for x in kept], dim)


def _nothing_written(x: Tensor, *operands: Any, **options: Any) -> Any:
    tensors = [leaf for leaf in pytree.tree_leaves(operands) if isinstance(leaf, Tensor)]
    return x.clone() if any(is_empty(tensor) for tensor in tensors) else NotImplemented
