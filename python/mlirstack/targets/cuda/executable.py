"""A loaded CUDA program: kernels in the driver, parameters on the device, @prepare run once, @main called with tensors."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mlirstack.errors import BundleError, DeviceMemoryError, TargetUnavailableError
from mlirstack.frontend.dtypes import TORCH_NAMES
from mlirstack.frontend.program import ResultSpec, Signature
from mlirstack.passes.abi import MAIN, PREPARE
from mlirstack.passes.cuda.fatbin import is_fatbin, read_fatbin
from mlirstack.passes.cuda.plan import Check, Constant, Copy, Fill, Input, Launch, LaunchPlan, PlannedFunction
from mlirstack.targets.base import Executable
from mlirstack.targets.cuda.assertions import assertion_name, assertions
from mlirstack.targets.cuda.driver import Driver, Handle
from mlirstack.targets.cuda.function import LoadedFunction, ResultType, plain

ELF_MAGIC = b"\x7fELF"
_STATIC_SHARED_LIMIT = 48 * 1024  # bytes of dynamic shared memory that need no permission
_CONVERSIONS: dict[str, type[bool] | type[int] | type[float]] = {"bool": bool, "int64": int, "float64": float}


@dataclass(frozen=True)
class Statistics:
    """What a call does and needs: steps by kind, bytes of the arena with reuse and without, bytes that stay on the device.

    ``resident_bytes`` are parameters, results of @prepare and constants.
    """

    launches: int
    copies: int
    fills: int
    checks: int
    arena_bytes: int
    unshared_bytes: int
    resident_bytes: int


class CudaExecutable(Executable):
    """``@main`` of a plan, on the device of ``driver``.

    Calls from several threads and on several streams are safe; each runs on torch's current stream.  ``use_graph`` says
    whether a call replays one CUDA graph: on by default for static plans of some launches, may be set at any time.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        image: bytes,
        signature: Signature,
        parameters: dict[str, torch.Tensor],
        driver: Driver,
        *,
        ptx: str = "",
    ) -> None:
        main = plan.function(MAIN)
        if main is None:
            raise BundleError("the launch plan has no function 'main'")
        self.plan, self.device, self.tf32 = plan, str(driver.device), ".tf32" in ptx
        self._driver, self._ptx, self._image = driver, ptx, image
        with driver.current():
            module = driver.load(image)
            weakref.finalize(self, driver.unload, module).atexit = False
            self._kernels = _kernels(plan, driver, module)
            self._assertions = self._load_assertions(plan)
            self._load(main, signature, parameters)
            driver.synchronize(driver.stream())  # calls may come on other streams
        self.use_graph = self._main.wants_graph

    def _load_assertions(self, plan: LaunchPlan) -> dict[str, Handle]:
        """The kernels that check for the host in graphs of the user's, by message.

        They are loaded now, because a stream that is captured bears no loading.
        """
        steps = (step for function in plan.functions for step in function.steps)
        messages = sorted({step.message for step in steps if isinstance(step, Check) and step.buffer >= 0})
        if not messages:
            return {}
        module = self._driver.load(assertions(messages).encode())
        weakref.finalize(self, self._driver.unload, module).atexit = False
        return {message: self._driver.function(module, assertion_name(n)) for n, message in enumerate(messages)}

    def _load(self, main: PlannedFunction, signature: Signature, parameters: dict[str, torch.Tensor]) -> None:
        place = Placement(self._driver.device)
        constants = [_constant(constant, place) for constant in self.plan.constants]
        bound = {n: place(t) for n, t in parameters.items() if n in _parameter_names(main, signature)}
        prepared = self._prepare(signature, parameters, bound, constants, place)
        written = {mutation.name for mutation in signature.mutations if mutation.name is not None}
        user = [i for i, spec in enumerate(signature.arguments) if spec.kind == "input"]
        fixed: dict[int, torch.Tensor] = {}
        live: dict[int, torch.Tensor] = {}
        given: dict[int, int] = {}  # input of @main → position among the user's inputs
        for number, value in enumerate(main.inputs):
            if value.source == "prepared":
                fixed[number] = prepared[value.index]
            elif value.index in user:
                given[number] = user.index(value.index)
            else:
                name = signature.arguments[value.index].name
                if name in written:
                    live[number] = bound[name]
                else:
                    fixed[number] = plain(bound[name])
        self._positions = tuple(given.values())
        self._in_order = self._positions == tuple(range(len(user)))
        types = _result_types(main, signature.results)
        self._main = LoadedFunction(
            main, self._driver, self._kernels, constants, fixed, live, list(given), types, self._assertions
        )
        self.parameters = parameters | bound
        self._resident = _unique_bytes([*fixed.values(), *live.values(), *bound.values(), *constants])

    def _prepare(
        self,
        signature: Signature,
        parameters: Mapping[str, torch.Tensor],
        bound: Mapping[str, torch.Tensor],
        constants: Sequence[torch.Tensor],
        place: Placement,
    ) -> list[torch.Tensor]:
        """Run @prepare, where there is one: what depends on parameters alone."""
        function = self.plan.function(PREPARE)
        if function is None:
            return []
        fixed = {}
        for number, value in enumerate(function.inputs):
            name = signature.arguments[value.index].name
            fixed[number] = plain(bound[name] if name in bound else place(parameters[name]))
        types = [ResultType(_dtype(_element(function, result.buffer))) for result in function.results]
        loaded = LoadedFunction(function, self._driver, self._kernels, constants, fixed, {}, [], types, {})
        return loaded.run([], use_graph=False)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """See :meth:`Executable.run`.  Raises :class:`RuntimeCheckError`, :class:`DeviceError`."""
        values = inputs if self._in_order else [inputs[position] for position in self._positions]
        if self._driver.is_current():
            return self._main.run(values, use_graph=self.use_graph)
        with self._driver.current():
            return self._main.run(values, use_graph=self.use_graph)

    @property
    def copies(self) -> int:
        """Inputs so far that had to be copied, because they were not contiguous or not aligned to 16 bytes."""
        return self._main.copies

    def statistics(self, inputs: Sequence[Any] = ()) -> Statistics:
        """Of a call with ``inputs``, which are needed where sizes depend on them."""
        function = self._main.static([inputs[position] for position in self._positions] if inputs else ())
        count = {kind: sum(isinstance(step, kind) for step in function.steps) for kind in (Launch, Copy, Fill, Check)}
        return Statistics(
            count[Launch],
            count[Copy],
            count[Fill],
            count[Check],
            function.arena_bytes or 0,
            function.unshared_bytes or 0,
            self._resident,
        )

    def source(self, stage: str) -> str:
        """``ptx``; ``sass`` (the listing of the machine code that runs, where nvdisasm is installed); ``plan`` as JSON."""
        if stage == "ptx" and self._ptx:
            return self._ptx
        if stage == "plan":
            return self.plan.to_json(indent=1)
        cubin = self._cubin() if stage == "sass" else None
        if cubin is not None:
            from mlirstack.passes.cuda.sass import sass_text

            return sass_text(cubin)
        raise KeyError(stage)

    def _cubin(self) -> bytes | None:
        """The machine code that runs; None where the driver compiled the PTX."""
        if not is_fatbin(self._image):
            return self._image if self._image.startswith(ELF_MAGIC) else None
        major, minor = self._driver.capability
        fitting = [image for image in read_fatbin(self._image) if image.is_cubin and image.arch // 10 == major]
        fitting = [image for image in fitting if image.arch % 10 <= minor]
        return max(fitting, key=lambda image: image.arch).data if fitting else None


class Placement:
    """Moves tensors to a device, each once: tied parameters stay tied.

    What was moved is kept alive: an address tells tensors apart only as long as they all exist.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._moved: dict[tuple[object, ...], torch.Tensor] = {}
        self._sources: list[torch.Tensor] = []

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        if tensor.device == self._device:
            return tensor
        if key not in self._moved or not tensor.numel():
            try:
                self._moved[key] = tensor.detach().to(self._device)
                self._sources.append(tensor)
            except torch.OutOfMemoryError as error:
                size = tensor.numel() * tensor.element_size()
                raise DeviceMemoryError(
                    f"{self._device} has not enough free memory for the parameters: {size} bytes more",
                    hint="free tensors, or torch.cuda.empty_cache()",
                ) from error
        return self._moved[key]


def _kernels(plan: LaunchPlan, driver: Driver, module: Handle) -> dict[str, Handle]:
    """The functions of all kernels that are launched, allowed the shared memory that they are launched with."""
    shared: dict[str, int] = {}
    for step in (step for function in plan.functions for step in function.steps if isinstance(step, Launch)):
        shared[step.kernel] = max(step.shared, shared.get(step.kernel, 0))
    kernels = {}
    for name, size in shared.items():
        if size > driver.shared_limit:
            raise TargetUnavailableError(
                f"kernel '{name}' needs {size} bytes of shared memory, a block of {driver.device_name} has "
                f"{driver.shared_limit}",
                hint=f"compile for this device: cuda:sm_{driver.capability[0]}{driver.capability[1]}",
            )
        kernels[name] = driver.function(module, name)
        if size > _STATIC_SHARED_LIMIT:
            driver.allow_shared(kernels[name], size)
    return kernels


def _parameter_names(main: PlannedFunction, signature: Signature) -> set[str]:
    """Parameters that @main takes, and those that the user gets back: they are kept on the device."""
    names = {
        signature.arguments[value.index].name
        for value in main.inputs
        if value.source == "argument" and signature.arguments[value.index].kind == "parameter"
    }
    names |= {mutation.name for mutation in signature.mutations if mutation.name is not None}
    return names | {str(output.name) for output in signature.outputs if output.kind == "parameter"}


def _constant(constant: Constant, place: Placement) -> torch.Tensor:
    data = constant.bytes()
    return place(torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8))


def _dtype(element: str) -> torch.dtype:
    if element not in TORCH_NAMES:
        raise BundleError(f"element type '{element}' has no torch dtype")
    dtype = getattr(torch, TORCH_NAMES[element])
    assert isinstance(dtype, torch.dtype)
    return dtype


def _result_types(main: PlannedFunction, results: Sequence[ResultSpec]) -> list[ResultType]:
    """What each result is for torch; unsigned integers share bits with signed ones.

    :class:`BundleError` where the plan and the signature disagree.
    """
    if len(results) != len(main.results):
        raise BundleError(f"the launch plan has {len(main.results)} results, the signature {len(results)}")
    types = []
    for number, (spec, result) in enumerate(zip(results, main.results, strict=True)):
        if (spec.shape is None) != (result.buffer < 0):
            raise BundleError(f"result {number} is a number for the launch plan or the signature, not for both")
        if result.buffer < 0:
            types.append(ResultType(None, _CONVERSIONS[spec.dtype]))
            continue
        wanted, found = getattr(torch, spec.dtype), _dtype(_element(main, result.buffer))
        same_bits = wanted.itemsize == found.itemsize and not wanted.is_signed and not found.is_floating_point
        if wanted != found and not same_bits:
            raise BundleError(f"result {number}: the launch plan has {found}, the signature {spec.dtype}")
        types.append(ResultType(wanted))
    return types


def _element(function: PlannedFunction, buffer: int) -> str:
    entry = function.buffers[buffer]
    source: Input | None = function.inputs[entry.index] if entry.kind == "input" else None
    return source.element if source else entry.element


def _unique_bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())
