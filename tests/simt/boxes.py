"""The geometry of the copy engine's boxes: which elements of a tensor, and where in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .faults import Fault
from .tensor_maps import TensorMap


def box_offsets(layout: TensorMap) -> tuple[Any, int]:
    """Where each element of a box lies in shared memory, in bytes, innermost dimension last; and the bytes of the box.

    The 16-byte chunk c of a row of 128 (64, 32) bytes goes to chunk ``c ^ row % 8`` (in pairs of rows: ``% 4``; fours:
    ``% 2``), where the rows are counted in shared memory from a multiple of 1024 (512, 256) bytes on.
    """
    size = layout.element_bytes
    steps = (1, 1) if layout.lower else layout.element_strides or (1,) * len(layout.box)
    counts = [-(-box // step) for box, step in zip(layout.box, steps, strict=True)]
    linear = np.arange(int(np.prod(counts))) * size
    return linear.reshape(counts[::-1]), int(np.prod(counts)) * size


def swizzled(addresses: Any, swizzle: int) -> Any:
    """Byte addresses of shared memory after the swizzle of 128, 64, 32 or 0 bytes."""
    if swizzle == 0:
        return addresses
    bits = {128: 3, 64: 2, 32: 1}[swizzle]
    return addresses ^ (((addresses >> 7) & ((1 << bits) - 1)) << 4)


def tile_elements(layout: TensorMap, coordinates: Sequence[int]) -> tuple[Any, Any]:
    """Global addresses of the elements of a box, in the order of :func:`box_offsets`, and which are inside the tensor."""
    steps = layout.element_strides or (1,) * len(layout.box)
    total, inside = np.int64(layout.address), np.bool_(True)
    strides = (layout.element_bytes, *layout.strides)
    for axis in reversed(range(len(layout.sizes))):
        count = -(-layout.box[axis] // steps[axis])
        index = coordinates[axis] + np.arange(count, dtype=np.int64) * steps[axis]
        shape = [1] * len(layout.sizes)
        shape[len(layout.sizes) - 1 - axis] = count
        total = total + (index * strides[axis]).reshape(shape)
        inside = inside & ((index >= 0) & (index < layout.sizes[axis])).reshape(shape)
    return total, inside


def pixel_elements(layout: TensorMap, coordinates: Sequence[int], offsets: Sequence[int]) -> tuple[Any, Any]:
    """The same in im2col mode: pixels in order from ``coordinates`` on, each moved by ``offsets``.

    Pixels of an image are every ``element_strides`` one from ``lower`` to ``size - 1 + upper`` of each spatial dimension.
    """
    channels, *spatial, images = layout.sizes
    steps = layout.element_strides[1:-1] or (1,) * len(spatial)
    first, *pixel, image = coordinates
    counts = [(n - 1 + up - low) // s + 1 for n, up, low, s in zip(spatial, layout.upper, layout.lower, steps, strict=True)]
    number = image
    for at, low, step, count in reversed(list(zip(pixel, layout.lower, steps, counts, strict=True))):
        if (at - low) % step or not 0 <= (at - low) // step < count:
            raise Fault(f"a load begins at pixel {pixel}, which is none of {layout}")
        number = number * count + (at - low) // step
    numbers = number + np.arange(layout.box[1], dtype=np.int64)
    inside, total = np.bool_(True), np.int64(layout.address)
    ranges = zip(counts, layout.lower, steps, offsets, spatial, layout.strides, strict=False)  # the last stride: of images
    for count, low, step, offset, size, stride in ranges:
        index = low + numbers % count * step + offset
        inside, total, numbers = inside & (index >= 0) & (index < size), total + index * stride, numbers // count
    inside, total = inside & (numbers < images), total + numbers * layout.strides[-1]
    channel = first + np.arange(layout.box[0], dtype=np.int64)
    inside = inside[:, None] & ((channel >= 0) & (channel < channels))
    return total[:, None] + channel * layout.element_bytes, inside


def shared_places(layout: TensorMap, base: int, window_start: int) -> tuple[Any, int]:
    """Memory addresses of the elements of a box in shared memory at ``base``."""
    offsets, size = box_offsets(layout)
    # The swizzle looks at shared addresses; windows begin at multiples of 1024, so relative ones do.
    relative = swizzled(base - window_start + offsets, layout.swizzle)
    return relative + window_start, size
