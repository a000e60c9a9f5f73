"""Host values inside a kernel: buffers as pointers with strides, sizes and scalars as parameters, each made once.

What is known at compile time becomes a constant of the kernel; what is not is computed by the host and travels with the
launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.passes.regions import is_constant
from mlirstack.schedules.cuda.extent import host, host_size
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int, Number


@dataclass(frozen=True)
class DeviceBuffer:
    """A memref inside a kernel: address of its first element, sizes, and strides in elements."""

    pointer: Any
    element: Any
    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]

    def position(self, indices: Sequence[Number]) -> Number:
        """Elements from the first one to the one at ``indices``."""
        return sum((i * s for i, s in zip(indices, self.strides, strict=True)), start=0)


class HostValues:
    """The parameters of one kernel, by the host values they stand for.

    All of them are asked for before the kernel's body is written: a parameter is read at the kernel's beginning.
    ``wide``: index arithmetic takes 64 bits.
    """

    def __init__(self, kernel: Kernel, *, wide: bool) -> None:
        self.kernel, self.wide = kernel, wide
        self.number = kernel.i64 if wide else kernel.i32  # the type of index arithmetic
        self._buffers: dict[Any, DeviceBuffer] = {}
        self.scalars: dict[Any, Any] = {}  # host value → value of the same type in the kernel

    @property
    def buffers(self) -> dict[Any, DeviceBuffer]:
        """Host memref → buffer."""
        return self._buffers

    def buffer(self, memref: Any) -> DeviceBuffer:
        """A host memref; its pointer, and what of its shape and strides is only known at run time, become parameters."""
        if memref not in self._buffers:
            kind = ir.MemRefType(memref.type)
            sizes = tuple(self.size(memref, axis) for axis in range(kind.rank))
            strides = self._strides_without_gaps(sizes) if is_identity(kind) else self._strides(memref, kind)
            self._buffers[memref] = DeviceBuffer(self.kernel.pointer(memref), kind.element_type, sizes, strides)
        return self._buffers[memref]

    def size(self, memref: Any, axis: int) -> Number:
        """Size of an axis: a constant, or a parameter."""
        return self.dimension(host_size(self.kernel.function, memref, axis))

    def dimension(self, size: Any) -> Number:
        """A size, given as an int or as a host value of type index."""
        if isinstance(size, int):
            return size
        with ir.InsertionPoint(self.kernel.block), self.kernel.location:
            return self.to_number(self.scalar(size))

    def to_number(self, index: Any) -> Int:
        """A value of type index inside the kernel, in the type of index arithmetic."""
        return Int(dialect("arith").IndexCastUIOp(self.number, index).result)

    def constant(self, value: Number) -> Int:
        """A number as a value."""
        return value if isinstance(value, Int) else self.kernel.integer(value, self.number)

    def scalar(self, value: Any) -> Any:
        """A host scalar; a constant of the host is one of the kernel."""
        if value not in self.scalars:
            producer = functions.defining_op(value)
            if producer is not None and is_constant(producer):
                with ir.InsertionPoint(self.kernel.block), self.kernel.location:
                    self.scalars[value] = producer.clone().operation.results[0]
            else:
                self.scalars[value] = self._parameter(value)
        return self.scalars[value]

    def _parameter(self, value: Any) -> Any:
        """Kernels take numbers of 32 and 64 bits; narrower ones are widened on the host and cut again inside."""
        arith, kind = dialect("arith"), value.type
        if isinstance(kind, ir.IndexType) or kind.width in (32, 64):
            return self.kernel.scalar(value)
        is_integer = isinstance(kind, ir.IntegerType)
        widen, cut = (arith.ExtUIOp, arith.TruncIOp) if is_integer else (arith.ExtFOp, arith.TruncFOp)
        with host(self.kernel.function), self.kernel.location:
            widened = widen(self.kernel.i32 if is_integer else self.kernel.f32, value).result
        passed = self.kernel.scalar(widened)
        with ir.InsertionPoint(self.kernel.block), self.kernel.location:
            return cut(kind, passed).result

    def _strides(self, memref: Any, kind: Any) -> tuple[Number, ...]:
        strides, _ = kind.get_strides_and_offset()
        dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
        if dynamic not in strides:
            return tuple(strides)
        with host(self.kernel.function), self.kernel.location:
            metadata = dialect("memref").ExtractStridedMetadataOp(memref)
        given = list(metadata.results)[2 + kind.rank :]
        return tuple(self.dimension(given[i]) if s == dynamic else s for i, s in enumerate(strides))

    def _strides_without_gaps(self, sizes: Sequence[Number]) -> tuple[Number, ...]:
        strides: list[Number] = []
        step: Number = 1
        with ir.InsertionPoint(self.kernel.block), self.kernel.location:
            for size in reversed(sizes):
                strides.append(step)
                step = size * step
        return tuple(reversed(strides))


def is_identity(kind: Any) -> bool:
    """Has a memref type neither gaps nor an offset?"""
    return bool(kind.affine_map == ir.AffineMap.get_identity(kind.rank))


def affine_number(expression: Any, dims: Sequence[Number], symbols: Sequence[Number] = ()) -> Number:
    """The value of an affine expression; no intermediate value may be negative where it is divided."""
    if isinstance(expression, ir.AffineConstantExpr):
        return int(expression.value)
    if isinstance(expression, ir.AffineDimExpr):
        return dims[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return symbols[expression.position]
    left, right = (affine_number(e, dims, symbols) for e in (expression.lhs, expression.rhs))
    return next(combine(left, right) for kind, combine in _AFFINE.items() if isinstance(expression, getattr(ir, kind)))


_AFFINE: dict[str, Callable[[Any, Any], Any]] = {
    "AffineAddExpr": lambda a, b: a + b,
    "AffineMulExpr": lambda a, b: a * b,
    "AffineModExpr": lambda a, b: a % b,
    "AffineFloorDivExpr": lambda a, b: a // b,
    "AffineCeilDivExpr": lambda a, b: (a + b - 1) // b,
}
