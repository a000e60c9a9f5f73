"""A convolution's image dimension by dimension: which pixels and which taps meet at an index.

Takes the coefficients of the image's index; leaves one :class:`Axis` per dimension, the form in which the copy engine of
Hopper can walk over pixels by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """A dimension of the image: pixel ``p`` and tap ``t`` meet at index ``p * stride + t * dilation - low``.

    Indices outside of ``size`` are zeros around the image.  Batches have no taps, channels no pixels: one of them each.
    """

    size: int
    pixels: int
    stride: int
    taps: int
    dilation: int
    low: int

    @property
    def upper(self) -> int:
        """From the last index to that of the last pixel's first tap."""
        return (self.pixels - 1) * self.stride - self.low - (self.size - 1)


def image_axes(
    shape: Sequence[int],
    linear: Sequence[Sequence[int]],
    sizes: Sequence[int],
    rows: Sequence[int],
    k: Sequence[int],
    lows: Sequence[int],
) -> tuple[Axis, ...] | None:
    """The axes of an image of ``shape`` without its zeros; ``lows`` of these stand before it.

    ``linear``: per dimension the coefficient of each loop, ``sizes``: of the loops.  None where pixels are not collapsed to
    ``rows``, or taps and channels to ``k``, in the order of the image's dimensions.
    """
    axes: list[Axis] = []
    pixel_order: list[int] = []
    tap_order: list[int] = []
    for size, coefficients, low in zip(shape, linear, lows, strict=True):
        loops = [loop for loop, c in enumerate(coefficients) if c and sizes[loop] != 1]
        pixels, taps = ([loop for loop in loops if loop in group] for group in (rows, k))
        if len(pixels) > 1 or len(taps) > 1 or len(pixels) + len(taps) != len(loops):
            return None
        pixel_order += pixels
        tap_order += taps
        pixel = (sizes[pixels[0]], coefficients[pixels[0]]) if pixels else (1, 1)
        tap = (sizes[taps[0]], coefficients[taps[0]]) if taps else (1, 1)
        axes.append(Axis(size, *pixel, *tap, low))
    return tuple(axes) if pixel_order == list(rows) and tap_order == list(k) else None
