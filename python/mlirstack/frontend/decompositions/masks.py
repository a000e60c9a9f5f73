"""What a mask picks, ``x[mask]``: read at the places where the mask holds, as many as data say.

Torch-mlir takes a mask among the indices for places: it refuses one of one dimension, and its conversion of one of several
does not end (torch-mlir 20261001).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from mlirstack.frontend.graph import graph_modules, new_call

aten = torch.ops.aten


def rewrite_masks(module: fx.GraphModule) -> None:
    """Replace reads by one mask alone, in ``module`` and the bodies of its control flow, in place.

    A decomposition would come too late: torch asks there how many places there are, and then has two answers.
    """
    for graph in (child.graph for child in graph_modules(module)):
        for node in graph.find_nodes(op="call_function", target=aten.index.Tensor):
            x, indices = node.args
            masks = [index for index in indices if index is not None]
            if len(masks) == 1 and _is_mask(masks[0]):
                rank = masks[0].meta["val"].dim()
                _read_places(node, x, masks[0], list(indices).index(masks[0]), rank)
        for node in graph.find_nodes(op="call_function", target=aten.masked_select.default):
            with graph.inserting_before(node):
                pair = new_call(node, aten.broadcast_tensors.default, list(node.args))
                x, mask = (new_call(node, operator.getitem, pair, part) for part in range(2))
            _read_places(node, x, mask, 0, max(operand.meta["val"].dim() for operand in node.args))


def _is_mask(index: Any) -> bool:
    return isinstance(index, fx.Node) and index.meta["val"].dtype in (torch.bool, torch.uint8)


def _read_places(node: fx.Node, x: fx.Node, mask: fx.Node, dim: int, rank: int) -> None:
    """``node`` reads ``x`` at the places of ``mask``, whose ``rank`` dimensions are those of ``x`` from ``dim`` on."""
    if not rank:
        return
    with node.graph.inserting_before(node):
        if rank > 1:
            x = new_call(node, aten.flatten.using_ints, x, dim, dim + rank - 1)
            mask = new_call(node, aten.flatten.using_ints, mask)
        places = new_call(node, aten.select.int, new_call(node, aten.nonzero.default, mask), 1, 0)
    node.target, node.args, node.kwargs = aten.index_select.default, (x, dim, places), {}
