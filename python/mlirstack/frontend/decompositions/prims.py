"""Operators of torch's ``prims`` in terms of ATen: views that torch.export captures and its decompositions then refuse, and
the copy with other strides that some of them (of ``lerp``, for one) leave behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from mlirstack.frontend.decompositions.extend import Decomposition
from mlirstack.frontend.graph import graph_modules
from mlirstack.frontend.literals import constant

aten, prims = torch.ops.aten, torch.ops.prims

# Operator -> the same in ATen, and its arguments from those of the prim.
_VIEWS: dict[Any, tuple[Any, Callable[..., tuple[Any, ...]]]] = {
    prims.squeeze.default: (aten.squeeze.dims, lambda x, dimensions: (x, dimensions)),
    prims.view_of.default: (aten.alias.default, lambda x: (x,)),
    prims.transpose.default: (aten.permute.default, lambda x, permutation: (x, permutation)),
    prims.split_dim.default: (aten.unflatten.int, lambda x, dim, outer_length: (x, dim, [outer_length, -1])),
    prims.collapse_view.default: (aten.flatten.using_ints, lambda x, start, end: (x, start, end)),
}


def rewrite_prim_views(module: fx.GraphModule) -> None:
    """Replace the views in ``module`` and in the bodies of its control flow, in place."""
    for child in graph_modules(module):
        views = [node for node in child.graph.nodes if node.target in _VIEWS]
        for node in views:
            node.target, arguments = _VIEWS[node.target]
            node.args, node.kwargs = arguments(*node.args, **node.kwargs), {}
        if views:
            child.recompile()


# Views whose results have memory of their own, as all results do in a graph.
_COPIES = {
    aten.as_strided_copy.default: aten.as_strided.default,
    aten.narrow_copy.default: aten.narrow.default,
    aten.permute_copy.default: aten.permute.default,
    aten.view_copy.default: aten.view.default,
}


def add_prim_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``: where the elements of a result lie in memory is no matter of the graph."""
    for copy, view in _COPIES.items():
        table[copy] = view
    table[prims.copy_strided.default] = _copy_strided
    table[prims.scalar_tensor.default] = _scalar_tensor


def _scalar_tensor(number: Any, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    return constant(number, dtype, device)


def _copy_strided(x: Tensor, stride: Sequence[int]) -> Tensor:
    return x.clone()
