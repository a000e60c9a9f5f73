"""Pooling for the TOSA route as what happens at each place of a window: TOSA pools float32 images of one kind only.

A window is walked through place by place, each a strided slice of the padded image, so a formula has as many steps as the
window has places.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mlirstack.frontend.replace_nodes import Rule

aten = torch.ops.aten

_LARGEST = 128  # places of a window, or windows of an adaptive pooling


def window_rules() -> dict[Any, Rule]:
    """Operator overload → rule, see :mod:`mlirstack.frontend.replace_nodes`."""
    return {
        aten.max_pool2d_with_indices.default: functools.partial(_max_pool, 2),
        aten.max_pool3d_with_indices.default: functools.partial(_max_pool, 3),
        aten.avg_pool2d.default: functools.partial(_avg_pool, 2),
        aten.avg_pool3d.default: functools.partial(_avg_pool, 3),
        aten.adaptive_max_pool2d.default: _adaptive_max_pool,
        aten.adaptive_max_pool3d.default: _adaptive_max_pool,
        aten._adaptive_avg_pool3d.default: _adaptive_avg_pool,
    }


@dataclass(frozen=True)
class _Axis:
    """One dimension that is pooled: the window at ``p`` begins at ``p * stride - padding``."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    ceil: bool

    @property
    def count(self) -> int:
        """Windows; with ``ceil`` the last may hang over the end, but begins before it."""
        room = self.size + 2 * self.padding - self.dilation * (self.kernel - 1) - 1
        count = (math.ceil(room / self.stride) if self.ceil else room // self.stride) + 1
        return count - 1 if self.ceil and (count - 1) * self.stride >= self.size + self.padding else count

    @property
    def pads(self) -> tuple[int, int]:
        """Elements to add in front and behind, so that no window leaves the image."""
        end = (self.count - 1) * self.stride + self.dilation * (self.kernel - 1) + 1
        return self.padding, max(0, end - self.size - self.padding)

    def place(self, number: int) -> slice:
        """The elements at place ``number`` of all windows, in the padded image."""
        first = number * self.dilation
        return slice(first, first + (self.count - 1) * self.stride + 1, self.stride)


def _axes(x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, rank: int) -> list[_Axis]:
    def each(value: Any) -> list[int]:
        numbers = list(value) if isinstance(value, (list, tuple)) else [value]
        return numbers * rank if len(numbers) == 1 else numbers

    sizes = list(x.shape[-rank:])
    options = (each(kernel), each(stride or kernel), each(padding), each(dilation))
    return [_Axis(size, k, s, p, d, ceil) for size, k, s, p, d in zip(sizes, *options, strict=True)]


def _padded(x: Tensor, axes: Sequence[_Axis], value: float) -> Tensor:
    pads = [pad for axis in reversed(axes) for pad in axis.pads]
    return functional.pad(x, pads, value=value) if any(pads) else x


def _max_pool(
    rank: int,
    used: frozenset[int],
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    axes = _axes(x, kernel, stride, padding, dilation, ceil_mode, rank)
    plain = all(axis.dilation == 1 for axis in axes)
    kernels = [axis.kernel for axis in axes]
    steps = math.prod(kernels) if 1 in used else sum(kernels)
    if (plain and 1 not in used) or steps > _LARGEST or not x.is_floating_point():
        return NotImplemented
    padded = _padded(x, axes, -math.inf)
    if 1 not in used:
        for number, axis in enumerate(axes, start=-len(axes)):
            padded = _largest([_cut(padded, number, axis.place(place)) for place in range(axis.kernel)])
        return padded, torch.zeros(padded.shape, dtype=torch.int64)
    best = position = None
    for places in itertools.product(*(range(axis.kernel) for axis in axes)):
        value = _part(padded, [axis.place(place) for axis, place in zip(axes, places, strict=True)])
        at = _position(axes, places)
        if best is None or position is None:
            best, position = value, at.expand(value.shape)
            continue
        better = torch.logical_or(value > best, torch.isnan(value))
        best, position = torch.where(better, value, best), torch.where(better, at, position)
    return best, position


def _part(x: Tensor, places: Sequence[slice]) -> Tensor:
    """``x`` cut along its last dimensions."""
    for number, place in enumerate(places, start=-len(places)):
        x = _cut(x, number, place)
    return x


def _cut(x: Tensor, number: int, place: slice) -> Tensor:
    """``x`` cut along dimension ``number``."""
    return x.movedim(number, -1)[..., place].movedim(-1, number)


def _along(numbers: Tensor, number: int, rank: int) -> Tensor:
    """``numbers`` along dimension ``number`` of ``rank`` ones, to be broadcast along the others."""
    return numbers.reshape([-1 if axis == number else 1 for axis in range(rank)])


def _largest(values: Sequence[Tensor]) -> Tensor:
    found = values[0]
    for value in values[1:]:
        found = torch.maximum(found, value)
    return found


def _position(axes: Sequence[_Axis], places: Sequence[int]) -> Tensor:
    """The number of each window's element in the image; in the first place of a window the first that is no padding."""
    total = torch.zeros((), dtype=torch.int64)
    for number, (axis, place) in enumerate(zip(axes, places, strict=True)):
        start = torch.arange(axis.count) * axis.stride - axis.padding
        outside = torch.where(start < 0, torch.div(axis.dilation - 1 - start, axis.dilation, rounding_mode="trunc"), 0)
        at = start + (torch.maximum(outside, torch.full((), place)) if not any(places) else place) * axis.dilation
        total = total * axis.size + _along(at, number, len(axes))
    return total


def _avg_pool(
    rank: int,
    used: frozenset[int],
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    axes = _axes(x, kernel, stride, padding, 1, ceil_mode, rank)
    plain = rank == 2 and x.is_floating_point() and divisor_override is None
    if plain or sum(axis.kernel for axis in axes) > _LARGEST:
        return NotImplemented
    total = _padded(x, axes, 0)
    for number, axis in enumerate(axes, start=-len(axes)):
        total = sum(_cut(total, number, axis.place(place)) for place in range(axis.kernel))  # type: ignore[assignment]
    divisor = torch.full((), divisor_override or 1)
    if divisor_override is None:
        for number, axis in enumerate(axes):
            start = torch.arange(axis.count) * axis.stride - axis.padding
            end = torch.clamp(start + axis.kernel, max=axis.size + axis.padding)
            inside = torch.clamp(end, max=axis.size) - torch.clamp(start, min=0)
            divisor = divisor * _along(end - start if count_include_pad else inside, number, len(axes))
    if x.is_floating_point():
        return total / divisor.to(x.dtype)
    return torch.div(total, divisor.to(x.dtype), rounding_mode="trunc")


def _adaptive_spans(size: int, count: int) -> list[tuple[int, int]]:
    return [(number * size // count, -((number + 1) * size // -count)) for number in range(count)]


def _adaptive_avg_pool(used: frozenset[int], x: Tensor, sizes: Sequence[int]) -> Any:
    for number, count in enumerate(sizes, start=-len(sizes)):
        spans = _adaptive_spans(x.shape[number], count)
        x = torch.cat([_cut(x, number, slice(*span)).mean(number, keepdim=True) for span in spans], number)
    return x


def _adaptive_max_pool(used: frozenset[int], x: Tensor, sizes: Sequence[int]) -> Any:
    windows_alike = all(size % count == 0 for size, count in zip(x.shape[-len(sizes) :], sizes, strict=True))
    if 1 not in used and windows_alike and len(sizes) == 2:
        return NotImplemented
    if 1 not in used:
        for number, count in enumerate(sizes, start=-len(sizes)):
            cuts = _adaptive_spans(x.shape[number], count)
            x = torch.cat([_cut(x, number, slice(*span)).amax(number, keepdim=True) for span in cuts], number)
        return x, torch.zeros(x.shape, dtype=torch.int64)
    if math.prod(sizes) > _LARGEST:
        return NotImplemented
    rank = len(sizes)
    image = list(x.shape[-rank:])
    values, positions = [], []
    for spans in itertools.product(*(_adaptive_spans(size, count) for size, count in zip(image, sizes, strict=True))):
        part = _part(x, [slice(*span) for span in spans])
        flat = part.reshape(*part.shape[:-rank], -1)
        values.append(flat.amax(-1))
        positions.append(_unflattened(flat.argmax(-1), spans, image))
    shape = [*x.shape[:-rank], *sizes]
    return torch.stack(values, -1).reshape(shape), torch.stack(positions, -1).reshape(shape)


def _unflattened(inner: Tensor, spans: Sequence[tuple[int, int]], image: Sequence[int]) -> Tensor:
    """Positions in a part of an image as positions in the image."""
    total, stride = torch.zeros_like(inner), 1
    for (first, end), size in zip(reversed(spans), reversed(image), strict=True):
        rest = torch.div(inner, end - first, rounding_mode="trunc")
        total = total + (inner - rest * (end - first) + first) * stride
        inner, stride = rest, stride * size
    return total
