"""Views of memory that somebody else owns, as IREE's modules take them.

A call passes a view of every tensor.  Here views are made once for each address, shape and dtype, and found again by calls
that follow.  They keep no memory alive: whoever passes one holds the memory until the call is over.
"""

from __future__ import annotations

import math
from typing import Any

import iree.runtime as rt
import numpy as np

ALIGNMENT = 64  # bytes; IREE refuses to import buffers that are not aligned so
MOST_VIEWS = 4096  # a view takes less than a kilobyte

ELEMENT_TYPES = {
    "bool": rt.HalElementType.UINT_8,  # booleans are passed as bytes
    "uint8": rt.HalElementType.UINT_8,
    "uint16": rt.HalElementType.UINT_16,
    "uint32": rt.HalElementType.UINT_32,
    "uint64": rt.HalElementType.UINT_64,
    "int8": rt.HalElementType.SINT_8,
    "int16": rt.HalElementType.SINT_16,
    "int32": rt.HalElementType.SINT_32,
    "int64": rt.HalElementType.SINT_64,
    "float16": rt.HalElementType.FLOAT_16,
    "bfloat16": rt.HalElementType.BFLOAT_16,
    "float32": rt.HalElementType.FLOAT_32,
    "float64": rt.HalElementType.FLOAT_64,
    "complex64": rt.HalElementType.COMPLEX_64,
    "complex128": rt.HalElementType.COMPLEX_128,
}
"""IREE's element types by torch's names of dtypes."""


def aligned_bytes(size: int) -> np.ndarray:
    """New memory that IREE imports as it is."""
    spare = np.empty(size + ALIGNMENT, np.uint8)
    first = -spare.ctypes.data % ALIGNMENT
    return spare[first : first + size]


class Views:
    """Views of the memory of one device."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._known: dict[tuple[Any, ...], Any] = {}
        self.nothing = device.allocator.allocate_buffer(rt.MemoryType.DEVICE_LOCAL, rt.BufferUsage.DEFAULT, ALIGNMENT)
        """A buffer for what has no elements, and therefore no address."""

    def of(self, address: int, shape: tuple[int, ...], dtype: str) -> Any:
        """IREE's reference to a view of dense elements of torch's ``dtype`` from ``address``, a multiple of
        :data:`ALIGNMENT`, on."""
        key = address, shape, dtype
        found = self._known.get(key)
        if found is None:
            kind = ELEMENT_TYPES[dtype]
            size = math.prod(shape) * ((int(kind) & 0xFF) // 8)  # the lowest byte of a type holds its bits
            found = self._keep(key, rt.HalBufferView(self._buffer(address, size), [*shape], kind).ref)
        return found

    def buffer(self, address: int, size: int) -> Any:
        """IREE's reference to the buffer of ``size`` bytes from ``address`` on."""
        key = address, size
        found = self._known.get(key)
        return self._keep(key, self._buffer(address, size).ref) if found is None else found

    def _keep(self, key: tuple[Any, ...], reference: Any) -> Any:
        if len(self._known) >= MOST_VIEWS:
            self._known.clear()
        self._known[key] = reference
        return reference

    def _buffer(self, address: int, size: int) -> Any:
        if not size:
            return self.nothing
        # NumPy looks at no byte of it, and so the address may be that of another device.
        bytes_there = np.asarray(_Bytes(address, size))
        return self._device.from_dlpack_capsule(bytes_there.__dlpack__()).get_buffer()


class _Bytes:
    """Memory, as NumPy is told of it."""

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": (size,), "typestr": "|u1"}
