"""Decompositions for reads and writes where data say: through a mask, at one place, along a dimension counted from the end.

A mask selects, instead of scattering to a number of places that depends on data: torch-mlir's scatter becomes invalid when a
canonicalization folds the sizes of its operands.  Its conversion of the scatters takes their dimension as an index without
looking at its sign, and ends the process (torch-mlir 20261001, convert-torch-to-tmtensor).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.data_places import add_data_place_decompositions
from mlirstack.frontend.decompositions.extend import Decomposition, extend

aten = torch.ops.aten

_SCATTERS = (aten.scatter_add.default, aten.scatter.src, aten.scatter_reduce.two)


def add_indexing_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for integer indices."""
    extend(table, aten.index_put.default, _index_put)
    table[aten.take.default] = _take
    add_data_place_decompositions(table)
    extend(table, aten.diagonal.default, _diagonal)
    for op in _SCATTERS:
        extend(table, op, functools.partial(_counted_from_the_front, op))


def _index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    if accumulate and x.dtype == torch.bool:  # one bit of an addition would be the exclusive disjunction
        return aten.index_put.default(x.to(torch.int32), indices, values.to(torch.int32), True).to(torch.bool)
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == torch.bool:
        return _masked_put(x, indices[0], values, accumulate)
    count = _count_of_places(indices)
    if count is not None:
        return aten.index_put.default(x, _without_masks(indices, count), values, accumulate)
    return NotImplemented


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Elements of ``x`` by their number; torch's own decomposition reads a single number as a Python integer."""
    return x.reshape(-1)[index.reshape(-1)].reshape(index.shape)


def _diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Every so many elements of a matrix that is laid out flat; torch-mlir adds up rows times zero and one, and with them
    every NaN and infinity beside it."""
    rows, columns = x.shape[dim1], x.shape[dim2]
    if not isinstance(rows, int) or not isinstance(columns, int):
        return NotImplemented
    length = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    if length <= 0:
        return NotImplemented
    axes = [dim1 % x.dim(), dim2 % x.dim()]
    others = [axis for axis in range(x.dim()) if axis not in axes]
    flat = x.permute([*others, *axes]).flatten(-2)
    first = offset if offset >= 0 else -offset * columns
    return flat.index_select(-1, torch.arange(length) * (columns + 1) + first)


def _counted_from_the_front(op: Any, x: Tensor, dim: int, *args: Any, **kwargs: Any) -> Any:
    return op(x, dim + max(x.dim(), 1), *args, **kwargs) if dim < 0 else NotImplemented


def _count_of_places(indices: Sequence[Tensor | None]) -> int | None:
    """How many elements a mask among integer indices has to select: as many as they are.  None without such a mask."""
    given = [index for index in indices if index is not None]
    sizes = [index.numel() for index in given if index.dtype != torch.bool]
    lists = all(index.dim() <= 1 for index in given if index.dtype != torch.bool)
    known = all(isinstance(size, int) for index in given for size in index.shape)
    return max(sizes) if sizes and len(sizes) < len(given) and lists and known else None


def _without_masks(indices: Sequence[Tensor | None], count: int) -> list[Tensor | None]:
    """Each mask as the positions of its first ``count`` true elements; of its only one, as often."""
    found: list[Tensor | None] = []
    for index in indices:
        if index is None or index.dtype != torch.bool:
            found.append(index)
            continue
        flat = index.flatten()
        order = torch.cumsum(flat.to(torch.int64), 0) - 1
        wanted = torch.minimum(torch.arange(count), order[-1]).unsqueeze(1)
        hit = torch.logical_and(flat, order == wanted)
        place = torch.where(hit, torch.arange(flat.numel()), 0).sum(1)
        coordinates: list[Tensor] = []
        for size in reversed(index.shape):
            rest = torch.div(place, size, rounding_mode="trunc")
            coordinates.insert(0, place - rest * size)
            place = rest
        found += coordinates
    return found


def _masked_put(x: Tensor, mask: Tensor, values: Tensor, accumulate: bool) -> Tensor:
    """``x[mask] = values`` (or ``+=``): ``mask`` covers the first dimensions of ``x``, ``values`` is ``[count, *rest]``."""
    rest = x.shape[mask.dim() :]
    where = mask.reshape([*mask.shape, *([1] * len(rest))])
    if values.dim() > len(rest) and values.size(0) != 1:
        if isinstance(values.size(0), int) and values.size(0) == 0:
            return x.clone()
        # The n-th true element takes the n-th row of the values; what false elements take does not matter.
        order = torch.cumsum(mask.flatten().to(torch.int64), 0) - 1
        rows = values.index_select(0, torch.clamp(order, min=0))
        placed = rows.reshape([*mask.shape, *rows.shape[1:]])
    else:
        placed = values.squeeze(0) if values.dim() > len(rest) else values
    return torch.where(where, x + placed if accumulate else placed, x)
