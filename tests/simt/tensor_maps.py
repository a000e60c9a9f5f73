"""Tensor maps: how the copy engine sees a buffer, as objects in the emulated memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .build import python_value
from .faults import Fault
from .memory import Memory

BYTES = 128  # size of a tensor map object
_ELEMENT_BYTES = {"f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "i8": 1}


@dataclass(frozen=True, eq=False)
class TensorMap:
    """Innermost dimension first, ``strides`` in bytes without the innermost; ``array`` is what it lies over (for tests).

    ``element``: "f32", "tf32", "f16", "bf16", "i8".  With corners (``lower``, ``upper``) it is over pixels of images, and
    ``box`` are channels and pixels.
    """

    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    element_strides: tuple[int, ...] = ()
    array: Any = None
    address: int = 0
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return _ELEMENT_BYTES[self.element]

    def check(self, address: int) -> None:
        """What the driver refuses: cuTensorMapEncodeTiled."""
        inner = self.box[0] * self.element_bytes
        wrong = {
            "an address that is no multiple of 16 bytes": address % 16,
            "strides that are no multiples of 16 bytes": any(stride % 16 for stride in self.strides),
            "as many strides as dimensions": len(self.strides) != len(self.sizes) - 1,
            "boxes of another rank": len(self.box) != (2 if self.lower else len(self.sizes)),
            "more than five dimensions": not 1 <= len(self.sizes) <= 5,
            "a size of 0": min(self.sizes) < 1,
            "a box of more than 256 elements along a dimension": not 1 <= min(self.box) <= max(self.box) <= 256,
            "element strides above 8": max(self.element_strides, default=1) > 8,
            "corners or a window that do not fit": not self._corners_fit(),
            "a box whose rows are no multiples of 16 bytes": inner % 16,
            "a box whose rows are longer than the swizzle": self.swizzle and inner > self.swizzle,
        }
        for what, holds in wrong.items():
            if holds:
                raise Fault(f"a tensor map with {what}: {self}")

    def _corners_fit(self) -> bool:
        """16 bits for all spatial dimensions together."""
        if not self.lower:
            return True
        spatial = len(self.sizes) - 2
        limit = {1: 1 << 15, 2: 1 << 7, 3: 1 << 4}.get(spatial, 0)
        return len(self.lower) == len(self.upper) == spatial and all(-limit <= c < limit for c in self.lower + self.upper)

    @classmethod
    def from_attribute(cls, attribute: Any, memory_sizes: Sequence[Any] = ()) -> TensorMap:
        """From the dictionary on the host's cast of a memref of these sizes."""
        entries = {name: python_value(attribute[name]) for name in ("element", "sizes", "strides", "box", "swizzle")}
        for name in ("element_strides", "lower", "upper"):
            entries[name] = python_value(attribute[name]) if name in attribute else ()
        if varying := python_value(attribute["varying"]) if "varying" in attribute else ():
            axis, dimension, factor = varying
            entries["sizes"][axis] = int(memory_sizes[dimension]) * factor
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in entries.items()})

    def place(self, memory: Memory, address: int) -> Any:
        """An object in memory for this map over the buffer at ``address``; returns a pointer to it."""
        self.check(address)
        where = memory.allocate(BYTES, "tensor map", 64)
        memory.tensor_maps[where] = replace(self, array=None, address=address)
        return np.int64(where)
