"""The C library's heap: what one call of a program gives back is there for the next one.

glibc takes a large block from the system, gives it back when it is freed, and trims its heap as well.  Both limits grow with
the largest block freed so far, the second to twice its size.  A program holds several tensors of about one size at a time,
so after each call most of its memory would go back, and come again page by page: up to nine tenths of the time of a call.
"""

from __future__ import annotations

import ctypes
from functools import cache

from mlirstack.passes.runtime_libraries import resolve

# The largest block that the limits grow with (32 MiB, its header and the rest of a page included).
_LARGEST = (32 << 20) - (8 << 10)


@cache
def keep_freed_memory() -> None:
    """Let the heap keep up to 64 MiB that are free, once in a process.

    A block is allocated and freed, untouched: limits that the user has set (``MALLOC_TRIM_THRESHOLD_``, ``mallopt``) stay.
    """
    malloc, free = resolve("malloc"), resolve("free")
    if malloc is None or free is None:
        return
    block = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(malloc[1])(_LARGEST)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free[1])(block)
