"""Memref descriptors and the frame: the words that compiled code reads its arguments from and leaves its results in.

A descriptor of rank r is 3 + 2r words of 64 bits: allocated pointer, aligned pointer, offset, r sizes, r strides.  A frame
is built once and used for many calls; between two calls of the same shapes only pointers change.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mlirstack.errors import BundleError
from mlirstack.passes.abi import FunctionAbi, ValueAbi

Scalar = bool | int | float
ScalarType = type[ctypes.c_bool] | type[ctypes.c_int32] | type[ctypes.c_int64] | type[ctypes.c_float] | type[ctypes.c_double]

DTYPES: dict[str, torch.dtype] = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "i1": torch.bool,
    "complex<f32>": torch.complex64,
    "complex<f64>": torch.complex128,
}
_SCALARS: dict[str, ScalarType] = {
    "i1": ctypes.c_bool,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "index": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}
_WORD = ctypes.sizeof(ctypes.c_int64)

_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]
_libc.free.restype = None


def dtype_of(value: ValueAbi) -> torch.dtype:
    """The torch dtype of an element type; :class:`BundleError` where torch has none."""
    if value.element not in DTYPES:
        raise BundleError(f"element type '{value.element}' has no torch dtype")
    return DTYPES[value.element]


def words_of(value: ValueAbi) -> int:
    """Words of a memref's descriptor."""
    assert value.shape is not None
    return 3 + 2 * len(value.shape)


def contiguous_strides(shape: Sequence[int]) -> list[int]:
    """Row-major strides; those that torch reports for dimensions of size 0 or 1 are arbitrary."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return strides


class Returned:
    """What one call returned, as tensors over its buffers, without a copy; a buffer is freed when the last view of it dies.

    Every descriptor is of an allocation with identity layout that the caller owns, as bufferization promises for results;
    but results that are views of one value may have one allocation in common.  The first of them gets it, the others a
    copy: it is freed once, and a write to one result is not seen in another.
    """

    def __init__(self, words: ctypes.Array[ctypes.c_int64]) -> None:
        self._words = words
        self._owned: set[int] = set()
        self._empty: set[int] = set()

    def adopt(self, at: int, value: ValueAbi, dtype: torch.dtype) -> torch.Tensor:
        """The tensor whose descriptor lies at word ``at``."""
        assert value.shape is not None
        allocated, aligned, offset = self._words[at : at + 3]
        shape = list(self._words[at + 3 : at + 3 + len(value.shape)])
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            self._empty.add(allocated)
            return torch.empty(shape, dtype=dtype)
        buffer = (ctypes.c_char * size).from_address(aligned + offset * dtype.itemsize)
        if allocated in self._owned:
            return torch.frombuffer(buffer, dtype=dtype).view(shape).clone()
        self._owned.add(allocated)
        weakref.finalize(buffer, _libc.free, allocated).atexit = False
        return torch.frombuffer(buffer, dtype=dtype).view(shape)

    def close(self) -> None:
        """After the last result: frees what only results without elements have."""
        for allocated in self._empty - self._owned:
            _libc.free(allocated)


@dataclass(frozen=True)
class Layout:
    """Where everything stands in the frames of one entry point (positions in words)."""

    function: FunctionAbi
    inputs: tuple[int, ...]  # descriptor or scalar of each input
    outs: tuple[int, ...]  # descriptor of each out-parameter
    returned: tuple[int, ...]  # descriptor or scalar of each returned value
    error: int | None  # the error number, if the entry point is checked
    slots: tuple[int, ...]  # what the frame's pointers point to, in order
    size: int

    @staticmethod
    def of(function: FunctionAbi) -> Layout:
        """Lay out the frames of ``function``."""
        size = 0

        def take(words: int) -> int:
            nonlocal size
            size += words
            return size - words

        def place(value: ValueAbi) -> int:
            return take(words_of(value) if value.shape is not None else 1)

        # Returned values are one C struct: a scalar of less than a word is padded to one by what follows or by the end,
        # save where two small scalars are neighbours.
        returned, struct = _struct(function.returned)
        base = take(struct)
        inputs = tuple(place(value) for value in function.inputs)
        outs = tuple(place(value) for value in function.outs)
        slots = [*inputs, *outs]
        error = None
        if function.checked:
            error = take(1)
            slots.append(take(3))
        by_value = len(function.returned) == 1 and function.returned[0].shape is None
        if function.returned:
            slots.insert(len(slots) if by_value else 0, base)
        return Layout(function, inputs, outs, tuple(returned), error, tuple(slots), size)


def _struct(values: Sequence[ValueAbi]) -> tuple[list[int], int]:
    """Positions of the members of a C struct, in bytes divided by the word, and its size in words."""
    at, positions = 0, []
    for value in values:
        size = words_of(value) * _WORD if value.shape is not None else ctypes.sizeof(_scalar_type(value))
        alignment = min(size, _WORD)
        at = -(-at // alignment) * alignment
        if at % _WORD:
            raise BundleError("neighbouring small scalars among the results are not supported")
        positions.append(at // _WORD)
        at += size
    return positions, -(-at // _WORD)


def _scalar_type(value: ValueAbi) -> ScalarType:
    if value.element not in _SCALARS:
        raise BundleError(f"scalar type '{value.element}' cannot cross the border of compiled code")
    return _SCALARS[value.element]


class Frame:
    """The words of one call in flight, with the array of pointers into them that compiled code takes."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.words = (ctypes.c_int64 * max(layout.size, 1))()
        base = ctypes.addressof(self.words)
        self._pointers = (ctypes.c_void_p * max(len(layout.slots), 1))(*(base + _WORD * at for at in layout.slots))
        self.address = ctypes.addressof(self._pointers)
        if layout.error is not None:
            # The error number is a memref of rank 0 that lies in the frame itself; its descriptor follows it.
            self.words[layout.error + 1] = self.words[layout.error + 2] = base + _WORD * layout.error
        function = layout.function
        for at, value in zip((*layout.inputs, *layout.outs), (*function.inputs, *function.outs), strict=True):
            if value.shape is not None and value.is_static:
                self.set_shape(at, [size for size in value.shape if size is not None])

    def set_shape(self, at: int, shape: Sequence[int]) -> None:
        """Write sizes and strides of the descriptor at word ``at``."""
        for i, number in enumerate((*shape, *contiguous_strides(shape)), at + 3):
            self.words[i] = number

    def set_scalar(self, at: int, value: ValueAbi, number: Scalar) -> None:
        """Write a scalar argument at word ``at``."""
        kind: Any = _scalar_type(value)
        kind.from_buffer(self.words, at * _WORD).value = number

    def scalar(self, at: int, value: ValueAbi) -> Scalar:
        """Read a scalar at word ``at``."""
        kind: Any = _scalar_type(value)
        return kind.from_buffer(self.words, at * _WORD).value


def point(frame: Frame, word: int, tensor: torch.Tensor) -> None:
    """Let the descriptor at ``word`` have its memory where ``tensor`` has it."""
    frame.words[word] = frame.words[word + 1] = tensor.data_ptr()


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous and without lazy conjugation or negation; ``tensor`` itself where it is so already."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def static_shape(value: ValueAbi) -> tuple[int, ...]:
    """The sizes of a memref, as far as they are known."""
    assert value.shape is not None
    return tuple(size for size in value.shape if size is not None)
