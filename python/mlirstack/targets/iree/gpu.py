"""Running a vmfb on an NVIDIA GPU with torch tensors on it, without copies where memory allows it.

IREE computes on streams of its own.  A call waits until torch's current stream has written the inputs, and returns when the
results are there, so that whatever torch does next, on any stream, sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import iree.runtime as rt
import torch
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from mlirstack.errors import TargetUnavailableError
from mlirstack.frontend.program import Signature
from mlirstack.targets.base import Executable
from mlirstack.targets.iree.runtime import DLPACK_CPU, flat_bytes, plain, torch_dtype
from mlirstack.targets.iree.session import Session, Slot, cuda, push_number

DLPACK_CUDA = 2


class IreeCudaExecutable(Executable):
    """A loaded vmfb on torch's current CUDA device, its parameters copied there by IREE.

    ``place`` is torch's device and ``device_of_iree`` IREE's, for tests that have no GPU.  ``copied_inputs`` counts tensors
    that had to be copied: strided, not aligned to 64 bytes, or written to by the module.
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
        self.copied_inputs = 0
        iree_device = cuda(place.index or 0) if device_of_iree is None else device_of_iree
        self._session = Session(vmfb, signature, iree_device, lambda name: flat_bytes(parameters[name]))
        self._device = iree_device
        # What the module takes per call, and what the user may get back, must be on the device.
        passed = {slot.name for slot in self._session.slots if slot.spec.shape is not None}
        passed |= {o.name for o in signature.outputs if o.kind == "parameter"}
        passed |= {m.name for m in signature.mutations if m.name is not None}
        self.parameters = {n: t.detach().to(place) if n in passed else t for n, t in parameters.items()}
        self._results = [(r.shape is None, torch_dtype(r.dtype)) for r in signature.results]

    @property
    def slots(self) -> Sequence[Slot]:
        """What is passed in a call, in the order of the module's arguments."""
        return self._session.slots

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Call ``@main``; :class:`RuntimeCheckError` where a run-time check of the program fails."""
        assert self.parameters is not None
        arguments = rt.VmVariantList(len(self._session.slots))
        held: list[torch.Tensor | None] = []  # one a slot, alive until the call is over
        for slot in self._session.slots:
            value = inputs[slot.position] if slot.position is not None else self.parameters[str(slot.name)]
            held.append(None if slot.spec.shape is None else self._importable(value, written=slot.written))
            if held[-1] is None:
                push_number(arguments, value, slot.spec.dtype)
            else:
                arguments.push_ref(self._device.from_dlpack_capsule(to_dlpack(held[-1])).ref)
        if self._place.type == "cuda":
            torch.cuda.current_stream(self._place).synchronize()
        return self._take(self._session.invoke(arguments), held)

    def _importable(self, tensor: torch.Tensor, *, written: bool) -> torch.Tensor:
        """``tensor`` itself where IREE can read it in place, else a copy."""
        importable = plain(tensor)
        if importable.data_ptr() != tensor.data_ptr():
            self.copied_inputs += 1
        elif written and tensor.numel():
            self.copied_inputs += 1
            return importable.clone()
        return importable

    def _take(self, results: Any, held: Sequence[torch.Tensor | None]) -> list[Any]:
        """The results as tensors that own their memory: one that shares it with an argument is copied."""
        taken = [_extent(tensor) for tensor in held if tensor is not None]
        values: list[Any] = []
        for i, (scalar, dtype) in enumerate(self._results):
            if scalar:
                value = results.get_variant(i)
                values.append(bool(value) if dtype is torch.bool else value)
                continue
            tensor = self._exported(results.get_as_object(i, rt.HalBufferView))
            tensor = tensor if tensor.dtype is dtype else tensor.view(dtype)  # integers have no sign in IREE
            first, last = _extent(tensor)
            if any(first < end and start < last for start, end in taken):
                tensor = tensor.clone()
            else:
                taken.append((first, last))
            values.append(tensor)
        return values

    def _exported(self, view: Any) -> torch.Tensor:
        """A buffer of IREE's as a tensor, without a copy."""
        kind = DLPACK_CUDA if self._place.type == "cuda" else DLPACK_CPU
        return from_dlpack(self._device.create_dlpack_capsule(view, kind, self._place.index or 0))


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First address of a dense tensor, and the one behind it."""
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
