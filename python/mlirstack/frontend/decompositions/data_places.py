"""Decompositions for a row, or a stretch of rows, at a place that data say: ``x[i.item()]``, ``x.narrow(0, i, 3)``.

Torch-mlir makes a slice of it and cuts that to the size, where eager raises an error for a place that does not exist: it
would read what lies behind the tensor (torch-mlir 20261001).  Here it is a read by index, which is checked when it runs.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.decompositions.scatters import checked_places
from mlirstack.frontend.graph import graph_modules, memory_of, new_call, written_operands

aten = torch.ops.aten


def add_data_place_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for places that are known or follow from sizes."""
    extend(table, aten.select.int, _select)
    extend(table, aten.select_scatter.default, _select_scatter)


def _is_data(place: object) -> bool:
    return isinstance(place, torch.SymInt) and bool(free_unbacked_symbols(place))


def _select(x: Tensor, dim: int, index: int) -> Any:
    if not _is_data(index):
        return NotImplemented
    return x.index_select(dim, _places(x, dim, index)).squeeze(dim)


def _select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Any:
    if not _is_data(index):
        return NotImplemented
    dim = dim % x.dim()
    numbers = torch.arange(x.shape[dim], device=x.device)
    given = torch.full((1,), index, dtype=torch.int64, device=x.device)
    place = checked_places(given, x.shape[dim], from_end=True)
    hit = (numbers == place).reshape([-1] + [1] * (x.dim() - 1 - dim))
    return torch.where(hit, src.unsqueeze(dim), x).to(x.dtype)


def _places(x: Tensor, dim: int, index: int) -> Tensor:
    """``[1]``: the place along ``dim``, which is counted from the end where it is negative."""
    given = torch.full((1,), index, dtype=torch.int64, device=x.device)
    return torch.where(given < 0, given + x.shape[dim], given)


def rewrite_data_narrows(module: fx.GraphModule) -> None:
    """Replace ``narrow`` from a place that data say, in ``module`` and the bodies of its control flow, in place.

    A decomposition would come too late: torch makes a slice of it.  What is written to through such a view stays.
    """
    for graph in (child.graph for child in graph_modules(module)):
        written = {memory_of(operand) for node in graph.nodes for operand in written_operands(node)}
        for node in graph.find_nodes(op="call_function", target=aten.narrow.default):
            if _starts_at_data(node) and memory_of(node) not in written:
                _read_by_index(node)


def _starts_at_data(node: fx.Node) -> bool:
    start, length = (arg.meta.get("val") if isinstance(arg, fx.Node) else arg for arg in node.args[2:])
    return _is_data(start) and not _is_data(length)


def _read_by_index(node: fx.Node) -> None:
    arguments: Any = node.args
    x, dim, start, length = arguments
    value = x.meta["val"]

    call = functools.partial(new_call, node)
    with node.graph.inserting_before(node):
        size: Any = value.shape[dim]
        size = size if isinstance(size, int) else call(aten.sym_size.int, x, dim)
        given = call(aten.full.default, [1], start, dtype=torch.int64, device=value.device)
        from_end = call(aten.add.Tensor, given, size)
        first = call(aten.where.self, call(aten.lt.Scalar, given, 0), from_end, given)
        steps = call(aten.arange.default, length, device=value.device)
        rows = call(aten.add.Tensor, first, steps)
    node.target, node.args, node.kwargs = aten.index_select.default, (x, dim, rows), {}
