"""Tensor maps written by the device (sm_90 and later): field by field in shared memory, then published in global memory.

PTX ISA, "tensormap.replace", "tensormap.cp_fenceproxy" and "fence.proxy.tensormap".  Maps over tiles only: those over the
pixels of images cannot be written so.  What a driver's map has and one of these has not is a preference for larger reads of
L2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.kernel import Kernel, TensorMapLayout
from mlirstack.schedules.cuda.values import Int

MAP_BYTES = 128
WARP = 32
_ELEMENTS = {"f32": "f32", "tf32": "tf32", "f16": "f16", "bf16": "bf16", "i8": "u8"}
_SWIZZLES = {0: "no_swizzle", 32: "b32", 64: "b64", 128: "b128"}


@dataclass(frozen=True)
class MadeMap:
    """A map over the memory at ``address``, which is to lie at ``target`` in global memory (a pointer to 128 bytes).

    ``varying``: the size of the dimension that ``layout`` says varies.
    """

    layout: TensorMapLayout
    address: Any
    target: Any
    varying: Int | None = None

    def size(self, kernel: Kernel, axis: int) -> Int:
        """That of a dimension, innermost first."""
        is_varying = self.varying is not None and axis == self.layout.varying[0]
        return self.varying if is_varying and self.varying is not None else kernel.integer(self.layout.sizes[axis])


def write_maps(kernel: Kernel, maps: Sequence[MadeMap], staging: int = 0) -> None:
    """By one whole warp: write ``maps``.  On the way they lie in the dynamic shared memory, from byte ``staging`` on, a
    multiple of 128."""
    thread = kernel.thread()
    staged = [kernel.offset(kernel.shared(), staging + number * MAP_BYTES) for number in range(len(maps))]
    for place in staged:
        kernel.store(kernel.integer(0), kernel.offset(place, thread % WARP * (MAP_BYTES // WARP)), alignment=4)
    _converge(kernel)

    def write() -> None:
        for place, made in zip(staged, maps, strict=True):
            _write(kernel, place, made)

    kernel.when((thread % WARP).equals(0), write)
    _converge(kernel)
    for place, made in zip(staged, maps, strict=True):
        publish(kernel, made.target, place)


def publish(kernel: Kernel, target: Any, staged: Any) -> None:
    """By one whole warp: copy a map to global memory, and release it to the copy engine of the whole device."""
    kernel.assembly(
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [$0], [$1], 128;",
        "l,r", [_integer(kernel.i64, target), _integer(kernel.i32, staged)], has_side_effects=True,
    )  # fmt: skip


def acquire_maps(kernel: Kernel, targets: Sequence[Any]) -> None:
    """Let this thread's copies see the maps that another thread, or a kernel before, has published."""
    for target in targets:
        dialect("nvvm").FenceProxyAcquireOp(_attribute("mem_scope<gpu>"), target, kernel.integer(MAP_BYTES).value)


def _write(kernel: Kernel, place: Any, made: MadeMap) -> None:
    """All fields of one map; sizes, boxes and strides count from the innermost dimension."""
    layout, rank = made.layout, len(made.layout.sizes)

    def replace(field: str, value: Any = None, number: int | None = None, attribute: Any = None) -> None:
        dialect("nvvm").TensormapReplaceOp(
            ir.Attribute.parse(f"#nvvm<tensormap_field {field}>"),
            place,
            new_value=value,
            ord=number,
            new_value_attr=attribute,
        )

    replace("global_address", _integer(kernel.i64, made.address))
    replace("rank", kernel.integer(rank - 1).value)
    for axis in range(rank):
        replace("box_dim", kernel.integer(layout.box[axis]).value, axis)
        replace("global_dim", made.size(kernel, axis).value, axis)
        replace("element_stride", kernel.integer((layout.element_strides or (1,) * rank)[axis]).value, axis)
    for axis, stride in enumerate(layout.strides):
        replace("global_stride", kernel.integer(stride, kernel.i64).value, axis)
    replace("elemtype", attribute=_attribute(f"tensormap_elemtype<{_ELEMENTS[layout.element]}>"))
    replace("interleave_layout", attribute=_attribute("tensormap_interleave_layout<no_interleave>"))
    replace("swizzle_mode", attribute=_attribute(f"tensormap_swizzle_mode<{_SWIZZLES[layout.swizzle]}>"))
    replace("fill_mode", attribute=_attribute("tensormap_fill_mode<zero>"))


def _attribute(text: str) -> Any:
    return ir.Attribute.parse(f"#nvvm.{text}")


def _converge(kernel: Kernel) -> None:
    dialect("nvvm").SyncWarpOp(kernel.integer(-1).value)


def _integer(kind: Any, pointer: Any) -> Any:
    return dialect("llvm").PtrToIntOp(kind, pointer).res
