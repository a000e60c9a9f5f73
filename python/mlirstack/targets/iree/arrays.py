"""Running a vmfb with NumPy arrays, on a machine that has no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import iree.runtime as rt
import ml_dtypes
import numpy as np

from mlirstack.frontend.program import Signature
from mlirstack.targets.base import ArrayExecutable
from mlirstack.targets.iree.cuda import Context, cuda
from mlirstack.targets.iree.session import NOTHING, Packed, Session, allocate_copy, processor
from mlirstack.targets.iree.views import ALIGNMENT, ELEMENT_TYPES, aligned_bytes


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype for torch's name of it; bfloat16 is that of ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


class IreeArrayExecutable(ArrayExecutable):
    """A loaded vmfb, bound to its parameters; ``device`` is "cpu" or "cuda"."""

    def __init__(
        self,
        vmfb: bytes,
        signature: Signature,
        parameters: Mapping[str, np.ndarray],
        packed: Packed = NOTHING,
        *,
        device: str,
        threads: int,
    ) -> None:
        self.signature = signature
        self._parameters = parameters
        self._is_host = device == "cpu"
        self._device = processor(threads) if self._is_host else cuda(0)
        self._enter: Callable[[], None] = (lambda: None) if self._is_host else Context(0).enter
        self._session = Session(vmfb, signature, self._device, lambda name: flat_bytes(parameters[name]), packed)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Call ``@main`` with one array or number per input; results are arrays that the caller owns, or numbers."""
        self._enter()
        session = self._session
        held: list[Any] = []  # memory, alive until the call is over
        passed: list[Any] = []
        for slot in session.slots:
            value = inputs[slot.position] if slot.position is not None else self._parameters[str(slot.name)]
            if slot.spec.shape is not None:
                array = np.ascontiguousarray(value)
                if self._is_importable(array) and not slot.written:
                    value = session.views.of(array.ctypes.data, array.shape, slot.spec.dtype)
                else:
                    array = allocate_copy(self._device, array.reshape(-1).view(np.uint8), array.shape, slot.spec.dtype)
                    value = array.ref
                held.append(array)
            passed.append(value)
        shapes, scratch = session.sizes(inputs, lambda: passed)
        views = {number: self._empty(shape, session.dtypes[number]) for number, shape in shapes.items()}
        written = [view.ref for view in views.values()]
        if scratch is not None:
            written.append(self._empty((scratch,), "uint8").get_buffer().ref)
        results = session.invoke(session.prepare(passed, written))
        if session.has_checks:
            session.check(self._contents(views[len(self.signature.results)], np.dtype(np.uint8)).tolist())
        return [self._taken(results, i, views.get(i)) for i in range(len(self.signature.results))]

    def _empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A view of a new buffer on the device."""
        size = max(math.prod(shape) * numpy_dtype(dtype).itemsize, 1)
        buffer = self._device.allocator.allocate_buffer(rt.MemoryType.DEVICE_LOCAL, rt.BufferUsage.DEFAULT, size)
        return rt.HalBufferView(buffer, list(shape), ELEMENT_TYPES[dtype])

    def _is_importable(self, array: np.ndarray) -> bool:
        """May IREE read the values where they are?"""
        return self._is_host and array.ctypes.data % ALIGNMENT == 0

    def _taken(self, results: Any, number: int, view: Any) -> Any:
        """A result as an array or a number; ``view`` is its memory where the caller passed it."""
        spec = self.signature.results[number]
        if spec.shape is None:
            value = results.get_variant(number)
            return bool(value) if spec.dtype == "bool" else value
        return self._contents(view or results.get_as_object(number, rt.HalBufferView), numpy_dtype(spec.dtype))

    def _contents(self, view: Any, dtype: Any) -> np.ndarray:
        shape = tuple(view.shape)
        if 0 in shape:
            return np.empty(shape, dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        flat = rt.HalBufferView(view.get_buffer(), [size], rt.HalElementType.UINT_8)
        contents = rt.DeviceArray(self._device, flat, implicit_host_transfer=True).to_host()
        return np.array(contents).view(dtype).reshape(shape)


def flat_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of a parameter, in place where it is dense and aligned."""
    if not array.flags.c_contiguous or array.ctypes.data % ALIGNMENT:
        aligned = aligned_bytes(array.nbytes)
        aligned[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return aligned
    return array.reshape(-1).view(np.uint8)
