"""Running a vmfb on the processor with torch tensors, without copies where memory allows it.

Parameters that the module wants as globals are given to it once, in place; all other arguments are passed per call as DLPack
views of the caller's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import iree.runtime as rt
import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from mlirstack.frontend.program import Signature
from mlirstack.targets.base import Executable
from mlirstack.targets.iree.session import NOTHING, Packed, Session, Slot, allocate_copy, processor
from mlirstack.targets.iree.views import ALIGNMENT

DLPACK_CPU = 1


class IreeExecutable(Executable):
    """A loaded vmfb, bound to its parameters.

    ``copied_inputs`` counts tensors that had to be copied: strided, not aligned to 64 bytes, or written to by the module.
    """

    def __init__(
        self,
        vmfb: bytes,
        signature: Signature,
        parameters: Mapping[str, torch.Tensor],
        packed: Packed = NOTHING,
        *,
        threads: int = 1,
    ) -> None:
        self.signature = signature
        self.copied_inputs = 0
        self._parameters = parameters
        self._session = Session(vmfb, signature, processor(threads), lambda name: flat_bytes(parameters[name]), packed)
        self._device = self._session.device
        self._results = [(r.shape is None, torch_dtype(r.dtype)) for r in signature.results]
        self._owned_by_others = sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in self._session.bound)

    @property
    def slots(self) -> Sequence[Slot]:
        """What is passed in a call, in the order of the module's arguments."""
        return self._session.slots

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Call ``@main``; :class:`RuntimeCheckError` where a run-time check of the program fails."""
        session, passed = self._session, []
        held: list[torch.Tensor] = []  # alive, and known, until the results are looked at
        for slot in session.slots:
            value = inputs[slot.position] if slot.position is not None else self._parameters[str(slot.name)]
            if slot.spec.shape is not None and slot.written and value.numel():
                value = self._copied(value).ref
            elif slot.spec.shape is not None:
                tensor = self._importable(value)
                held.append(tensor)
                value = session.views.of(tensor.data_ptr(), tensor.shape, slot.spec.dtype)
            passed.append(value)
        return self._take(session.invoke(session.prepare(passed)), held)

    def _importable(self, tensor: torch.Tensor) -> torch.Tensor:
        """``tensor`` itself where IREE can read it in place, else a copy."""
        if tensor.data_ptr() % ALIGNMENT == 0 and is_dense(tensor):
            return tensor
        self.copied_inputs += 1
        return dense_copy(tensor)

    def _copied(self, tensor: torch.Tensor) -> Any:
        """A view of a new buffer of IREE's with the contents of ``tensor``, for the module to write to."""
        self.copied_inputs += 1
        contents = tensor.detach().resolve_conj().resolve_neg().contiguous()
        dtype = str(tensor.dtype).removeprefix("torch.")
        return allocate_copy(self._device, _bytes(contents).numpy(), tuple(tensor.shape), dtype)

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


def is_dense(tensor: torch.Tensor) -> bool:
    """Do the values lie in memory as they are, one after the other?"""
    return tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())


def dense_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in dense, aligned memory of their own."""
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def flat_bytes(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a parameter on the host, flat, in place where it is dense and aligned."""
    tensor = tensor.detach().cpu()
    if not tensor.is_contiguous() or tensor.data_ptr() % ALIGNMENT:
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    contents: np.ndarray = _bytes(tensor).numpy()
    return contents


def _bytes(dense: torch.Tensor) -> torch.Tensor:
    """The same memory as bytes in a row; torch calls one element dense whatever its stride, and would not view it so."""
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)


def torch_dtype(name: str) -> torch.dtype:
    """The dtype that a signature names."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First address of a contiguous tensor, and the one behind it."""
    start = tensor.data_ptr()
    return start, start + tensor.numel() * tensor.element_size()


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
