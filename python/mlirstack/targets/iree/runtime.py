"""Running a vmfb with IREE's runtime: torch tensors in and out without copies where memory allows it.

Needs ``iree.runtime`` and torch, neither torch-mlir nor IREE's compiler.  Parameters that the module wants as globals are
given to it once, in place; all other arguments are passed per call as DLPack views of the caller's memory.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import iree.runtime as rt
import torch
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from mlirstack.errors import RuntimeCheckError, TargetUnavailableError
from mlirstack.frontend.program import ENTRY, ArgumentSpec, Signature
from mlirstack.passes.iree_archive import PARAMETERS, SCOPE, WRITTEN
from mlirstack.targets.base import Executable

ALIGNMENT = 64  # bytes; IREE refuses to import buffers that are not aligned so
DLPACK_CPU = 1

ELEMENT_TYPES = {
    torch.bool: rt.HalElementType.UINT_8,  # booleans are passed as bytes
    torch.uint8: rt.HalElementType.UINT_8,
    torch.uint16: rt.HalElementType.UINT_16,
    torch.uint32: rt.HalElementType.UINT_32,
    torch.uint64: rt.HalElementType.UINT_64,
    torch.int8: rt.HalElementType.SINT_8,
    torch.int16: rt.HalElementType.SINT_16,
    torch.int32: rt.HalElementType.SINT_32,
    torch.int64: rt.HalElementType.SINT_64,
    torch.float16: rt.HalElementType.FLOAT_16,
    torch.bfloat16: rt.HalElementType.BFLOAT_16,
    torch.float32: rt.HalElementType.FLOAT_32,
    torch.float64: rt.HalElementType.FLOAT_64,
    torch.complex64: rt.HalElementType.COMPLEX_64,
    torch.complex128: rt.HalElementType.COMPLEX_128,
}


@cache
def instance() -> Any:
    """The VM instance, one a process."""
    return rt.VmInstance()


@cache
def device(threads: int) -> Any:
    """The local device that computes with ``threads`` threads; with one, on the caller's own thread."""
    from iree.runtime._binding import create_hal_driver  # the public get_driver keeps the first thread count for good

    try:
        if threads == 1:
            return create_hal_driver("local-sync").create_default_device()
        rt.flags.parse_flags(f"--task_topology_group_count={threads}")
        return create_hal_driver("local-task").create_default_device()
    except (RuntimeError, ValueError) as error:
        raise TargetUnavailableError(f"IREE cannot create its CPU device: {_first_line(error)}") from error


@dataclass(frozen=True)
class _Slot:
    """Where an argument of ``@main`` comes from: a ``position`` among the inputs, or the parameter ``name``.

    ``written``: the module may compute into its buffer.
    """

    spec: ArgumentSpec
    position: int | None
    name: str | None
    written: bool


class IreeExecutable(Executable):
    """A loaded vmfb, bound to its parameters.

    ``copied_inputs`` counts tensors that had to be copied: strided, not aligned to 64 bytes, or written to by the module.
    """

    def __init__(
        self, vmfb: bytes, signature: Signature, parameters: Mapping[str, torch.Tensor], *, threads: int = 1
    ) -> None:
        self.signature = signature
        self.copied_inputs = 0
        self._device = device(threads)
        self._parameters = parameters
        self._lock = threading.Lock()  # an IREE context serves one call at a time
        try:
            module = rt.VmModule.copy_buffer(instance(), vmfb)
            self._function = module.lookup_function(ENTRY)
            reflection = self._function.reflection
            lifted: list[str] = json.loads(reflection.get(PARAMETERS, "[]"))
            written: list[int] = json.loads(reflection.get(WRITTEN, "[]"))
            self._bound = {name: _archived(parameters[name]) for name in lifted}
            self._context = rt.VmContext(instance(), [*self._modules(lifted), module])
        except (RuntimeError, ValueError, KeyError) as error:
            raise TargetUnavailableError(
                f"IREE's runtime refuses this module: {_first_line(error)}",
                hint="build it again with the compiler version that 'mlirstack doctor' names",
            ) from error
        self._slots = _slots(signature, set(lifted), set(written))
        self._results = [(r.shape is None, _torch_dtype(r.dtype)) for r in signature.results]
        self._owned_by_others = sorted(_extent(t) for t in self._bound.values())

    def _modules(self, lifted: Sequence[str]) -> list[Any]:
        modules = [rt.create_hal_module(instance(), self._device)]
        if lifted:
            index = rt.ParameterIndex()
            for name in lifted:
                index.add_buffer(name, self._bound[name].numpy().data)
            modules.append(rt.create_io_parameters_module(instance(), index.create_provider(SCOPE)))
        return modules

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Call ``@main``; :class:`RuntimeCheckError` where a run-time check of the program fails."""
        arguments = rt.VmVariantList(len(self._slots))
        held: list[torch.Tensor] = []  # alive, and known, until the results are looked at
        for slot in self._slots:
            value = inputs[slot.position] if slot.position is not None else self._parameters[str(slot.name)]
            if slot.spec.shape is not None and slot.written and value.numel():
                arguments.push_ref(self._copied(value).ref)
            elif slot.spec.shape is not None:
                tensor = self._importable(value)
                held.append(tensor)
                arguments.push_ref(self._device.from_dlpack_capsule(to_dlpack(tensor)).ref)
            elif slot.spec.dtype == "float64":
                arguments.push_float(float(value))
            else:
                arguments.push_int(int(value))
        results = rt.VmVariantList(len(self._results))
        try:
            with self._lock:
                self._context.invoke(self._function, arguments, results)
        except (RuntimeError, ValueError, IndexError) as error:
            raise RuntimeCheckError(f"the program stopped: {_first_line(error)}") from error
        return self._take(results, held)

    def _importable(self, tensor: torch.Tensor) -> torch.Tensor:
        """``tensor`` itself where IREE can read it in place, else a copy."""
        tensor = tensor.detach()
        if tensor.dtype is torch.bool:
            tensor = tensor.view(torch.uint8)  # booleans are passed as bytes
        if tensor.is_conj() or tensor.is_neg() or not tensor.is_contiguous():
            self.copied_inputs += 1
            return tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        if tensor.data_ptr() % ALIGNMENT:
            self.copied_inputs += 1
            return tensor.clone()
        return tensor

    def _copied(self, tensor: torch.Tensor) -> Any:
        """A view of a new buffer of IREE's with the contents of ``tensor``, for the module to write to."""
        self.copied_inputs += 1
        contents = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        allocator = self._device.allocator
        view = allocator.allocate_buffer_copy(
            memory_type=rt.MemoryType.DEVICE_LOCAL | rt.MemoryType.HOST_VISIBLE,
            allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
            device=self._device,
            buffer=contents.numpy(),
            element_type=rt.HalElementType.UINT_8,
        )
        return rt.HalBufferView(view.get_buffer(), list(tensor.shape), ELEMENT_TYPES[tensor.dtype])

    def _take(self, results: Any, held: Sequence[torch.Tensor]) -> list[Any]:
        """The results as tensors that own their memory: one that shares it with anything else is copied."""
        taken = [_extent(t) for t in held]
        values: list[Any] = []
        for i, (scalar, dtype) in enumerate(self._results):
            if scalar:
                value = results.get_variant(i)
                values.append(bool(value) if dtype is torch.bool else value)
                continue
            view = results.get_as_object(i, rt.HalBufferView)
            tensor = from_dlpack(self._device.create_dlpack_capsule(view, DLPACK_CPU, 0))
            if tensor.dtype is not dtype:
                tensor = tensor.view(dtype)  # integers have no sign in IREE
            extent = _extent(tensor)
            if any(_overlap(extent, other) for other in (*taken, *self._owned_by_others)):
                tensor = tensor.clone()
            else:
                taken.append(extent)
            values.append(tensor)
        return values


def _archived(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a parameter, flat, in place where it is contiguous and aligned."""
    tensor = tensor.detach()
    if not tensor.is_contiguous() or tensor.data_ptr() % ALIGNMENT:
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    return tensor.reshape(-1).view(torch.uint8)


def _slots(signature: Signature, lifted: set[str], written: set[int]) -> list[_Slot]:
    slots: list[_Slot] = []
    position = 0
    for spec in signature.arguments:
        if spec.kind == "input":
            slots.append(_Slot(spec, position, None, len(slots) in written))
            position += 1
        elif spec.name not in lifted:
            slots.append(_Slot(spec, None, spec.name, len(slots) in written))
    return slots


def _torch_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First address of a contiguous tensor, and the one behind it."""
    start = tensor.data_ptr()
    return start, start + tensor.numel() * tensor.element_size()


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _first_line(error: Exception) -> str:
    """IREE's messages hold a C++ file, the status, the reason and a stack; the reason is for people."""
    text = str(error).split("; while invoking", 1)[0].split("\n", 1)[0]
    return text.rsplit(".c:", 1)[-1].split(";", 1)[-1].strip() if ".c:" in text else text
