"""Running a vmfb on an NVIDIA GPU with torch tensors on it, without copies where memory allows it.

IREE computes on a stream of its own.  A call waits until torch's current stream has written the inputs, and its results are
there when it returns, so that whatever torch does next, on any stream, sees them.  Results and temporaries lie in memory of
torch's: IREE's device cannot hand out what it allocates, and would wait for the device to free it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import iree.runtime as rt
import torch
from torch.utils.dlpack import from_dlpack

from mlirstack.errors import TargetUnavailableError
from mlirstack.frontend.program import Signature
from mlirstack.targets.base import Executable
from mlirstack.targets.iree.cuda import Context, cuda
from mlirstack.targets.iree.runtime import DLPACK_CPU, dense_copy, flat_bytes, is_dense, torch_dtype
from mlirstack.targets.iree.session import Prepared, Session, Slot
from mlirstack.targets.iree.views import ALIGNMENT


@dataclass(slots=True)
class _Call:
    """A call under way: what was prepared for it, found again by ``key``; what IREE has ``returned``; its ``results`` by
    number as far as the caller allocates them; the memory of temporaries; what else must stay alive (``held``)."""

    prepared: Prepared
    key: tuple[int, ...]
    returned: Any
    results: dict[int, torch.Tensor]
    scratch: torch.Tensor | None
    held: list[Any]


class IreeCudaExecutable(Executable):
    """A loaded vmfb on torch's current CUDA device, its parameters copied there by IREE.

    ``place`` is torch's device and ``device_of_iree`` IREE's, for tests that have no GPU.  ``copied_inputs`` counts tensors
    that had to be copied: strided, not aligned to 64 bytes, or written to by the module; ``copied_results`` those that IREE
    allocated, because their size is known only when they are there.
    """

    def __init__(
        self,
        vmfb: bytes,
        signature: Signature,
        parameters: Mapping[str, torch.Tensor],
        *,
        place: torch.device | None = None,
        device_of_iree: Any = None,
    ) -> None:
        if place is None:
            if not torch.cuda.is_available():
                raise TargetUnavailableError("torch finds no GPU", hint="install a torch that is built for CUDA")
            place = torch.device("cuda", torch.cuda.current_device())
        self._place, self.device = place, str(place)
        self.signature = signature
        self.copied_inputs = self.copied_results = 0
        self._device = cuda(place.index or 0) if device_of_iree is None else device_of_iree
        self._context = Context(place.index or 0) if device_of_iree is None else None
        self._session = Session(vmfb, signature, self._device, lambda name: flat_bytes(parameters[name]))
        # What the module takes per call, and what the user may get back, must be on the device.
        passed = {slot.name for slot in self._session.slots if slot.spec.shape is not None}
        passed |= {o.name for o in signature.outputs if o.kind == "parameter"}
        passed |= {m.name for m in signature.mutations if m.name is not None}
        self.parameters = {n: t.detach().to(place) if n in passed else t for n, t in parameters.items()}
        self._dtypes = [torch_dtype(dtype) for dtype in self._session.dtypes]
        self._spare: list[torch.Tensor] = []  # memory for temporaries that no call uses

    @property
    def slots(self) -> Sequence[Slot]:
        """What is passed in a call, in the order of the module's arguments."""
        return self._session.slots

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Call ``@main``; :class:`RuntimeCheckError` where a run-time check of the program fails."""
        return self._finished(self._begun(inputs))

    def start(self, inputs: Sequence[Any]) -> Callable[[], list[Any]]:
        """Begin a call behind those begun before; what is returned waits for it and gives its results."""
        call = self._begun(inputs)
        call.held += [value.untyped_storage() for value in inputs if isinstance(value, torch.Tensor)]
        return lambda: self._finished(call)

    def _begun(self, inputs: Sequence[Any]) -> _Call:
        """A call under way.  What a call before has prepared is used again where it passed the same memory."""
        assert self.parameters is not None
        if self._context is not None:
            self._context.enter()
        passed, held, key = [], [], []
        for slot in self._session.slots:
            value = inputs[slot.position] if slot.position is not None else self.parameters[str(slot.name)]
            if slot.spec.shape is not None:
                address = value.data_ptr()
                if address % ALIGNMENT or not is_dense(value) or (slot.written and value.numel()):
                    value = dense_copy(value)
                    held.append(value)
                    address = value.data_ptr()
                key.append(address)
            passed.append(value)
        self.copied_inputs += len(held)
        shapes, size = self._session.sizes(inputs, lambda: self._references(passed))
        results = {number: self._result(number, shape) for number, shape in shapes.items()}
        scratch = None if size is None else self._temporaries(size)
        key += [tensor.data_ptr() for tensor in results.values()]
        if scratch is not None:
            key.append(scratch.data_ptr())
        found = None if self._session.varies else self._session.kept(tuple(key))
        prepared = found or self._session.prepare(self._references(passed), self._memory(results, scratch))
        self._await_stream()
        return _Call(prepared, tuple(key), self._session.begin(prepared), results, scratch, held)

    def _finished(self, call: _Call) -> list[Any]:
        """The results of a call, when they are there."""
        session, results, count = self._session, call.results, len(self.signature.results)
        session.wait(call.prepared)
        call.held.clear()
        if not session.varies:
            session.keep(call.key, call.prepared)
            if call.scratch is not None:
                self._spare.append(call.scratch)
        if session.has_checks:
            session.check(results[count].tolist())
        return [results[i] if i in results else self._taken(call.returned, i) for i in range(count)]

    def _references(self, passed: Sequence[Any]) -> list[Any]:
        """Numbers, and views of tensors, as the module takes them."""
        view, slots = self._session.views.of, self._session.slots
        return [
            value if slot.spec.shape is None else view(value.data_ptr(), value.shape, slot.spec.dtype)
            for slot, value in zip(slots, passed, strict=True)
        ]

    def _memory(self, results: Mapping[int, torch.Tensor], scratch: torch.Tensor | None) -> list[Any]:
        """Views of what the module writes to."""
        views, dtypes = self._session.views, self._session.dtypes
        memory = [views.of(tensor.data_ptr(), tensor.shape, dtypes[number]) for number, tensor in results.items()]
        return memory if scratch is None else [*memory, views.buffer(scratch.data_ptr(), scratch.numel())]

    def _result(self, number: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Memory that the module writes a result to; what tells of checks lies where the host reads it."""
        if number == len(self.signature.results):
            return torch.empty(shape, dtype=self._dtypes[number], pin_memory=self._context is not None)
        return torch.empty(shape, dtype=self._dtypes[number], device=self._place)

    def _temporaries(self, size: int) -> torch.Tensor:
        """Memory for the temporaries of a call: that of a call before, where calls need the same."""
        try:
            return self._spare.pop()
        except IndexError:
            return torch.empty(size, dtype=torch.uint8, device=self._place)

    def _await_stream(self) -> None:
        """Wait for torch's stream: it writes inputs, and may still use memory that was freed and is allocated again."""
        if self._context is not None:
            # What torch.cuda.current_stream(index).cuda_stream is, without making an object.
            self._context.await_stream(torch._C._cuda_getCurrentRawStream(self._place.index))

    def _taken(self, results: Any, number: int) -> Any:
        """A result that IREE allocated, as a tensor that owns its memory, or a number."""
        dtype = self._dtypes[number]
        if self.signature.results[number].shape is None:
            value = results.get_variant(number)
            return bool(value) if dtype is torch.bool else value
        view = results.get_as_object(number, rt.HalBufferView)
        self.copied_results += 1
        if self._context is not None:
            self._context.enter()
        if self._place.type == "cpu":
            return from_dlpack(self._device.create_dlpack_capsule(view, DLPACK_CPU, 0)).view(dtype).clone()
        tensor = torch.empty(tuple(view.shape), dtype=dtype, device=self._place)
        if tensor.numel():
            self._await_stream()
            size = tensor.numel() * tensor.element_size()
            self._session.copy(view.get_buffer(), self._session.views.buffer(tensor.data_ptr(), size).deref(rt.HalBuffer))
        return tensor
