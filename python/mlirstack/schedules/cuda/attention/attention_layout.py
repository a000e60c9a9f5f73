"""Where the elements of a tensor lie in memory, seen through views: dimensions made of digits with strides of their own.

A dimension of size 8 may be two heads far apart, each repeated four times: the digits ``(2, far), (4, 0)``.  Splitting,
merging, permuting, slicing and repeating dimensions are then exact rearrangements of digits, and no copy has to be made.
The notation is that of CuTe's layouts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Digit = tuple[int, int]  # size, and stride in elements
Dimension = tuple[Digit, ...]  # most significant digit first, in normal form (see `dimension`)


def dimension(digits: Iterable[Digit]) -> Dimension:
    """The normal form: no digit of size 1, neighbours that continue each other merged."""
    merged: list[Digit] = []
    for size, stride in digits:
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return tuple(merged)


def size_of(digits: Iterable[Digit]) -> int:
    """Number of indices of a dimension."""
    return math.prod(size for size, _ in digits)


def split(digits: Sequence[Digit], sizes: Sequence[int]) -> list[Dimension] | None:
    """Cut a dimension into consecutive ones of the given sizes; None where a digit cannot be cut there."""
    rest = [*digits]
    pieces: list[Dimension] = []
    for size in reversed(sizes):
        piece: list[Digit] = []
        while size_of(piece) < size:
            if not rest:
                return None
            wanted, (whole, stride) = size // size_of(piece), rest.pop()
            taken = math.gcd(whole, wanted)
            if taken != min(whole, wanted):
                return None
            piece.insert(0, (taken, stride))
            if taken < whole:
                rest.append((whole // taken, stride * taken))
        pieces.insert(0, dimension(piece))
    return pieces if size_of(rest) == 1 else None


def compose(flat: Sequence[Digit], inner: Dimension) -> Dimension | None:
    """``flat`` read at the indices that ``inner`` yields, ``x → flat(inner(x))``; None if digits do not fit."""
    total, result = size_of(flat), list[Digit]()
    for size, stride in inner:
        if stride == 0:
            result.append((size, 0))
            continue
        if stride < 0 or total % (size * stride):
            return None
        pieces = split(flat, (total // (size * stride), size, stride))
        if pieces is None:
            return None
        result += pieces[1] or ((size, 0),)
    return dimension(result)


@dataclass(frozen=True)
class Layout:
    """One :data:`Dimension` per index; an element's place is ``offset`` plus the strides of all digits, in elements."""

    dimensions: tuple[Dimension, ...]
    offset: int = 0

    @staticmethod
    def dense(shape: Sequence[int]) -> Layout:
        """Row-major without gaps."""
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        return Layout(tuple(dimension([digit]) for digit in zip(shape, strides, strict=True)))

    def permute(self, order: Sequence[int]) -> Layout:
        """Dimension ``i`` of the result is dimension ``order[i]``."""
        return Layout(tuple(self.dimensions[i] for i in order), self.offset)

    def collapse(self, groups: Sequence[Sequence[int]]) -> Layout:
        """Neighbouring dimensions made one."""
        joined = (dimension(digit for i in group for digit in self.dimensions[i]) for group in groups)
        return Layout(tuple(joined), self.offset)

    def expand(self, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> Layout | None:
        """Dimensions made several, of the sizes in ``shape``; None where a digit cannot be cut."""
        result: list[Dimension] = []
        for digits, group in zip(self.dimensions, groups, strict=True):
            pieces = split(digits, [shape[i] for i in group])
            if pieces is None:
                return None
            result += pieces
        return Layout(tuple(result), self.offset)

    def slice(self, offsets: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> Layout | None:
        """A part of each dimension; None where the part begins or ends inside of a digit that is not the only one."""
        result, offset = list[Dimension](), self.offset
        for digits, start, size, step in zip(self.dimensions, offsets, sizes, steps, strict=True):
            whole = size_of(digits)
            if (start, size) == (0, whole):
                result.append(digits)
                continue
            if len(digits) != 1:
                return None
            stride = digits[0][1]
            offset += start * stride
            result.append(dimension([(size, stride * step)]))
        return Layout(tuple(result), offset)

    def stride(self, index: int) -> int | None:
        """The stride of a dimension that is a single digit (0 for size 1); None for others."""
        digits = self.dimensions[index]
        if not digits:
            return 0
        return digits[0][1] if len(digits) == 1 else None

    def ignores(self, index: int) -> bool:
        """Is the same element read for every index of this dimension?"""
        return all(stride == 0 for _, stride in self.dimensions[index])


def inverse(layout: Layout) -> Dimension | None:
    """Of a layout that visits each of the places 0, 1, …, n-1 once: the dense index of each place, as one flat dimension."""
    flat = [digit for digits in layout.dimensions for digit in digits]
    dense = [(size, stride, size_of(flat[i + 1 :])) for i, (size, stride) in enumerate(flat)]
    expected, result = 1, list[Digit]()
    for size, place, stride in sorted(dense, key=lambda entry: entry[1]):
        if place != expected:
            return None
        result.insert(0, (size, stride))
        expected *= size
    return dimension(result) if layout.offset == 0 else None
