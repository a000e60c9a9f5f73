"""The CUDA driver through cuda-bindings, on one device of torch: torch's primary context, its current stream, its memory.

Nothing of CUDA is imported before a driver is opened, so that a machine without one can still say why.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from mlirstack.errors import DeviceError, DeviceMemoryError, TargetUnavailableError
from mlirstack.passes.cuda.plan import TensorMap
from mlirstack.targets.cuda.driver import Driver, Graph, Handle, KernelCall

_JIT_LOG_BYTES = 8192
_FUNCTION_LOADING = (12, 4)  # the first CUDA version with cuFuncLoad

# Of CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion in cuda.h.
_MAP_TYPES = {"i8": 0, "i32": 3, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "tf32": 11}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_L2_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}


@cache
def unavailable() -> str | None:
    """Why plans cannot run here, in one line, or None."""
    try:
        found = importlib.util.find_spec("cuda.bindings.driver")
    except ModuleNotFoundError:
        found = None
    if found is None:
        return "cuda-bindings is not installed (pip install 'mlirstack[cuda]')"
    from cuda.bindings import driver as cuda

    try:
        (status,) = cuda.cuInit(0)
    except RuntimeError as error:  # what the bindings raise where they find no library
        return f"there is no CUDA driver library: {error}"
    if status == cuda.CUresult.CUDA_ERROR_NO_DEVICE:
        return "there is no CUDA device"
    if status:
        return f"the CUDA driver does not start: {status.name}"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return None if torch.cuda.is_available() else "torch finds no CUDA device"


@cache
def open_driver(index: int) -> CudaDriver:
    """The driver of torch's device ``index``; :class:`TargetUnavailableError` where there is none."""
    reason = unavailable()
    if reason:
        raise TargetUnavailableError(reason)
    return CudaDriver(index)


def current_driver() -> CudaDriver:
    """The driver of torch's current device."""
    reason = unavailable()
    if reason:
        raise TargetUnavailableError(reason)
    return open_driver(torch.cuda.current_device())


class CudaDriver(Driver):
    """One device, through ``cuda.bindings.driver``."""

    def __init__(self, index: int) -> None:
        from cuda.bindings import driver as cuda

        self._cuda: Any = cuda
        self._index = index
        self._thread = threading.local()
        self.device = torch.device("cuda", index)
        self.device_name = torch.cuda.get_device_name(index)  # starts CUDA in torch
        self._device = checked(cuda, "cuDeviceGet", cuda.cuDeviceGet(index))
        self._context = checked(cuda, "cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(self._device))
        version = int(checked(cuda, "cuDriverGetVersion", cuda.cuDriverGetVersion()))
        self.version = (version // 1000, version % 1000 // 10)
        kinds = cuda.CUdevice_attribute
        self.capability = (
            self._attribute(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            self._attribute(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
        self.shared_limit = self._attribute(kinds.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        pointer, word = ctypes.c_void_p, ctypes.c_uint32
        self._encoders = {
            "cuTensorMapEncodeTiled": self._encoder("cuTensorMapEncodeTiled", [pointer] * 4),
            "cuTensorMapEncodeIm2col": self._encoder("cuTensorMapEncodeIm2col", [*[pointer] * 4, word, word, pointer]),
        }
        self._retired: list[Handle] = []
        self._map_arrays: dict[TensorMap, tuple[Any, ...]] = {}

    def _attribute(self, kind: Any) -> int:
        return int(checked(self._cuda, "cuDeviceGetAttribute", self._cuda.cuDeviceGetAttribute(kind, self._device)))

    def _encoder(self, name: str, arguments: Sequence[Any]) -> Any:
        """Driver function ``name`` as a plain function: it wants memory aligned to 64 bytes, the bindings' own is not.

        ``arguments``: ctypes of what stands between the address and the last four words.
        """
        found = self._cuda.cuGetProcAddress(name.encode(), 12000, 0)
        if found[0] or not int(found[1]):  # before Hopper's drivers, or none: such a machine gets no plans that use it
            return None
        word, pointer = ctypes.c_uint32, ctypes.c_void_p
        return ctypes.CFUNCTYPE(ctypes.c_int, pointer, word, word, pointer, *arguments, *[word] * 4)(int(found[1]))

    # ------------------------------------------------------------------------------------------------- state of a thread

    def is_current(self) -> bool:
        return torch._C._cuda_getDevice() == self._index and hasattr(self._thread, "bound")

    @contextmanager
    def current(self) -> Iterator[None]:
        with torch.cuda.device(self._index):
            # In a thread that has not called CUDA's run time yet, torch alone leaves the driver without a context.
            checked(self._cuda, "cuCtxSetCurrent", self._cuda.cuCtxSetCurrent(self._context))
            self._thread.bound = True
            yield

    def stream(self) -> int:
        # What torch.cuda.current_stream(index).cuda_stream is, without making an object: a microsecond less.
        return torch._C._cuda_getCurrentRawStream(self._index)

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    # ------------------------------------------------------------------------------------------------------------ modules

    def load(self, image: bytes) -> Handle:
        self._unload_retired()
        cuda, options = self._cuda, self._cuda.CUjit_option
        log = bytearray(_JIT_LOG_BYTES)
        keys = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        result = cuda.cuModuleLoadDataEx(image + b"\0", len(keys), keys, [log, len(log)])
        said = log.split(b"\0", 1)[0].decode(errors="replace").strip()
        return checked(cuda, "cuModuleLoadDataEx", result, f"{len(image)} bytes of code{': ' + said if said else ''}")

    def unload(self, module: Handle) -> None:
        # Called when a program is collected, at any time: its kernels may still run, a stream may be captured.
        self._retired.append(module)

    def _unload_retired(self) -> None:
        if self._retired:
            checked(self._cuda, "cuCtxSynchronize", self._cuda.cuCtxSynchronize())
        while self._retired:
            checked(self._cuda, "cuModuleUnload", self._cuda.cuModuleUnload(self._retired.pop()))

    def function(self, module: Handle, name: str) -> Handle:
        result = self._cuda.cuModuleGetFunction(module, name.encode())
        function = checked(self._cuda, "cuModuleGetFunction", result, f"kernel '{name}'")
        if self.version >= _FUNCTION_LOADING:
            # Else the driver loads it at the first launch, which is slow, and an error in a stream that is captured.
            checked(self._cuda, "cuFuncLoad", self._cuda.cuFuncLoad(function), f"kernel '{name}'")
        return function

    def allow_shared(self, function: Handle, size: int) -> None:
        kind = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        result = self._cuda.cuFuncSetAttribute(function, kind, size)
        checked(self._cuda, "cuFuncSetAttribute", result, f"{size} bytes of dynamic shared memory")

    # --------------------------------------------------------------------------------------------------------------- work

    def launch(self, call: KernelCall, stream: int) -> None:
        if call.overlaps:
            name, config = "cuLaunchKernelEx", self._overlapping(call, stream)
            result = self._cuda.cuLaunchKernelEx(config, call.function, call.parameters, 0)
        else:
            name = "cuLaunchKernel"
            result = self._cuda.cuLaunchKernel(
                call.function, *call.grid, *call.block, call.shared, stream, call.parameters, 0
            )
        if result[0]:
            checked(self._cuda, name, result, f"grid {call.grid}, block {call.block}, {call.shared} bytes")

    def _overlapping(self, call: KernelCall, stream: int) -> Any:
        """The launch configuration of a kernel that may start early; made once for each set of sizes in a thread."""
        configurations = self._thread.__dict__.setdefault("configurations", {})
        key = (call.grid, call.block, call.shared)
        config = configurations.get(key)
        if config is None:
            config = configurations[key] = self._cuda.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = call.grid
            config.blockDimX, config.blockDimY, config.blockDimZ = call.block
            config.sharedMemBytes = call.shared
            early = self._cuda.CUlaunchAttribute()
            early.id = self._cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            early.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [early], 1
        config.hStream = stream
        return config

    def copy(self, destination: int, source: int, size: int, stream: int) -> None:
        checked(self._cuda, "cuMemcpyDtoDAsync", self._cuda.cuMemcpyDtoDAsync(destination, source, size, stream))

    def copy_to_host(self, destination: int, source: int, size: int, stream: int) -> None:
        checked(self._cuda, "cuMemcpyDtoHAsync", self._cuda.cuMemcpyDtoHAsync(destination, source, size, stream))

    def fill(self, destination: int, value: int, width: int, count: int, stream: int) -> None:
        name = f"cuMemsetD{8 * width}Async"
        checked(self._cuda, name, getattr(self._cuda, name)(destination, value, count, stream))

    def encode(self, place: int, tensor_map: TensorMap, address: int) -> None:
        name = "cuTensorMapEncodeIm2col" if tensor_map.lower else "cuTensorMapEncodeTiled"
        encode = self._encoders[name]
        if encode is None:
            raise DeviceError(f"this driver (CUDA {self.version[0]}.{self.version[1]}) has no {name}")
        if tensor_map not in self._map_arrays:
            self._map_arrays[tensor_map] = _map_arrays(tensor_map)
        status = encode(
            place,
            _MAP_TYPES[tensor_map.element],
            len(tensor_map.sizes),
            address,
            *self._map_arrays[tensor_map],
            0,  # not interleaved
            _SWIZZLES[tensor_map.swizzle],
            _L2_PROMOTIONS[tensor_map.l2_promotion],
            0,  # what lies outside is read as zeros
        )
        if status:
            checked(self._cuda, name, (self._cuda.CUresult(status),), f"{tensor_map} at {address:#x}")

    def pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def event(self) -> Handle:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        # Torch creates an event when it is first recorded, and destroys it when nobody holds it any more.
        event.record()
        return event

    def record(self, event: Handle, stream: int) -> None:
        checked(self._cuda, "cuEventRecord", self._cuda.cuEventRecord(event_handle(event), stream))

    def wait(self, event: Handle) -> None:
        checked(self._cuda, "cuEventSynchronize", self._cuda.cuEventSynchronize(event_handle(event)))

    def synchronize(self, stream: int) -> None:
        checked(self._cuda, "cuStreamSynchronize", self._cuda.cuStreamSynchronize(stream))

    def graph(self) -> Graph:
        from mlirstack.targets.cuda.native_graph import CudaGraph

        return CudaGraph(self._cuda, self._context, self.version)


def checked(cuda: Any, call: str, result: tuple[Any, ...], what: str = "") -> Any:
    """The value of a call of the bindings; :class:`DeviceError` names the call, the error and ``what`` it was about."""
    status, *values = result
    if status:
        error, text = cuda.cuGetErrorString(status)
        meaning = text.decode() if not error and text else ""
        message = f"{call}: {status.name}" + f" ({meaning})" * bool(meaning) + f": {what}" * bool(what)
        if status == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise DeviceMemoryError(message, hint="free tensors, or torch.cuda.empty_cache()")
        raise DeviceError(message)
    return values[0] if values else None


def event_handle(event: Handle) -> int:
    """The driver's own name of an event of :meth:`CudaDriver.event`."""
    assert isinstance(event, torch.cuda.Event)
    return int(event.cuda_event)


def _map_arrays(tensor_map: TensorMap) -> tuple[Any, ...]:
    """Sizes, strides, box (and corners before it) and element strides as the driver's function takes them."""
    rank = len(tensor_map.sizes)
    wide, narrow, signed = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int32
    known = [size for size in tensor_map.sizes if isinstance(size, int)]  # all: plans that run are specialized
    sizes, strides = (wide * rank)(*known), (wide * max(rank - 1, 1))(*tensor_map.strides)
    steps = (narrow * rank)(*(tensor_map.element_strides or (1,) * rank))
    if tensor_map.lower:
        corners = [(signed * (rank - 2))(*corner) for corner in (tensor_map.lower, tensor_map.upper)]
        return sizes, strides, *corners, *tensor_map.box, steps
    return sizes, strides, (narrow * rank)(*tensor_map.box), steps
