"""The order of booleans: false comes before true.  Torch-mlir's conversions take a boolean for a signed number of one bit,
of which true is the smaller; whole numbers of 32 bits take its place where one is compared with another."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.decompositions.unsigned import common_dtype

aten = torch.ops.aten

_ORDERED = (
    aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor,
    aten.maximum.default, aten.minimum.default, aten.fmax.default, aten.fmin.default,
    aten.max.default, aten.min.default, aten.max.dim, aten.min.dim, aten.amax.default, aten.amin.default,
    aten.aminmax.default, aten.sort.default, aten.sort.stable, aten.topk.default, aten.scatter_reduce.two,
    aten.scatter_add.default, aten.clamp.Tensor, aten.clamp_min.Tensor, aten.clamp_max.Tensor,
)  # fmt: skip


def add_truth_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for all other dtypes."""
    for op in _ORDERED:
        extend(table, op, functools.partial(_in_int32, op))
    extend(table, aten.clamp.default, _clamp)
    table[aten.all.dims] = functools.partial(_along_each, torch.all)
    table[aten.any.dims] = functools.partial(_along_each, torch.any)


def _along_each(
    function: Callable[..., Tensor], x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False
) -> Tensor:  # fmt: skip
    """``function`` along one dimension after the other, the last ones first."""
    dims = range(x.dim()) if dim is None else [axis % x.dim() for axis in dim]
    result = x != 0
    for axis in sorted(dims, reverse=True):
        result = function(result, axis, keepdim)
    return result.to(torch.uint8) if x.dtype == torch.uint8 else result


def _in_int32(op: Any, *args: Any, **kwargs: Any) -> Any:
    """``op`` on booleans as numbers; numbers that it leaves are booleans again (places are of 64 bits)."""
    dtypes = [leaf.dtype for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if torch.bool not in dtypes or torch.int32 in dtypes:
        return NotImplemented
    given, options = pytree.tree_map(lambda x: _converted(x, torch.bool, torch.int32), (args, kwargs))
    return pytree.tree_map(lambda x: _converted(x, torch.int32, torch.bool), op(*given, **options))


def _converted(x: Any, before: torch.dtype, after: torch.dtype) -> Any:
    return x.to(after) if isinstance(x, Tensor) and x.dtype == before else x


def _clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Any:
    if x.dtype != torch.bool:
        return NotImplemented
    return torch.clamp(x.to(common_dtype((x, *(bound for bound in (low, high) if bound is not None)))), low, high)
