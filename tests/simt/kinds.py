"""How values of MLIR types are held in numpy.

Integers, indices and pointers are signed numpy integers of the same width (unsigned operations view them), i1 is bool, small
floats are ``ml_dtypes``.  A value that is the same for all threads has the shape of its type, any other one more leading
axis: the threads.  Structs, arrays and memrefs are tuples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from mlirstack.bindings import ir

from .faults import Unsupported

GLOBAL, SHARED, CONSTANT, LOCAL, CLUSTER = 1, 3, 4, 5, 7  # address spaces of the NVPTX backend; 0 is generic
DYNAMIC = -(1 << 63)  # a size, stride or offset that the type leaves open
INDEX = np.dtype(np.int64)
_INTEGERS = {1: np.dtype(bool), 8: np.dtype(np.int8), 16: np.dtype(np.int16), 32: np.dtype(np.int32), 64: INDEX}
_FLOATS = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
_UNSIGNED = {np.dtype(f"int{n}"): np.dtype(f"uint{n}") for n in (8, 16, 32, 64)} | {np.dtype(bool): np.dtype(np.uint8)}


@dataclass(frozen=True)
class Kind:
    """The numpy form of one MLIR type.

    ``dtype`` and ``shape`` (of a vector) for numbers; ``members`` for structs, arrays and memrefs.  ``space``: address space
    of a pointer or memref.  A memref's members are base address, offset, sizes, strides, in elements; ``element`` is what
    lies in its memory, ``layout`` are the sizes, strides and offset of its type.
    """

    dtype: np.dtype[Any] = INDEX
    shape: tuple[int, ...] = ()
    members: tuple[Kind, ...] | None = None
    space: int = 0
    element: Kind | None = None
    layout: tuple[tuple[int, ...], tuple[int, ...], int] | None = None

    @property
    def rank(self) -> Any:
        """Number of axes of a value that is the same for all threads; a tuple of them for a tuple of values."""
        return len(self.shape) if self.members is None else tuple(member.rank for member in self.members)

    @property
    def count(self) -> int:
        """Elements of a vector (1 for a number)."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def bytes(self) -> int:
        """Size in memory; members of a struct are naturally aligned."""
        if self.members is None:
            return self.count * self.dtype.itemsize
        return layout_of(self)[1]


@cache
def kind_of(mlir_type: Any) -> Kind:
    """The form of values of ``mlir_type``."""
    if isinstance(mlir_type, ir.IndexType):
        return Kind()
    if isinstance(mlir_type, ir.IntegerType) and mlir_type.width in _INTEGERS:
        return Kind(_INTEGERS[mlir_type.width])
    if str(mlir_type) in _FLOATS:
        return Kind(_FLOATS[str(mlir_type)])
    if isinstance(mlir_type, ir.VectorType):
        return Kind(kind_of(mlir_type.element_type).dtype, tuple(mlir_type.shape))
    if isinstance(mlir_type, ir.MemRefType):
        return _memref_kind(mlir_type)
    name = type(mlir_type).__name__
    if name == "PointerType":
        return Kind(space=mlir_type.address_space)
    if name == "StructType":
        return Kind(members=tuple(kind_of(member) for member in mlir_type.body))
    if name == "ArrayType":
        return Kind(members=(kind_of(mlir_type.element_type),) * mlir_type.num_elements)
    if str(mlir_type) in ("!nvgpu.device.async.token", "!gpu.async.token"):
        return Kind()
    raise Unsupported(f"values of type {mlir_type}")


def _memref_kind(mlir_type: Any) -> Kind:
    strides, offset = mlir_type.get_strides_and_offset()
    rank = len(mlir_type.shape)
    return Kind(
        members=(Kind(),) * (2 + 2 * rank),
        space=_memory_space(mlir_type.memory_space),
        element=kind_of(mlir_type.element_type),
        layout=(tuple(mlir_type.shape), tuple(strides), offset),
    )


def _memory_space(attribute: Any) -> int:
    text = str(attribute)
    names = {"None": 0, "global": GLOBAL, "workgroup": SHARED, "private": LOCAL, "constant": CONSTANT}
    for name, space in names.items():
        if text in (name, f"#gpu.address_space<{name}>"):
            return space
    return int(text.split(":", maxsplit=1)[0])


def unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The unsigned integer of the same width."""
    return _UNSIGNED[dtype]


@cache
def layout_of(kind: Kind) -> tuple[tuple[int, ...], int]:
    """Byte offsets of the members of a struct or array, and its size."""
    offsets, end, widest = [], 0, 1
    for member in kind.members or ():
        alignment = alignment_of(member)
        end = -(-end // alignment) * alignment
        offsets.append(end)
        end += member.bytes
        widest = max(widest, alignment)
    return tuple(offsets), -(-end // widest) * widest


def alignment_of(kind: Kind) -> int:
    """What the data layout aligns a type to, in bytes."""
    if kind.members is not None:
        return max((alignment_of(member) for member in kind.members), default=1)
    return kind.dtype.itemsize


def zero(kind: Kind) -> Any:
    """The value zero (also what undefined and poison values are), the same for all threads."""
    if kind.members is not None:
        return tuple(zero(member) for member in kind.members)
    return np.zeros(kind.shape, kind.dtype)[()]


def constant(attribute: Any) -> Any:
    """The value of an integer, float or dense elements attribute."""
    kind = kind_of(attribute.type) if not isinstance(attribute.type, ir.RankedTensorType) else None
    if isinstance(attribute, (ir.IntegerAttr, ir.FloatAttr)):
        return _scalar(attribute, kind.dtype)
    if isinstance(attribute, ir.BoolAttr):
        return np.bool_(attribute.value)
    shape = tuple(attribute.type.shape)
    dtype = kind_of(attribute.type.element_type).dtype
    if attribute.is_splat:
        return np.full(shape, _scalar(attribute.get_splat_value(), dtype), dtype)[()]
    return np.array(list(attribute), dtype=dtype).reshape(shape)


def _scalar(attribute: Any, dtype: np.dtype[Any]) -> Any:
    value = attribute.value
    if dtype.kind == "i":  # an i8 255 and an i8 -1 are the same bits
        bits = dtype.itemsize * 8
        value = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return np.asarray(value).astype(dtype)[()]
