"""Running a vmfb on an NVIDIA GPU with torch tensors on it, without copies where memory allows it.

IREE computes on a stream of its own.  A call waits until torch's current stream has written the inputs, and its results are
there when it returns, so that whatever torch does next, on any stream, sees them.  Results and temporaries lie in memory of
torch's: IREE's device cannot hand out what it allocates, and would wait for the device to free it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import iree.runtime as rt
import torch
from torch.utils.dlpack import from_dlpack

from mlirstack.errors import TargetUnavailableError
from mlirstack.frontend.program import Signature
from mlirstack.targets.base import Executable
from mlirstack.targets.iree.runtime import DLPACK_CPU, flat_bytes, importable_copy, is_importable, torch_dtype
from mlirstack.targets.iree.session import Session, Slot, cuda, cuda_context


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
        self._enter = cuda_context(place.index or 0) if device_of_iree is None else lambda: None
        self._session = Session(vmfb, signature, self._device, lambda name: flat_bytes(parameters[name]))
        # What the module takes per call, and what the user may get back, must be on the device.
        passed = {slot.name for slot in self._session.slots if slot.spec.shape is not None}
        passed |= {o.name for o in signature.outputs if o.kind == "parameter"}
        passed |= {m.name for m in signature.mutations if m.name is not None}
        self.parameters = {n: t.detach().to(place) if n in passed else t for n, t in parameters.items()}
        self._dtypes = [torch_dtype(dtype) for dtype in self._session.dtypes]

    @property
    def slots(self) -> Sequence[Slot]:
        """What is passed in a call, in the order of the module's arguments."""
        return self._session.slots

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Call ``@main``; :class:`RuntimeCheckError` where a run-time check of the program fails."""
        return self.start(inputs)()

    def start(self, inputs: Sequence[Any]) -> Callable[[], list[Any]]:
        """Begin a call behind those begun before; what is returned waits for it and gives its results."""
        assert self.parameters is not None
        self._enter()
        session, view = self._session, self._session.views.of
        held: list[Any] = []  # memory, alive until the call is over
        passed: list[Any] = []
        for slot in session.slots:
            value = inputs[slot.position] if slot.position is not None else self.parameters[str(slot.name)]
            if slot.spec.shape is not None:
                tensor = self._importable(value, written=slot.written)
                held.append(tensor.untyped_storage())
                value = view(tensor.data_ptr(), tensor.shape, slot.spec.dtype)
            passed.append(value)
        shapes, scratch = session.sizes(inputs, lambda: session.arguments(passed, session.no_results()))
        results = {number: self._result(number, shape) for number, shape in shapes.items()}
        written = [view(t.data_ptr(), shapes[number], session.dtypes[number]) for number, t in results.items()]
        if scratch is not None:
            memory = torch.empty(scratch, dtype=torch.uint8, device=self._place)
            held.append(memory)
            written.append(session.views.buffer(memory.data_ptr(), scratch))
        arguments = session.arguments(passed, written)
        self._await_stream()
        begun = session.begin(arguments)

        def finish() -> list[Any]:
            begun.wait()
            held.clear()
            if session.has_checks:
                session.check(results[len(self.signature.results)].tolist())
            return [
                results[i] if i in results else self._taken(begun.results, i) for i in range(len(self.signature.results))
            ]

        return finish

    def _result(self, number: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Memory that the module writes a result to; what tells of checks lies where the host reads it."""
        if number == len(self.signature.results):
            return torch.empty(shape, dtype=self._dtypes[number], pin_memory=self._place.type == "cuda")
        return torch.empty(shape, dtype=self._dtypes[number], device=self._place)

    def _await_stream(self) -> None:
        """Wait for torch's stream: it writes inputs, and may still use memory that was freed and is allocated again."""
        if self._place.type == "cuda":
            stream = torch.cuda.current_stream(self._place)
            if not stream.query():
                stream.synchronize()

    def _importable(self, tensor: torch.Tensor, *, written: bool) -> torch.Tensor:
        """``tensor`` itself where IREE can read it in place, else a copy."""
        if not is_importable(tensor):
            self.copied_inputs += 1
            return importable_copy(tensor)
        if written and tensor.numel():
            self.copied_inputs += 1
            return tensor.detach().clone()
        return tensor

    def _taken(self, results: Any, number: int) -> Any:
        """A result that IREE allocated, as a tensor that owns its memory, or a number."""
        dtype = self._dtypes[number]
        if self.signature.results[number].shape is None:
            value = results.get_variant(number)
            return bool(value) if dtype is torch.bool else value
        view = results.get_as_object(number, rt.HalBufferView)
        self._enter()
        self.copied_results += 1
        if self._place.type == "cpu":
            return from_dlpack(self._device.create_dlpack_capsule(view, DLPACK_CPU, 0)).view(dtype).clone()
        tensor = torch.empty(tuple(view.shape), dtype=dtype, device=self._place)
        if tensor.numel():
            self._await_stream()
            size = tensor.numel() * tensor.element_size()
            self._session.copy(view.get_buffer(), self._session.views.buffer(tensor.data_ptr(), size).deref(rt.HalBuffer))
        return tensor
