"""What a mask picks, ``x[mask]``: read at the places where the mask holds, as many as data say.

Torch-mlir takes a mask among the indices for places: it refuses one of one dimension, and its conversion of one of several
does not end (torch-mlir 20261001).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


def rewrite_masks(module: fx.GraphModule) -> None:
    """Replace reads by one mask alone, in ``module`` and the bodies of its control flow, in place.

    A decomposition would come too late: torch asks there how many places there are, and then has two answers.
    """
    for child in (child for child in module.modules() if isinstance(child, fx.GraphModule)):
        for node in child.graph.find_nodes(op="call_function", target=aten.index.Tensor):
            x, indices = node.args
            masks = [index for index in indices if index is not None]
            if len(masks) == 1 and _is_mask(masks[0]):
                _read_places(child.graph, node, x, masks[0], list(indices).index(masks[0]))
        for node in child.graph.find_nodes(op="call_function", target=aten.masked_select.default):
            x, mask = node.args
            shape = torch.broadcast_shapes(x.meta["val"].shape, mask.meta["val"].shape)
            with child.graph.inserting_before(node):
                wide = _call(child.graph, node, aten.expand.default, x, list(shape))
                wide.meta["val"] = x.meta["val"].expand(shape)
                all_of = _call(child.graph, node, aten.expand.default, mask, list(shape))
                all_of.meta["val"] = mask.meta["val"].expand(shape)
            _read_places(child.graph, node, wide, all_of, 0)


def _is_mask(index: Any) -> bool:
    return isinstance(index, fx.Node) and index.meta["val"].dtype in (torch.bool, torch.uint8)


def _read_places(graph: fx.Graph, node: fx.Node, x: fx.Node, mask: fx.Node, dim: int) -> None:
    """``node`` reads ``x`` at the places of ``mask``, whose dimensions are those of ``x`` from ``dim`` on."""
    shape, rank = list(x.meta["val"].shape), mask.meta["val"].dim()
    if not rank or (rank > 1 and not all(isinstance(size, int) for size in shape)):
        return
    with graph.inserting_before(node):
        if rank > 1:
            flat = [*shape[:dim], math.prod(shape[dim : dim + rank]), *shape[dim + rank :]]
            x = _call(graph, node, aten.reshape.default, x, flat)
            mask = _call(graph, node, aten.reshape.default, mask, [-1])
        places = _call(graph, node, aten.select.int, _call(graph, node, aten.nonzero.default, mask), 1, 0)
    node.target, node.args, node.kwargs = aten.index_select.default, (x, dim, places), {}


def _call(graph: fx.Graph, node: fx.Node, op: Any, *args: Any) -> fx.Node:
    made = graph.call_function(op, args)
    made.meta = {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}
    return made
