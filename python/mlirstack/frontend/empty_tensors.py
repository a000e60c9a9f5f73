"""Decompositions for tensors without elements, which torch-mlir's conversions do not count with.

Its reshapes divide by the sizes they match and end the process where one is zero; it takes torch's strides of an empty
tensor for a layout of its own (torch-mlir 20261001).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Decomposition = Callable[..., Any]
aten = torch.ops.aten


def add_empty_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``: a view of an empty tensor is another empty tensor, of the dense layout, and so are they joined."""
    for view in (aten.view.default, aten._unsafe_view.default):
        table[view] = _view(table.get(view))
    table[aten.cat.default] = _cat(table.get(aten.cat.default))
    table[aten.empty_strided.default] = _empty_strided(table.get(aten.empty_strided.default))


def _view(otherwise: Decomposition | None) -> Decomposition:
    def decomposition(x: Tensor, size: Sequence[int]) -> Any:
        if not _has_zero(x.shape):
            return otherwise(x, size) if otherwise else NotImplemented
        shape = [0 if length == -1 else length for length in size]  # torch infers no other size of no elements
        return aten.empty.memory_format(shape, dtype=x.dtype, device=x.device)

    return decomposition


def _cat(otherwise: Decomposition | None) -> Decomposition:
    def decomposition(tensors: Sequence[Tensor], dim: int = 0) -> Any:
        if not all(_has_zero(x.shape) for x in tensors):
            return otherwise(tensors, dim) if otherwise else NotImplemented
        kept = [x for x in tensors if x.shape != (0,)] or [tensors[0]]  # of any other rank, these count for nothing
        shape = list(kept[0].shape)
        shape[dim] = sum(x.shape[dim] for x in kept)
        dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors])
        return aten.empty.memory_format(shape, dtype=dtype, device=kept[0].device)

    return decomposition


def _empty_strided(otherwise: Decomposition | None) -> Decomposition:
    def decomposition(size: Sequence[int], stride: Sequence[int], **options: Any) -> Any:
        if not _has_zero(size):
            return otherwise(size, stride, **options) if otherwise else NotImplemented
        return aten.empty.memory_format(list(size), **options)

    return decomposition


def _has_zero(shape: Sequence[int]) -> bool:
    """Is a size known to be zero?  Dynamic ones are at least one."""
    return any(isinstance(size, int) and size == 0 for size in shape)
