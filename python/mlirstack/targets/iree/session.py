"""A vmfb loaded into IREE's runtime and bound to its parameters: what running it with torch and with NumPy share.

Needs ``iree.runtime`` and NumPy only.  Arguments and results are IREE's buffer views; whoever calls makes them.  Modules for
GPUs take the memory of their results and temporaries as arguments too, and return before the device has computed anything.
"""

from __future__ import annotations

import json
import operator
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import iree.runtime as rt
import numpy as np

from mlirstack.errors import RuntimeCheckError, TargetUnavailableError
from mlirstack.frontend.program import ENTRY, ArgumentSpec, Signature
from mlirstack.passes.iree.archive import ARGUMENTS, CHECKS, PACKED, PARAMETERS, RESULTS, SCOPE, WRITTEN, Size
from mlirstack.targets.iree.views import ELEMENT_TYPES, Views

MOST_SHAPES = 4096  # sets of shapes whose sizes are remembered
MOST_PREPARED = 1024  # lists of arguments that are kept for further calls
SPIN_SECONDS = 200e-6  # of looking for the end of a call before sleeping: to be woken takes some 20 us
OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
    "min": min,
}


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


@dataclass(frozen=True)
class Slot:
    """Where an argument of ``@main`` comes from: a ``position`` among the inputs, or the parameter ``name``.

    ``written``: the module may compute into its buffer.
    """

    spec: ArgumentSpec
    position: int | None
    name: str | None
    written: bool


class Timeline:
    """A count that the device moves on when a call is over, and the ``fence`` at what it will be then.

    Each call that is under way has one of its own, since calls may end in another order than they began.
    """

    def __init__(self, device: Any) -> None:
        self._semaphore, self._value = device.create_semaphore(0), 0
        self.fence = rt.HalFence(1)

    def advance(self) -> None:
        """Move the fence to the end of the next call."""
        self._value += 1
        self.fence.insert(self._semaphore, self._value)

    def wait(self) -> None:
        """Wait for the end of the call; :class:`RuntimeCheckError` where the device fails."""
        deadline = time.perf_counter() + SPIN_SECONDS
        try:
            while self._semaphore.query() < self._value:
                if time.perf_counter() > deadline:
                    self.fence.wait()
                    return
                os.sched_yield()  # lets other threads of Python run as well
        except RuntimeError as error:
            raise RuntimeCheckError(f"the program stopped: {first_line(error)}") from error


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that a call of ``@main`` is given, for one call at a time; ``timeline`` tells when that is over (None: a call
    returns when it is)."""

    arguments: Any
    timeline: Timeline | None


@dataclass(frozen=True)
class Packed:
    """What was made of parameters when a module was built: its ``contents`` by name, flat aligned bytes, and the parameters
    that the module ``reads`` beside it (None: all)."""

    contents: Mapping[str, np.ndarray]
    reads: Sequence[str] | None


NOTHING = Packed({}, None)


class Session:
    """A loaded vmfb.  ``provide(name)`` gives the bytes of a parameter as a flat aligned array, kept alive here as what is
    ``packed`` is.

    ``slots`` are the arguments that a call passes; ``dtypes`` are those of the results, and of the bytes behind them that
    say which checks hold, where the module ``has_checks``.  The memory that a call needs ``varies`` where shapes or numbers
    among its inputs do.
    """

    def __init__(
        self,
        vmfb: bytes,
        signature: Signature,
        device: Any,
        provide: Callable[[str], np.ndarray],
        packed: Packed = NOTHING,
    ) -> None:
        self.device = device
        self._lock = threading.Lock()  # an IREE context serves one call at a time
        try:
            module = rt.VmModule.copy_buffer(instance(), vmfb)
            self._function = module.lookup_function(ENTRY)
            reflection = self._function.reflection
            lifted: list[str] = json.loads(reflection.get(PARAMETERS, "[]"))
            written: list[int] = json.loads(reflection.get(WRITTEN, "[]"))
            taken: list[int] = json.loads(reflection.get(ARGUMENTS) or str([*range(len(signature.arguments))]))
            self._named = {name: provide(name) for name in lifted if packed.reads is None or name in packed.reads}
            self._packed = packed.contents
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
        given = [spec.shape for spec in signature.arguments if spec.kind == "input"]
        self.varies = any(shape is None or any(isinstance(size, str) for size in shape) for shape in given)
        self._scratch = module.lookup_function(reflection.get("iree.abi.transients.size", "no scratch"))
        self._known: dict[tuple[Any, ...], tuple[dict[int, tuple[int, ...]], int | None]] = {}
        self.views = Views(device)
        self._start = rt.HalFence.create_at(device.create_semaphore(0), 0)
        self._prepared: dict[tuple[Any, ...], Prepared] = {}

    def _modules(self) -> list[Any]:
        modules = [rt.create_hal_module(instance(), self.device)]
        archives = [(SCOPE, self._named), (PACKED, self._packed)]
        providers = [archive(contents).create_provider(scope) for scope, contents in archives if contents]
        if providers:
            modules.append(rt.create_io_parameters_module(instance(), *providers))
        return modules

    @property
    def bound(self) -> list[np.ndarray]:
        """The memory that the module has taken in for good."""
        return [*self._named.values(), *self._packed.values()]

    # ------------------------------------------------------------------------------------------------- memory of results

    def sizes(
        self, inputs: Sequence[Any], passed: Callable[[], Sequence[Any]]
    ) -> tuple[dict[int, tuple[int, ...]], int | None]:
        """Shapes by number of the results that the caller passes memory for, and the bytes of temporaries (None: none).

        ``passed`` gives what :meth:`prepare` takes: the module itself says what memory it needs.
        """
        key = tuple(getattr(value, "shape", value) for value in inputs) if self.varies else ()
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            found = self._known[key] = self._results.shapes(inputs), self._scratch_bytes(passed)
        return found

    def _scratch_bytes(self, passed: Callable[[], Sequence[Any]]) -> int | None:
        if self._scratch is None:
            return None
        nothing = [self.views.of(0, (0,), "uint8")] * len(self._results.sizes)
        asked = self._arguments(passed(), [*nothing, self.views.nothing.ref])
        for _ in range(2):
            asked.push_ref(self._start)
        return int(self._invoke(self._scratch, asked, 1).get_variant(0))

    # ------------------------------------------------------------------------------------------------------------- calls

    def prepare(self, passed: Sequence[Any], written: Sequence[Any] = ()) -> Prepared:
        """What a call takes: ``passed`` are numbers and references to views, one for each slot; ``written`` are references
        to the memory of results, in order, and of temporaries."""
        arguments = self._arguments(passed, written)
        if not self._is_fenced:
            return Prepared(arguments, None)
        timeline = Timeline(self.device)
        arguments.push_ref(self._start)
        arguments.push_ref(timeline.fence)
        return Prepared(arguments, timeline)

    def kept(self, key: tuple[Any, ...]) -> Prepared | None:
        """What was prepared for a call before that passed the same memory, and is not in use."""
        return self._prepared.pop(key, None)

    def keep(self, key: tuple[Any, ...], prepared: Prepared) -> None:
        """Keep it for the next such call: this one is over."""
        if len(self._prepared) >= MOST_PREPARED:
            self._prepared.clear()
        self._prepared[key] = prepared

    def invoke(self, prepared: Prepared) -> Any:
        """Call ``@main``, get a VmVariantList; :class:`RuntimeCheckError` where a check of the program fails."""
        results = self.begin(prepared)
        self.wait(prepared)
        return results

    def begin(self, prepared: Prepared) -> Any:
        """As :meth:`invoke`, without waiting for the device where the module allows it."""
        if prepared.timeline is not None:
            prepared.timeline.advance()
        return self._invoke(self._function, prepared.arguments, len(self.dtypes))

    def wait(self, prepared: Prepared) -> None:
        """Wait until the results are there; :class:`RuntimeCheckError` where the device fails."""
        if prepared.timeline is not None:
            prepared.timeline.wait()

    def check(self, outcome: Sequence[int]) -> None:
        """Look at the last result of a module that ``has_checks``; :class:`RuntimeCheckError` where a check has failed."""
        for holds, message in zip(outcome, self._checks, strict=True):
            if not holds:
                raise RuntimeCheckError(f"the program stopped: {message}")

    def copy(self, source: Any, target: Any) -> None:
        """Copy a buffer to another one on the device, and wait for it."""
        timeline = Timeline(self.device)
        timeline.advance()
        self.device.queue_copy(source, target, self._start, timeline.fence)
        timeline.wait()

    def _arguments(self, passed: Sequence[Any], written: Sequence[Any]) -> Any:
        """A VmVariantList, without fences."""
        arguments = rt.VmVariantList(len(passed) + len(written) + 2)
        for slot, value in zip(self.slots, passed, strict=True):
            if slot.spec.shape is not None:
                arguments.push_ref(value)
            elif slot.spec.dtype == "float64":
                arguments.push_float(float(value))
            else:
                arguments.push_int(int(value))
        for reference in written:
            arguments.push_ref(reference)
        return arguments

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

    @staticmethod
    def of(signature: Signature, sizes: Sequence[Sequence[Size] | None]) -> _Results:
        inputs = {number: spec for number, spec in enumerate(signature.arguments) if spec.kind == "input"}
        passed = {number: size for number, size in enumerate(sizes) if size is not None}
        return _Results(passed, {argument: position for position, argument in enumerate(inputs)})

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


def archive(contents: Mapping[str, np.ndarray]) -> Any:
    """An index of parameters that lie in memory, by name; it keeps none of it alive."""
    index = rt.ParameterIndex()
    for name, array in contents.items():
        index.add_buffer(name, array.data)
    return index


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
