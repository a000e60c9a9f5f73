"""Decompositions for tensors without elements, which torch-mlir's conversions do not count with.

Its reshapes divide by the sizes they match and end the process where one is zero; it takes torch's strides of an empty
tensor for a layout of its own (torch-mlir 20261001).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.table import Decomposition, extend

aten = torch.ops.aten


def add_empty_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``: a view of an empty tensor is another empty tensor, of the dense layout, and so are they joined."""
    for view in (aten.view.default, aten._unsafe_view.default):
        extend(table, view, _view)
    extend(table, aten.cat.default, _cat)
    extend(table, aten.empty_strided.default, _empty_strided)


def _view(x: Tensor, size: Sequence[int]) -> Any:
    if not _has_zero(x.shape):
        return NotImplemented
    shape = [0 if length == -1 else length for length in size]  # torch infers no other size of no elements
    return aten.empty.memory_format(shape, dtype=x.dtype, device=x.device)


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    if not all(_has_zero(x.shape) for x in tensors):
        return NotImplemented
    kept = [x for x in tensors if x.shape != (0,)] or [tensors[0]]  # of any other rank, these count for nothing
    shape = list(kept[0].shape)
    shape[dim] = sum(x.shape[dim] for x in kept)
    dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors])
    return aten.empty.memory_format(shape, dtype=dtype, device=kept[0].device)


def _empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Any:
    if not _has_zero(size):
        return NotImplemented
    return aten.empty.memory_format(list(size), **options)


def _has_zero(shape: Sequence[int]) -> bool:
    """Is a size known to be zero?  Dynamic ones are at least one."""
    return any(isinstance(size, int) and size == 0 for size in shape)
