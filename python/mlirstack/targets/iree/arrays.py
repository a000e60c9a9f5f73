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
from mlirstack.targets.iree.session import (
    ALIGNMENT,
    ELEMENT_TYPES,
    Session,
    allocate_copy,
    cuda,
    cuda_context,
    processor,
    push_number,
)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype for torch's name of it; bfloat16 is that of ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


class IreeArrayExecutable(ArrayExecutable):
    """A loaded vmfb, bound to its parameters; ``device`` is "cpu" or "cuda"."""

    def __init__(
        self, vmfb: bytes, signature: Signature, parameters: Mapping[str, np.ndarray], *, device: str, threads: int
    ) -> None:
        self.signature = signature
        self._parameters = parameters
        self._is_host = device == "cpu"
        self._device = processor(threads) if self._is_host else cuda(0)
        self._enter: Callable[[], None] = (lambda: None) if self._is_host else cuda_context(0)
        self._session = Session(vmfb, signature, self._device, lambda name: _flat_bytes(parameters[name]))

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Call ``@main`` with one array or number per input; results are arrays that the caller owns, or numbers."""
        self._enter()
        held: list[np.ndarray] = []
        passed: list[Any] = []
        for slot in self._session.slots:
            value = inputs[slot.position] if slot.position is not None else self._parameters[str(slot.name)]
            if slot.spec.shape is not None:
                held.append(np.ascontiguousarray(value))
                value = self._view(held[-1], slot.spec.dtype, written=slot.written)
            passed.append(value)
        shapes, scratch = self._session.sizes(inputs, lambda: self._arguments(passed, self._session.no_results()))
        written = [self._empty(shape, self._session.dtypes[number]) for number, shape in shapes.items()]
        if scratch is not None:
            written.append(self._empty((scratch,), "uint8"))
        results = self._session.invoke(self._arguments(passed, written))
        views = dict(zip(shapes, written, strict=False))
        if self._session.has_checks:
            self._session.check(self._contents(views[len(self.signature.results)], np.dtype(np.uint8)).tolist())
        return [self._taken(results, i, views.get(i)) for i in range(len(self.signature.results))]

    def _arguments(self, passed: Sequence[Any], written: Sequence[Any]) -> Any:
        """The list that ``@main`` is called with: inputs and parameters, then what it writes its results to."""
        arguments = rt.VmVariantList(len(passed) + len(written) + 2)
        for slot, value in zip(self._session.slots, passed, strict=True):
            if slot.spec.shape is None:
                push_number(arguments, value, slot.spec.dtype)
            else:
                arguments.push_ref(value.ref)
        self._session.push_results(arguments, written)
        return arguments

    def _empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A view of a new buffer on the device."""
        size = max(math.prod(shape) * numpy_dtype(dtype).itemsize, 1)
        buffer = self._device.allocator.allocate_buffer(rt.MemoryType.DEVICE_LOCAL, rt.BufferUsage.DEFAULT, size)
        return rt.HalBufferView(buffer, list(shape), ELEMENT_TYPES[dtype])

    def _view(self, array: np.ndarray, dtype: str, *, written: bool) -> Any:
        shape, contents = array.shape, array.reshape(-1).view(np.uint8)
        in_place = self._is_host and array.size and not written and contents.flags.writeable
        if in_place and contents.ctypes.data % ALIGNMENT == 0:
            imported = self._device.from_dlpack_capsule(contents.__dlpack__())
            return rt.HalBufferView(imported.get_buffer(), list(shape), ELEMENT_TYPES[dtype])
        return allocate_copy(self._device, contents, shape, dtype)

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


def _flat_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of a parameter, in place where it is dense and aligned."""
    if not array.flags.c_contiguous or array.ctypes.data % ALIGNMENT:
        spare = np.empty(array.nbytes + ALIGNMENT, np.uint8)
        start = -spare.ctypes.data % ALIGNMENT
        aligned = spare[start : start + array.nbytes]
        aligned[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return aligned
    return array.reshape(-1).view(np.uint8)
