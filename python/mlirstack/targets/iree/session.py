"""A vmfb loaded into IREE's runtime and bound to its parameters: what running it with torch and with NumPy share.

Needs ``iree.runtime`` and NumPy only.  Arguments and results are IREE's buffer views; whoever calls makes them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import iree.runtime as rt
import numpy as np

from mlirstack.errors import RuntimeCheckError, TargetUnavailableError
from mlirstack.frontend.program import ENTRY, ArgumentSpec, Signature
from mlirstack.passes.iree_archive import ARGUMENTS, PARAMETERS, SCOPE, WRITTEN

ALIGNMENT = 64  # bytes; IREE refuses to import buffers that are not aligned so

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


@cache
def instance() -> Any:
    """The VM instance, one a process."""
    return rt.VmInstance()


@cache
def processor(threads: int) -> Any:
    """The local device that computes with ``threads`` threads; with one, on the caller's own thread."""
    from iree.runtime._binding import create_hal_driver  # the public get_driver keeps the first thread count for good

    try:
        if threads == 1:
            return create_hal_driver("local-sync").create_default_device()
        rt.flags.parse_flags(f"--task_topology_group_count={threads}")
        return create_hal_driver("local-task").create_default_device()
    except (RuntimeError, ValueError) as error:
        raise TargetUnavailableError(f"IREE cannot create its CPU device: {first_line(error)}") from error


@cache
def cuda(ordinal: int) -> Any:
    """The GPU with number ``ordinal``."""
    try:
        # Buffers of the asynchronous allocator cannot be handed to torch; the synchronous one is slow unless it keeps
        # buffers (a call of softmax over 8192 rows of 8192: 0.40 ms with the cache, 0.95 ms without, on an H200).
        rt.flags.parse_flags("--cuda_async_allocations=false")
        driver = rt.get_driver("cuda")
        return driver.create_device(driver.query_available_devices()[ordinal]["device_id"], allocators=["caching"])
    except (RuntimeError, ValueError, IndexError) as error:
        raise TargetUnavailableError(
            f"IREE cannot create the CUDA device {ordinal}: {first_line(error)}", hint="see 'mlirstack doctor'"
        ) from error


@dataclass(frozen=True)
class Slot:
    """Where an argument of ``@main`` comes from: a ``position`` among the inputs, or the parameter ``name``.

    ``written``: the module may compute into its buffer.
    """

    spec: ArgumentSpec
    position: int | None
    name: str | None
    written: bool


class Session:
    """A loaded vmfb.  ``provide(name)`` gives the bytes of a parameter as a flat aligned array, kept alive here.

    ``slots`` are the arguments that a call passes; ``bound`` are the parameters that the module has taken in.
    """

    def __init__(self, vmfb: bytes, signature: Signature, device: Any, provide: Callable[[str], np.ndarray]) -> None:
        self.device = device
        self._lock = threading.Lock()  # an IREE context serves one call at a time
        try:
            module = rt.VmModule.copy_buffer(instance(), vmfb)
            self._function = module.lookup_function(ENTRY)
            reflection = self._function.reflection
            lifted: list[str] = json.loads(reflection.get(PARAMETERS, "[]"))
            written: list[int] = json.loads(reflection.get(WRITTEN, "[]"))
            taken: list[int] = json.loads(reflection.get(ARGUMENTS) or str([*range(len(signature.arguments))]))
            self.bound = {name: provide(name) for name in lifted}
            self._context = rt.VmContext(instance(), [*self._modules(), module])
        except (RuntimeError, ValueError, KeyError) as error:
            raise TargetUnavailableError(
                f"IREE's runtime refuses this module: {first_line(error)}",
                hint="build it again with the compiler version that 'mlirstack doctor' names",
            ) from error
        self.slots = _slots(signature, set(lifted), set(written), set(taken))
        self._result_count = len(signature.results)

    def _modules(self) -> list[Any]:
        modules = [rt.create_hal_module(instance(), self.device)]
        if self.bound:
            index = rt.ParameterIndex()
            for name, contents in self.bound.items():
                index.add_buffer(name, contents.data)
            modules.append(rt.create_io_parameters_module(instance(), index.create_provider(SCOPE)))
        return modules

    def invoke(self, arguments: Any) -> Any:
        """Call ``@main`` with a VmVariantList, get one; :class:`RuntimeCheckError` where a check of the program fails."""
        results = rt.VmVariantList(self._result_count)
        try:
            with self._lock:
                self._context.invoke(self._function, arguments, results)
        except (RuntimeError, ValueError, IndexError) as error:
            raise RuntimeCheckError(f"the program stopped: {first_line(error)}") from error
        return results


def push_number(arguments: Any, value: Any, dtype: str) -> None:
    """Append a Python number."""
    if dtype == "float64":
        arguments.push_float(float(value))
    else:
        arguments.push_int(int(value))


def allocate_copy(device: Any, contents: np.ndarray, shape: tuple[int, ...], dtype: str) -> Any:
    """A view, of ``shape`` and torch's ``dtype``, of a new buffer of IREE's with the bytes of ``contents``."""
    view = device.allocator.allocate_buffer_copy(
        memory_type=rt.MemoryType.DEVICE_LOCAL | rt.MemoryType.HOST_VISIBLE,
        allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
        device=device,
        buffer=contents,
        element_type=rt.HalElementType.UINT_8,
    )
    return rt.HalBufferView(view.get_buffer(), list(shape), ELEMENT_TYPES[dtype])


def _slots(signature: Signature, lifted: set[str], written: set[int], taken: set[int]) -> list[Slot]:
    slots: list[Slot] = []
    position = 0
    for number, spec in enumerate(signature.arguments):
        if spec.kind == "input":
            slots.append(Slot(spec, position, None, len(slots) in written))
            position += 1
        elif spec.name not in lifted and number in taken:
            slots.append(Slot(spec, None, spec.name, len(slots) in written))
    return slots


def first_line(error: Exception) -> str:
    """IREE's messages hold a C++ file, the status, the reason and a stack; the reason is for people."""
    text = str(error).split("; while invoking", 1)[0].split("\n", 1)[0]
    return text.rsplit(".c:", 1)[-1].split(";", 1)[-1].strip() if ".c:" in text else text
