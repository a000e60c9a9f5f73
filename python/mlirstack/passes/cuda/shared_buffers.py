"""Buffers in shared memory on the way from promotion to a kernel: where they are allocated, and which barriers they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass

_SPACE = "#gpu.address_space<workgroup>"


@dataclass(frozen=True)
class SinkSharedBuffers(PythonPass):
    """Before: buffers in shared memory are allocated in front of the launch, every copy into them between two barriers.
    After: they are allocated in the kernel, and of a loop's barriers the one between the copies and their use is left.

    Right where the loop's buffers are multiplied next: the barrier of one iteration then keeps the copies of the next from
    overtaking the readers.
    """

    name = "mlirstack-sink-shared-buffers"

    def apply(self, module: Any) -> None:
        for launch in [op for op in walk(module) if op.name == "gpu.launch"]:
            first = launch.regions[0].blocks[0].operations[0].operation
            for op in [op.operation for op in launch.block.operations]:
                if op.name == "memref.alloc" and _SPACE in str(op.results[0].type):
                    op.move_before(first)
            for loop in [op for op in walk(launch) if op.name == "scf.for"]:
                _keep_one_barrier(loop)


def _keep_one_barrier(loop: Any) -> None:
    """The last barrier before the first op that multiplies."""
    ops = [op.operation for op in loop.regions[0].blocks[0].operations]
    barriers = [op for op in ops if op.name == "gpu.barrier"]
    use = next((i for i, op in enumerate(ops) if op.name == "vector.contract"), None)
    if use is None:
        return
    needed = [op for op in barriers if ops.index(op) < use][-1:]
    for op in barriers:
        if op not in needed:
            op.erase()


@dataclass(frozen=True)
class SharedGlobals(PythonPass):
    """Before: ``memref.alloc`` in shared memory inside of a kernel.  After: ``memref.global`` of the kernel's module."""

    name = "mlirstack-shared-globals"

    def apply(self, module: Any) -> None:
        memref = dialect("memref")
        for kernels in [op for op in walk(module) if op.name == "gpu.module"]:
            found = [op for op in walk(kernels) if op.name == "memref.alloc" and _SPACE in str(op.results[0].type)]
            for number, op in enumerate(found):
                kind, name = op.results[0].type, f"shared_{number}"
                with ir.InsertionPoint.at_block_begin(kernels.regions[0].blocks[0]), op.location:
                    memref.GlobalOp(name, ir.TypeAttr.get(kind), sym_visibility="private", alignment=128)
                with ir.InsertionPoint(op), op.location:
                    op.results[0].replace_all_uses_with(memref.GetGlobalOp(kind, name).result)
                op.erase()
