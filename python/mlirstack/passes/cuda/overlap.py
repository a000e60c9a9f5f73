"""Kernels that start while the one before them ends (programmatic dependent launch, Hopper and later).

A kernel waits, before it touches memory, until the one before it is done, and then lets the next one's blocks onto the
device.  What a kernel does without memory (index arithmetic, barriers of its own, tensor maps fetched early) and the launch
itself no longer stand between two kernels.  Were the next one let in earlier, blocks of several kernels would wait on the
multiprocessors at once, and those that run were badly spread over them.  Long products without tensor cores stay out of
this: about one block for each multiprocessor, all bound by arithmetic, which must not share one while others are free.
See "Programmatic Dependent Launch" in the CUDA C++ Programming Guide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.cuda.device import DEFAULT_ARCH, device_of
from mlirstack.schedules.cuda.kernel import ALONE, OVERLAPS

_FIRST_CAPABILITY = 90
# Ops (or dialects) that a kernel may do while the one before it still runs: they touch no memory that the other can see.
_PRIVATE = (
    "arith.", "math.", "index.", "affine.apply", "builtin.unrealized_conversion_cast", "scf.yield",
    "llvm.addrspacecast", "llvm.getelementptr", "llvm.mlir.", "llvm.ptrtoint", "llvm.inttoptr",
    "gpu.thread_id", "gpu.block_id", "gpu.block_dim", "gpu.grid_dim", "gpu.lane_id", "gpu.subgroup_id", "gpu.barrier",
    "nvvm.read.", "nvvm.mbarrier.", "nvvm.fence.", "nvvm.cluster.", "nvvm.prefetch", "nvvm.elect.sync",
)  # fmt: skip


@dataclass(frozen=True)
class OverlapLaunches(PythonPass):
    """Before: ``gpu.func``s.  After: where ``arch`` can, each has ``griddepcontrol.wait`` and then
    ``griddepcontrol.launch_dependents`` before the first op that may touch memory; it is marked ``mlirstack.overlaps``.
    Kernels marked ``mlirstack.alone`` stay as they are.

    All threads wait, so a kernel that is done says that all kernels before it are.
    """

    name = "mlirstack-overlap-launches"
    arch: str = DEFAULT_ARCH

    def apply(self, module: Any) -> None:
        if device_of(self.arch).capability < _FIRST_CAPABILITY:
            return
        for kernel in [op for op in walk(module) if op.name == "gpu.func" and _is_kernel(op)]:
            if ALONE in kernel.attributes:
                continue
            block = kernel.regions[0].blocks[0]
            operations = [op.operation for op in block.operations]
            first = next(op for op in operations if not _is_private(op))
            for what in ("wait", "launch_dependents"):
                _control(what, ir.InsertionPoint(first), kernel)
            kernel.attributes[OVERLAPS] = ir.UnitAttr.get()


def _is_kernel(function: Any) -> bool:
    """Python's builder and the parser call the mark by two names."""
    return "kernel" in function.attributes or "gpu.kernel" in function.attributes


def _is_private(op: Any) -> bool:
    return all(inner.name.startswith(_PRIVATE) or inner.name == "scf.if" for inner in _all(op))


def _all(op: Any) -> Iterator[Any]:
    yield op
    yield from walk(op)


def _control(what: str, point: Any, kernel: Any) -> None:
    """As assembly that touches memory: LLVM's own intrinsic does not say so, and loads could be moved across it."""
    with point, kernel.location:
        dialect("llvm").InlineAsmOp(None, [], f"griddepcontrol.{what};", "~{memory}", has_side_effects=True)
