"""Transposed convolutions with a stride or groups, as plain convolutions of the input and a rearrangement of their results.

The definition inserts zeros between the elements of the input, and most products of the convolution over it are with zero.
Each output position meets only the taps of one phase of the stride (Shi et al., "Is the deconvolution layer the same as a
convolutional layer?", 2016), so one convolution computes all phases of equally many taps as channels, and nothing is
multiplied by a zero that was put in: beside an infinity that would be NaN.  A stride of 1 has one phase; with groups, which
torch-mlir has no transposed convolution for, it goes this way as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend

aten = torch.ops.aten

_MAX_PIECES = 64  # of phases that lie apart: each is an operation of its own


def add_transposed_decompositions(table: dict[Any, Decomposition]) -> None:
    """Add the decompositions of this module to ``table``."""
    extend(table, aten.convolution.default, _transposed)


@dataclass(frozen=True)
class _Part:
    """The phases of one dimension that have ``taps`` taps each, ``first`` among them."""

    first: int
    phases: int
    taps: int


@dataclass(frozen=True)
class _Axis:
    """One spatial dimension: sizes of the input, the output and the kernel, and how they meet.

    Input position ``i`` and tap ``k`` add to position ``stride * i + dilation * k`` of the output before ``padding`` is cut
    off.  Taps whose number leaves the same rest modulo ``phases`` add to positions of the same phase.
    """

    size: int
    out: int
    kernel: int
    stride: int
    dilation: int
    padding: int

    @property
    def period(self) -> int:
        """Taps that many apart belong to one phase."""
        return self.stride // math.gcd(self.stride, self.dilation)

    @property
    def phases(self) -> int:
        """How many phases have a tap."""
        return min(self.kernel, self.period)

    @property
    def taps(self) -> int:
        """Taps of the longest phases; others have one less."""
        return -(-self.kernel // self.period)

    @property
    def parts(self) -> tuple[_Part, ...]:
        """The phases by their number of taps."""
        longest = self.kernel - (self.taps - 1) * self.period
        parts = (_Part(0, longest, self.taps), _Part(longest, self.phases - longest, self.taps - 1))
        return tuple(part for part in parts if part.phases)

    @property
    def step(self) -> int:
        """Input elements from one tap of a phase to the next."""
        return self.dilation // math.gcd(self.stride, self.dilation)

    @property
    def full(self) -> int:
        """Output positions of the longest phases, those in the padding included."""
        return self.reach(self.taps) + self.size

    @property
    def first(self) -> int:
        """Positions of each phase that lie in the padding before the output, and need not be computed."""
        in_padding = self.padding // self.stride if self.is_aligned else 0
        return min(in_padding, self.size + self.reach(self.parts[-1].taps) - 1)

    @property
    def length(self) -> int:
        """Positions of each phase from ``first`` on, without those in the padding behind the output."""
        stop = (self.padding + self.out - 1) // self.stride + 1 if self.is_aligned else self.full
        return min(self.full, stop) - self.first

    @property
    def is_aligned(self) -> bool:
        """Do equal positions of all phases lie in the padding together?"""
        return self.is_shuffle or self.stride == 1

    def reach(self, taps: int) -> int:
        """Input elements from the first of ``taps`` taps to the last."""
        return (taps - 1) * self.step

    def pads(self, part: _Part) -> tuple[int, int, int]:
        """Zeros before and behind the input of ``part``, less than none where it is cut, and behind the result.

        Phases of fewer taps end earlier.
        """
        reach = self.reach(part.taps)
        stop = min(self.size + reach, self.first + self.length)
        return reach - self.first, stop - self.size, self.first + self.length - stop

    @property
    def is_shuffle(self) -> bool:
        """Do the phases lie next to each other, phase 0 first, so that a transpose puts them into place?"""
        return self.dilation == 1

    def delay(self, phase: int) -> tuple[int, int]:
        """Where the first position of ``phase`` lies: which multiple of the stride, and how far behind it."""
        return divmod(phase * self.dilation, self.stride)


def _transposed(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """``aten.convolution`` where it is transposed with a stride or groups."""
    axes = _axes(x, weight, stride, padding, dilation, output_padding, groups) if transposed else None
    return _by_phases(x, weight, bias, axes, groups) if axes is not None else NotImplemented


def _axes(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> tuple[_Axis, ...] | None:
    """The spatial dimensions, or None where phases gain nothing, or the sizes are not known."""
    rank = x.dim() - 2
    sizes = x.shape[2:]
    if rank < 1 or not all(isinstance(size, int) for size in sizes) or x.dim() != weight.dim():
        return None
    axes = []
    for i in range(rank):
        s, p, d, extra = (values[i if len(values) > 1 else 0] for values in (stride, padding, dilation, output_padding))
        kernel = weight.shape[2 + i]
        out = (sizes[i] - 1) * s - 2 * p + d * (kernel - 1) + 1 + extra
        axes.append(_Axis(sizes[i], out, kernel, s, d, p))
    apart = sum(axis.phases for axis in axes if not axis.is_shuffle)
    is_plain = groups == 1 and all(axis.stride == 1 for axis in axes)
    if is_plain or any(a.out < 1 for a in axes) or apart > _MAX_PIECES:
        return None
    return tuple(axes)


def _by_phases(x: Tensor, weight: Tensor, bias: Tensor | None, axes: Sequence[_Axis], groups: int) -> Tensor:
    """``x`` ``[N, C, *sizes]``, ``weight`` ``[C, O / groups, *kernel]`` → ``[N, O, *out]``."""
    batch, rank, channels = x.shape[0], len(axes), weight.shape[1] * groups
    found = _phases(x, weight, axes, groups)
    for i, axis in enumerate(axes):
        # The phases of this dimension between what is in place already and what is not; its length is next to last.
        found = _in_place(found, axis, phase_at=2 + i, length_at=2 + rank + i)
    found = found.reshape(batch, channels, *(found.shape[2 + rank + i] for i in range(rank)))
    for i, axis in enumerate(axes):
        first = axis.padding - axis.first * axis.stride
        missing = first + axis.out - found.shape[2 + i]
        if missing > 0:
            found = aten.constant_pad_nd(found, [*[0, 0] * (rank - 1 - i), 0, missing], 0)
        found = found.narrow(2 + i, first, axis.out)
    return found if bias is None else found + bias.reshape(-1, *[1] * rank)


def _phases(x: Tensor, weight: Tensor, axes: Sequence[_Axis], groups: int, parts: tuple[_Part, ...] = ()) -> Tensor:
    """``[N, O, *phases, *lengths]``: all phases of the dimensions after those for which ``parts`` says which are wanted."""
    if len(parts) < len(axes):
        found = [_phases(x, weight, axes, groups, (*parts, part)) for part in axes[len(parts)].parts]
        return found[0] if len(found) == 1 else torch.cat(found, 2 + len(parts))
    rank, both = len(axes), list(zip(axes, parts, strict=True))
    filters = _filters(weight, both, groups)
    before, behind, missing = zip(*(axis.pads(part) for axis, part in both), strict=True)
    is_even = before == behind and min(before) >= 0
    given = x if is_even else _padded(x, before, behind)
    padding = before if is_even else [0] * rank
    phases = aten.convolution(
        given, filters, None, [1] * rank, padding, [axis.step for axis in axes], False, [0] * rank, groups
    )  # fmt: skip
    phases = phases.reshape(x.shape[0], -1, *(part.phases for part in parts), *phases.shape[2:])
    pads = [amount for count in reversed(missing) for amount in (0, count)]
    return aten.constant_pad_nd(phases, pads, 0) if any(pads) else phases


def _padded(x: Tensor, before: Sequence[int], behind: Sequence[int]) -> Tensor:
    """``x`` with zeros around its spatial dimensions, and cut where their number is negative."""
    for i, (front, back) in enumerate(zip(before, behind, strict=True)):
        start, size = max(0, -front), x.shape[2 + i] + min(0, front) + min(0, back)
        x = x.narrow(2 + i, start, size) if size < x.shape[2 + i] else x
    pads = [max(0, amount) for pair in zip(before[::-1], behind[::-1], strict=True) for amount in pair]
    return aten.constant_pad_nd(x, pads, 0) if any(pads) else x


def _filters(weight: Tensor, axes: Sequence[tuple[_Axis, _Part]], groups: int) -> Tensor:
    """The parts' filters, ``[groups * O / groups * phases, C / groups, *taps]``, as a plain convolution takes them."""
    rank, (inputs, outputs) = len(axes), weight.shape[:2]
    pads = [amount for axis, _ in reversed(axes) for amount in (0, axis.taps * axis.period - axis.kernel)]
    padded = aten.constant_pad_nd(weight, pads, 0) if any(pads) else weight
    # Tap k of a dimension is tap k // period of phase k % period.
    split = padded.reshape(groups, inputs // groups, outputs, *(n for axis, _ in axes for n in (axis.taps, axis.period)))
    for i, (_, part) in enumerate(axes):
        split = split.narrow(3 + 2 * i, 0, part.taps).narrow(4 + 2 * i, part.first, part.phases)
    phases, taps = [4 + 2 * i for i in range(rank)], [3 + 2 * i for i in range(rank)]
    ordered = split.permute(0, 2, *phases, 1, *taps)
    filters = ordered.reshape(-1, inputs // groups, *(part.taps for _, part in axes))
    # A convolution meets the last tap first.
    turned = [2 + i for i, (_, part) in enumerate(axes) if part.taps > 1]
    return filters.flip(turned) if turned else filters


def _in_place(found: Tensor, axis: _Axis, *, phase_at: int, length_at: int) -> Tensor:
    """The phases of one dimension interleaved along it; what was their dimension is left with size 1."""
    if axis.stride == 1:
        return found
    if axis.is_shuffle:
        places = found.unsqueeze(length_at + 1).transpose(phase_at, length_at + 1)
        if axis.phases < axis.stride:
            pads = [0, 0] * (places.dim() - length_at - 2) + [0, axis.stride - axis.phases]
            places = aten.constant_pad_nd(places, pads, 0)
        return places.flatten(length_at, length_at + 1)
    delays = {axis.delay(phase)[1]: (phase, axis.delay(phase)[0]) for phase in range(axis.phases)}
    longest = max(multiple for _, multiple in delays.values())
    pieces = []
    for place in range(axis.stride):
        phase, multiple = delays.get(place, (0, 0))
        piece = found.narrow(phase_at, phase, 1)
        pads = [0, 0] * (found.dim() - length_at - 1) + [multiple, longest - multiple]
        piece = aten.constant_pad_nd(piece, pads, 0) if longest else piece
        pieces.append(piece if place in delays else torch.zeros_like(piece))
    return torch.stack(pieces, length_at + 1).flatten(length_at, length_at + 1)
