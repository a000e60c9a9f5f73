"""Resizing of uint8 by eager's own arithmetic: weights in fixed point, rows first, bytes in between.

The weights of a dimension have as many fractional bits as keep the largest of them within 16 bits; products are added to a
half, and the fraction is cut off.  A weighted sum of real numbers would be another byte in one of five places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_LARGEST_WEIGHT = 2**15
_MOST_BITS = 22

Weights = Callable[[Any], Sequence[Any]]
"""How much the elements around a place count that lies a share of the way from one to the next: of numbers or tensors."""


def linear(share: Any) -> Sequence[Any]:
    """Of the element before and the one behind."""
    return (1.0 - share, share)


def cubic(share: Any) -> Sequence[Any]:
    """Of two before and two behind: cubic convolution (Keys, 1981) with -0.75 for its free constant."""
    near = [(1.25 * d - 2.25) * d * d + 1.0 for d in (share, 1.0 - share)]
    far = [((-0.75 * d + 3.75) * d - 6.0) * d + 3.0 for d in (1.0 + share, 2.0 - share)]
    return (far[0], *near, far[1])


def resize_bytes(
    x: Tensor, output_size: Sequence[int], align_corners: bool, factors: Sequence[float | None], weights: Weights
) -> Tensor:
    """``x`` ``[N, C, H, W]`` of uint8 → ``[N, C, *output_size]``; ``factors`` are those that the caller gave."""
    result = x.to(torch.int32)
    for dim in (3, 2):
        size, out, factor = x.shape[dim], output_size[dim - 2], factors[dim - 2]
        if size != out:
            result = _along(result, dim, _Sources(size, out, align_corners, factor, weights is cubic), weights)
    return result.to(torch.uint8)


class _Sources:
    """Where the positions of a result lie in the operand's dimension of ``size``; ``outside``: also before its border."""

    def __init__(self, size: int, out: int, align_corners: bool, factor: float | None, outside: bool) -> None:
        self.size, self.out, self.outside = size, out, outside or align_corners
        self.shift = 0.0 if align_corners else 0.5
        if align_corners:
            self.step = (size - 1) / (out - 1) if out > 1 else 0.0
        else:
            self.step = 1.0 / factor if factor is not None and factor > 0 else size / out

    def numbers(self) -> list[float]:
        """As numbers of Python."""
        found = [(place + self.shift) * self.step - self.shift for place in range(self.out)]
        return found if self.outside else [max(source, 0.0) for source in found]

    def tensor(self) -> Tensor:
        """The same in a program that is traced, float64."""
        found = (torch.arange(self.out, dtype=torch.float64) + self.shift) * self.step - self.shift
        return found if self.outside else torch.clamp(found, min=0.0)


def _along(x: Tensor, dim: int, sources: _Sources, weights: Weights) -> Tensor:
    """``x`` of int32 at the ``sources`` in ``dim``."""
    largest = max(weight for source in sources.numbers() for weight in _taps(source, sources.size, weights).values())
    bits = next((n for n in range(_MOST_BITS) if int(0.5 + largest * 2 ** (n + 1)) >= _LARGEST_WEIGHT), _MOST_BITS)
    source = sources.tensor()
    below = torch.clamp(torch.floor(source), max=sources.size - 1.0)
    counts = [*weights(torch.clamp(source - below, 0.0, 1.0))]
    first = below.to(torch.int64) + (1 - len(counts) // 2)
    places = [torch.clamp(first + number, 0, sources.size - 1) for number in range(len(counts))]
    for number in range(1, len(counts)):
        same = places[number] == places[number - 1]
        counts[number] = torch.where(same, counts[number] + counts[number - 1], counts[number])
        counts[number - 1] = torch.where(same, 0.0, counts[number - 1])
    total: Tensor | int = 2 ** (bits - 1)
    shape = [-1 if axis == dim else 1 for axis in range(4)]
    for place, count in zip(places, counts, strict=True):
        scaled = count * 2.0**bits
        fixed = torch.trunc(torch.where(scaled < 0, scaled - 0.5, scaled + 0.5)).to(torch.int32)
        total = x.index_select(dim, place) * fixed.reshape(shape) + total
    assert isinstance(total, Tensor)
    return torch.clamp(total >> bits, 0, 255)


def _taps(source: float, size: int, weights: Weights) -> dict[int, float]:
    """What counts at place ``source``, and how much: what lies outside counts as the element at the border."""
    below = min(math.floor(source), size - 1)
    counts = weights(min(max(source - below, 0.0), 1.0))
    found: dict[int, float] = {}
    for place, weight in enumerate(counts, start=below + 1 - len(counts) // 2):
        inside = min(max(place, 0), size - 1)
        found[inside] = found.get(inside, 0.0) + weight
    return found
