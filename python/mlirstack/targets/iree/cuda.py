"""IREE's CUDA devices, and the little that a call needs of CUDA's driver beside them.

IREE computes on a stream of its own in the primary context of the GPU, which is torch's as well.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import iree.runtime as rt

from mlirstack.errors import RuntimeCheckError, TargetUnavailableError
from mlirstack.targets.iree.session import first_line

_DRIVER = "libcuda.so.1"


@cache
def cuda(ordinal: int) -> Any:
    """The GPU with number ``ordinal``, for IREE."""
    try:
        # With the other allocator (--cuda_async_allocations=false), IREE 3.13 never frees some temporaries of programs with
        # control flow: 2.8 KB a call of a classifier with a dynamic batch.
        driver = rt.get_driver("cuda")
        return driver.create_device(driver.query_available_devices()[ordinal]["device_id"])
    except (RuntimeError, ValueError, IndexError) as error:
        raise TargetUnavailableError(
            f"IREE cannot create the CUDA device {ordinal}: {first_line(error)}", hint="see 'mlirstack doctor'"
        ) from error


class Context:
    """The primary context of the GPU with number ``ordinal``."""

    def __init__(self, ordinal: int) -> None:
        blocking, brief = ctypes.CDLL(_DRIVER), ctypes.PyDLL(_DRIVER)  # the second keeps Python's lock: it returns at once
        self._context = ctypes.c_void_p()
        code = blocking.cuInit(0) or blocking.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), ordinal)
        if code:
            raise TargetUnavailableError(f"the CUDA driver has no context for device {ordinal} (error {code})")
        self._set_current, self._is_busy, self._synchronize = (
            brief.cuCtxSetCurrent, brief.cuStreamQuery, blocking.cuStreamSynchronize,
        )  # fmt: skip
        for function in (self._is_busy, self._synchronize):
            function.argtypes = [ctypes.c_void_p]

    def enter(self) -> None:
        """Make it that of the calling thread: IREE's allocator and its queues expect that."""
        self._set_current(self._context)

    def await_stream(self, stream: int) -> None:
        """Wait until a stream, which is its address, has nothing to do; :class:`RuntimeCheckError` where its work failed."""
        if self._is_busy(stream):
            code = self._synchronize(stream)
            if code:
                raise RuntimeCheckError(f"work on the GPU failed before this call (error {code} of CUDA's driver)")
