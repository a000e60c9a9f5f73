"""Decompositions of ATen's backward operations of pooling and replicating, which AOTAutograd alone brings to the front end.

The average over windows and the copy of an edge are linear and act on each axis alone: a product with one matrix an axis,
whose transpose gives the gradient.  A maximum hands its gradient to the element that its index names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.half import accumulation

aten = torch.ops.aten


def add_window_gradient_decompositions(table: dict[Any, Callable[..., Any]]) -> None:
    """Add the decompositions of this module to ``table``."""
    table[aten.avg_pool2d_backward.default] = functools.partial(_avg_pool_backward, 2)
    table[aten.avg_pool3d_backward.default] = functools.partial(_avg_pool_backward, 3)
    table[aten._adaptive_avg_pool2d_backward.default] = functools.partial(_adaptive_avg_pool_backward, 2)
    table[aten._adaptive_avg_pool3d_backward.default] = functools.partial(_adaptive_avg_pool_backward, 3)
    table[aten.adaptive_max_pool2d_backward.default] = functools.partial(_max_pool_backward, 2)
    table[aten.adaptive_max_pool3d_backward.default] = functools.partial(_max_pool_backward, 3)
    table[aten.max_pool3d_with_indices_backward.default] = _max_pool3d_backward
    for op in (aten.replication_pad1d_backward, aten.replication_pad2d_backward, aten.replication_pad3d_backward):
        table[op.default] = _replication_pad_backward


def _avg_pool_backward(
    rank: int,
    gradient: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """The gradient of ``x`` ``[..., *spatial]``, whose last ``rank`` axes were pooled."""
    kernel, steps, pads = (_of_axes(sizes, rank) for sizes in (kernel_size, stride or kernel_size, padding))
    found = gradient.to(accumulation(gradient.dtype))
    for axis, (window, step, pad) in zip(range(-rank, 0), zip(kernel, steps, pads, strict=True), strict=True):
        size = x.shape[axis]
        starts = torch.arange(gradient.shape[axis], device=x.device) * step - pad
        counted = None
        if divisor_override:
            counted = torch.ones_like(starts)
        elif count_include_pad:  # a window may reach beyond the padding, which does not count
            counted = torch.clamp(starts + window, max=size + pad) - starts
        found = _spread(found, axis, size, starts, starts + window, counted)
    return (found / divisor_override if divisor_override else found).to(gradient.dtype)


def _adaptive_avg_pool_backward(rank: int, gradient: Tensor, x: Tensor) -> Tensor:
    """As :func:`_avg_pool_backward`; window ``o`` of ``n`` begins at ``floor(o * size / n)`` and ends where the
    next one, rounded up, would begin."""
    found = gradient.to(accumulation(gradient.dtype))
    for axis in range(-rank, 0):
        size, count = x.shape[axis], gradient.shape[axis]
        windows = torch.arange(count, device=x.device) * size
        found = _spread(found, axis, size, windows // count, (windows + size + count - 1) // count, None)
    return found.to(gradient.dtype)


def _replication_pad_backward(gradient: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    """The gradient of ``x``, whose edges were repeated; ``padding`` has two numbers an axis, those of the last one first."""
    found = gradient.to(accumulation(gradient.dtype))
    for number, before in enumerate(padding[::2]):
        axis = -1 - number
        size = x.shape[axis]
        source = torch.clamp(torch.arange(gradient.shape[axis], device=x.device) - before, 0, size - 1)
        found = _spread(found, axis, size, source, source + 1, torch.ones_like(source))
    return found.to(gradient.dtype)


def _of_axes(sizes: Sequence[int], rank: int) -> list[int]:
    return list(sizes) * rank if len(sizes) == 1 else list(sizes)


def _spread(gradient: Tensor, axis: int, size: int, starts: Tensor, ends: Tensor, counted: Tensor | None) -> Tensor:
    """Give each of ``size`` elements of ``axis`` its share of the windows' gradients: window ``o`` has the elements from
    ``starts[o]`` up to ``ends[o]`` and divides by ``counted[o]``, or by how many there are."""
    position = torch.arange(size, device=gradient.device)
    inside = (position >= starts.unsqueeze(1)) & (position < ends.unsqueeze(1))  # [windows, size]
    if counted is None:
        counted = inside.sum(1)
    shares = inside.to(gradient.dtype) / counted.to(gradient.dtype).unsqueeze(1)
    return torch.matmul(gradient.movedim(axis, -1), shares).movedim(-1, axis)


def _max_pool_backward(rank: int, gradient: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    """Add ``gradient`` to zeros like ``x`` where ``indices`` say; these count through the last ``rank`` axes."""
    outer, spatial = x.shape[:-rank], x.shape[-rank:]
    zeros = gradient.new_zeros(x.shape).reshape(*outer, -1)
    added = zeros.scatter_add(-1, indices.reshape(*outer, -1), gradient.reshape(*outer, -1))
    return added.reshape(*outer, *spatial)


def _max_pool3d_backward(gradient: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """Of windows of one size: where they lie does not matter, since the last of ``rest`` are the indices."""
    return _max_pool_backward(3, gradient, x, rest[-1])
