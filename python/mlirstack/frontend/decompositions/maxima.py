"""Maxima over windows beside NaN and negative infinity, as eager takes them.

Eager walks through a window, and goes on to an element that is larger, or NaN: the place it names is the first of the
largest ones, the last NaN, and where all are negative infinity the one it began with.  Torch-mlir compares only: its
adaptive poolings lose NaN, and of a window that has one it names no place (torch-mlir 20261001).  Which elements are NaN is
pooled by itself here, as the numbers of their places; nothing of it is left where no place is read.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend, not_itself

aten = torch.ops.aten

_MAXIMA = {2: aten.max_pool2d_with_indices.default, 3: aten.max_pool3d_with_indices.default}
_ADAPTIVE = {2: aten.adaptive_max_pool2d.default, 3: aten.adaptive_max_pool3d.default}

_EXACT = 2**24  # places up to here are numbers of float32


def add_maxima_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``, for real numbers."""
    for rank, op in _MAXIMA.items():
        extend(table, op, functools.partial(_max_pool, rank))
    for rank, op in _ADAPTIVE.items():
        extend(table, op, functools.partial(_adaptive_max_pool, rank))


@not_itself
def _max_pool(
    rank: int,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Maxima ``[..., *windows]`` of ``x`` ``[..., *sizes]``, and their places in the image."""
    if not x.is_floating_point():
        return NotImplemented
    options = kernel, stride, padding, dilation, ceil_mode
    is_batch = x.dim() > rank + 1
    x = x if is_batch else x.unsqueeze(0)  # torch-mlir's conversion to linalg takes batches alone
    values, places = _MAXIMA[rank](x, *options)
    last = _MAXIMA[rank](_numbers_of_nan(x, rank), *options)[0]
    steps, pads, widths = (_each(value, rank) for value in (stride or kernel, padding, dilation))
    first = []
    for count, step, pad, width in zip(values.shape[-rank:], steps, pads, widths, strict=True):
        start = torch.arange(count, device=x.device) * step - pad
        # The first place that is no padding.
        outside = torch.div(width - 1 - start, width, rounding_mode="floor")
        first.append(torch.where(start < 0, start + outside * width, start))
    found = values, _places(values, places, last, _number(first, x.shape[-rank:]))
    return found if is_batch else tuple(result.squeeze(0) for result in found)


@not_itself
def _adaptive_max_pool(rank: int, x: Tensor, output_size: Sequence[int]) -> Any:
    """Maxima of ``x`` ``[..., *sizes]`` over windows from ``i * size // wanted`` up to the next, and their places."""
    if not x.is_floating_point():
        return NotImplemented
    sizes, wanted = x.shape[-rank:], list(output_size)
    if wanted == [1] * rank:
        return _whole(rank, x)
    if all(isinstance(n, int) and n > 0 for n in (*sizes, *wanted)):
        kernel = [size // count for size, count in zip(sizes, wanted, strict=True)]
        if all(size % count == 0 for size, count in zip(sizes, wanted, strict=True)):
            return _MAXIMA[rank](x, kernel, kernel)
    values, places = _ADAPTIVE[rank](x, wanted)
    kinds = torch.where(x == -math.inf, -2.0, _numbers_of_nan(x, rank))
    last = _ADAPTIVE[rank](kinds, wanted)[0]
    first = [
        torch.div(torch.arange(count, device=x.device) * size, count, rounding_mode="floor")
        for size, count in zip(sizes, wanted, strict=True)
    ]
    # Torch-mlir begins with the lowest finite number, and names no place of one that is not above it.
    values = torch.where(last >= 0, math.nan, torch.where(last < -1, -math.inf, values))
    return values, _places(values, places, last, _number(first, sizes))


def _whole(rank: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """One window, which is the image."""
    flat = x.flatten(-rank)
    last = _numbers_of_nan(x, rank).flatten(-rank).amax(-1)
    places = torch.where(last >= 0, last.to(torch.int64), flat.argmax(-1))
    shape = [*x.shape[:-rank], *[1] * rank]
    return flat.amax(-1).reshape(shape), places.reshape(shape)


def _places(values: Tensor, places: Tensor, last: Tensor, first: Tensor) -> Tensor:
    """``places`` of ``values``, where ``last`` is the number of the last NaN, or negative, and ``first`` that of the first
    element."""
    places = torch.where(values <= torch.finfo(values.dtype).min, first, places)
    return torch.where(last >= 0, last.to(torch.int64), places)


def _numbers_of_nan(x: Tensor, rank: int) -> Tensor:
    """The number of its place in the image where ``x`` is NaN, -1 elsewhere, in a dtype that holds them all."""
    sizes = x.shape[-rank:]
    numbers = _number([torch.arange(size, device=x.device) for size in sizes], sizes)
    is_small = all(isinstance(size, int) for size in sizes) and math.prod(sizes) <= _EXACT
    return torch.where(x.isnan(), numbers.to(torch.float32 if is_small else torch.float64), -1.0)


def _number(positions: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """The numbers of places in an image, by their positions along each of its dimensions."""
    total = positions[0]
    for position, size in zip(positions[1:], sizes[1:], strict=True):
        total = total.unsqueeze(-1) * size + position
    return total


def _each(value: Any, rank: int) -> list[int]:
    numbers = list(value) if isinstance(value, (list, tuple)) else [value]
    return numbers * rank if len(numbers) == 1 else numbers
