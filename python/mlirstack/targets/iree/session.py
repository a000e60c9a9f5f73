"""A vmfb loaded into IREE's runtime and bound to its parameters: what running it with torch and with NumPy share.

Needs ``iree.runtime`` and NumPy only.  Arguments and results are IREE's buffer views; whoever calls makes them.  Modules for
GPUs take the memory of their results and temporaries as arguments too, and return before the device has computed anything.
"""

from __future__ import annotations

import ctypes
import json
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import iree.runtime as rt
import numpy as np

from mlirstack.errors import RuntimeCheckError, TargetUnavailableError
from mlirstack.frontend.program import ENTRY, ArgumentSpec, Signature
from mlirstack.passes.iree.archive import ARGUMENTS, CHECKS, PARAMETERS, RESULTS, SCOPE, WRITTEN, Size

ALIGNMENT = 64  # bytes; IREE refuses to import buffers that are not aligned so

MOST_SHAPES = 4096  # sets of shapes whose sizes are remembered
OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
    "min": min,
}

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
        # With the other allocator (--cuda_async_allocations=false), IREE 3.13 never frees some temporaries of programs with
        # control flow: 2.8 KB a call of a classifier with a dynamic batch.
        driver = rt.get_driver("cuda")
        return driver.create_device(driver.query_available_devices()[ordinal]["device_id"])
    except (RuntimeError, ValueError, IndexError) as error:
        raise TargetUnavailableError(
            f"IREE cannot create the CUDA device {ordinal}: {first_line(error)}", hint="see 'mlirstack doctor'"
        ) from error


@cache
def cuda_context(ordinal: int) -> Callable[[], None]:
    """Makes the context of the GPU that of the calling thread: IREE's allocator and its queues expect that."""
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    code = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal)
    if code:
        raise TargetUnavailableError(f"the CUDA driver has no context for device {ordinal} (error {code})")

    def enter() -> None:
        driver.cuCtxSetCurrent(context)

    return enter


@dataclass(frozen=True)
class Slot:
    """Where an argument of ``@main`` comes from: a ``position`` among the inputs, or the parameter ``name``.

    ``written``: the module may compute into its buffer.
    """

    spec: ArgumentSpec
    position: int | None
    name: str | None
    written: bool


@dataclass(frozen=True)
class Begun:
    """A call that may still be running: its ``results``, and the fence it ``done`` signals (None where it is over)."""

    results: Any
    done: Any

    def wait(self) -> None:
        """Wait until the results are there; :class:`RuntimeCheckError` where the device fails."""
        try:
            if self.done is not None:
                self.done.wait()
        except RuntimeError as error:
            raise RuntimeCheckError(f"the program stopped: {first_line(error)}") from error


class Session:
    """A loaded vmfb.  ``provide(name)`` gives the bytes of a parameter as a flat aligned array, kept alive here.

    ``slots`` are the arguments that a call passes; ``bound`` are the parameters that the module has taken in; ``dtypes`` are
    those of the results, and of the bytes behind them that say which checks hold, where the module ``has_checks``.
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
        self._checks: list[str] = json.loads(reflection.get(CHECKS, "[]"))
        self.has_checks = bool(self._checks)
        self.dtypes = [*(result.dtype for result in signature.results), *(["uint8"] if self.has_checks else [])]
        self._is_fenced = reflection.get("iree.abi.model") == "coarse-fences"
        self._results = _Results.of(signature, json.loads(reflection.get(RESULTS, "[]")))
        self._scratch = module.lookup_function(reflection.get("iree.abi.transients.size", "no scratch"))
        self._known: dict[tuple[Any, ...], tuple[dict[int, tuple[int, ...]], int | None]] = {}
        self._start = self._fence(0)

    def _modules(self) -> list[Any]:
        modules = [rt.create_hal_module(instance(), self.device)]
        if self.bound:
            index = rt.ParameterIndex()
            for name, contents in self.bound.items():
                index.add_buffer(name, contents.data)
            modules.append(rt.create_io_parameters_module(instance(), index.create_provider(SCOPE)))
        return modules

    # ------------------------------------------------------------------------------------------------- memory of results

    def sizes(self, inputs: Sequence[Any], arguments: Callable[[], Any]) -> tuple[dict[int, tuple[int, ...]], int | None]:
        """Shapes by number of the results that the caller passes memory for, and the bytes of temporaries (None: none).

        ``arguments`` makes the list of a call, with :meth:`no_results` as results: the module itself says what it needs.
        """
        key = tuple(getattr(value, "shape", value) for value in inputs) if self._results.varies else ()
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            found = self._known[key] = self._results.shapes(inputs), self._scratch_bytes(arguments)
        return found

    def _scratch_bytes(self, arguments: Callable[[], Any]) -> int | None:
        if self._scratch is None:
            return None
        asked = arguments()
        asked.push_ref(self._start)
        asked.push_ref(self._start)
        return int(self._invoke(self._scratch, asked, 1).get_variant(0))

    def no_results(self) -> list[Any]:
        """Views of nothing in the place of results and temporaries, for :meth:`sizes` alone."""
        nothing = self.device.allocator.allocate_buffer(rt.MemoryType.DEVICE_LOCAL, rt.BufferUsage.DEFAULT, ALIGNMENT)
        view = rt.HalBufferView(nothing, [ALIGNMENT], rt.HalElementType.UINT_8)
        return [view] * (len(self._results.sizes) + bool(self._scratch))

    def push_results(self, arguments: Any, views: Sequence[Any]) -> None:
        """Append the memory of results, in order, and of temporaries."""
        for view in views[: len(self._results.sizes)]:
            arguments.push_ref(view.ref)
        if self._scratch:
            arguments.push_ref(views[-1].get_buffer().ref)

    # ------------------------------------------------------------------------------------------------------------- calls

    def invoke(self, arguments: Any) -> Any:
        """Call ``@main`` with a VmVariantList, get one; :class:`RuntimeCheckError` where a check of the program fails."""
        begun = self.begin(arguments)
        begun.wait()
        return begun.results

    def begin(self, arguments: Any) -> Begun:
        """As :meth:`invoke`, without waiting for the device where the module allows it."""
        done = None
        if self._is_fenced:
            done = self._fence(1)
            arguments.push_ref(self._start)
            arguments.push_ref(done)
        return Begun(self._invoke(self._function, arguments, len(self.dtypes)), done)

    def check(self, outcome: Sequence[int]) -> None:
        """Look at the last result of a module that ``has_checks``; :class:`RuntimeCheckError` where a check has failed."""
        for holds, message in zip(outcome, self._checks, strict=True):
            if not holds:
                raise RuntimeCheckError(f"the program stopped: {message}")

    def copy(self, source: Any, target: Any) -> None:
        """Copy a buffer to another one on the device, and wait for it."""
        done = self._fence(1)
        self.device.queue_copy(source, target, self._start, done)
        done.wait()

    def _fence(self, value: int) -> Any:
        """A fence at ``value`` of a timeline of its own: calls may end in another order than they began."""
        return rt.HalFence.create_at(self.device.create_semaphore(0), value)

    def _invoke(self, function: Any, arguments: Any, results: int) -> Any:
        returned = rt.VmVariantList(results)
        try:
            with self._lock:
                self._context.invoke(function, arguments, returned)
        except (RuntimeError, ValueError, IndexError) as error:
            raise RuntimeCheckError(f"the program stopped: {first_line(error)}") from error
        return returned


@dataclass(frozen=True)
class _Results:
    """The results that a caller passes memory for: their sizes by number, over arguments at ``positions`` of the inputs."""

    sizes: Mapping[int, Sequence[Size]]
    positions: Mapping[int, int]
    varies: bool  # does the memory of a call depend on its inputs?

    @staticmethod
    def of(signature: Signature, sizes: Sequence[Sequence[Size] | None]) -> _Results:
        inputs = {number: spec for number, spec in enumerate(signature.arguments) if spec.kind == "input"}
        passed = {number: size for number, size in enumerate(sizes) if size is not None}
        varies = any(spec.shape is None or any(isinstance(d, str) for d in spec.shape) for spec in inputs.values())
        return _Results(passed, {argument: position for position, argument in enumerate(inputs)}, varies)

    def shapes(self, inputs: Sequence[Any]) -> dict[int, tuple[int, ...]]:
        return {number: tuple(self._value(size, inputs) for size in sizes) for number, sizes in self.sizes.items()}

    def _value(self, size: Size, inputs: Sequence[Any]) -> int:
        if isinstance(size, int):
            return size
        match size:
            case [int(argument)]:
                return int(inputs[self.positions[argument]])
            case [int(argument), int(axis)]:
                return int(inputs[self.positions[argument]].shape[axis])
            case [str(name), left, right]:
                return OPERATORS[name](self._value(left, inputs), self._value(right, inputs))
        raise TargetUnavailableError(f"the module states sizes that this version does not know: {size}")


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
