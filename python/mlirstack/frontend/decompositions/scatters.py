"""Writes to places that data say: places are checked when the program runs, and counted from the end where eager does.

Torch-mlir's conversions write wherever a place may point, before the tensor as well (torch-mlir 20261001).  A read is
checked, so each place is read from the numbers of all places before something is written there.  Kinds of writes that
torch-mlir does not know become those that it does.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend, not_itself

aten = torch.ops.aten

# Called with a tensor, a dimension and places along it.
_ALONG_A_DIMENSION = (
    aten.scatter.src, aten.scatter.value, aten.scatter_add.default, aten.scatter_reduce.two, aten.index_add.default,
    aten.index_copy.default, aten.index_fill.int_Scalar, aten.index_fill.int_Tensor,
)  # fmt: skip
_FROM_THE_END = (aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)


def add_scatter_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``."""
    table[aten.put.default] = _put
    table[aten.index_reduce.default] = _index_reduce
    table[aten.scatter.reduce] = _scatter_with
    table[aten.scatter.value_reduce] = _scatter_with
    extend(table, aten.masked_scatter.default, _stretched_masked_scatter)
    extend(table, aten.index_put.default, not_itself(_index_put))
    extend(table, aten.scatter_reduce.two, _mean_of_integers)
    for op in _ALONG_A_DIMENSION:
        extend(table, op, not_itself(functools.partial(_along_a_dimension, op)))


def _index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    """A mask stands for as many dimensions as it has."""
    checked: list[Tensor | None] = []
    dim = 0
    for index in indices:
        is_mask = index is not None and index.dtype in (torch.bool, torch.uint8)
        checked.append(index if index is None or is_mask else checked_places(index, x.shape[dim], from_end=True))
        dim += index.dim() if index is not None and is_mask else 1
    return aten.index_put.default(x, checked, values, accumulate)


def _along_a_dimension(op: Any, x: Tensor, dim: int, index: Tensor, *args: Any, **kwargs: Any) -> Any:
    size = x.shape[dim] if x.dim() else 1
    return op(x, dim, checked_places(index, size, from_end=op in _FROM_THE_END), *args, **kwargs)


def checked_places(index: Tensor, size: int, *, from_end: bool) -> Tensor:
    """``index``, each of which is read from ``[0, 1, …, size - 1]``; those that are not there end the program."""
    places = index
    if isinstance(size, int) and size < 2**31 - 1:  # TOSA adds no int64, and reads at the lower half of a place
        places = index.clamp(-size - 1 if from_end else -1, size).to(torch.int32)
    if from_end:
        places = torch.where(places < 0, places + size, places)
    read = torch.arange(size, dtype=torch.int64, device=index.device).index_select(0, places.reshape(-1))
    return read.reshape(index.shape).to(index.dtype)


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Places in ``x`` as if it had one dimension."""
    return x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate).reshape(x.shape)


def _index_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """Whole slices along ``dim``: each element of a slice at its place."""
    shape = [1] * x.dim()
    shape[dim] = -1
    places = index.reshape(shape).expand(source.shape)
    return torch.scatter_reduce(x, dim, places, source, reduce, include_self=include_self)


def _mean_of_integers(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:  # fmt: skip
    """The sum by the count, rounded down as eager rounds it."""
    if reduce != "mean" or x.is_floating_point() or x.is_complex():
        return NotImplemented
    total = torch.scatter_reduce(x, dim, index, source, "sum", include_self=include_self)
    counted = torch.ones_like(x) if include_self else torch.zeros_like(x)
    count = torch.scatter_add(counted, dim, index, torch.ones_like(source)).clamp(min=1)
    return torch.div(total, count, rounding_mode="floor")


def _scatter_with(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Tensor:
    """``scatter`` with a ``reduce`` of its own names; ``source`` is a tensor or a number."""
    values = source if isinstance(source, Tensor) else torch.full(index.shape, source, dtype=x.dtype, device=x.device)
    return torch.scatter_reduce(x, dim, index, values, {"add": "sum", "multiply": "prod"}[reduce])


def _stretched_masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Any:
    if x.shape == mask.shape:
        return NotImplemented
    stretched, places = aten.broadcast_tensors.default([x, mask])
    return torch.masked_scatter(stretched, places, source)
