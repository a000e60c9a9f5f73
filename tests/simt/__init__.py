"""A SIMT emulator of GPU kernels in numpy: proof of index arithmetic and synchronisation without a GPU.

It executes ``gpu.func`` ops as they stand before the lowering to NVVM, for all threads of a block at once, and reports
accesses outside of buffers, reads of unwritten memory, races, divergent barriers and deadlocks.
"""

from .faults import Deadlock, Divergence, Fault, Misaligned, OutOfBounds, Race, Uninitialised, Unsupported
from .host import run_kernel, run_plan, unwritten
from .launch import Options
from .tensor_maps import TensorMap

__all__ = [
    "Deadlock",
    "Divergence",
    "Fault",
    "Misaligned",
    "Options",
    "OutOfBounds",
    "Race",
    "TensorMap",
    "Uninitialised",
    "Unsupported",
    "run_kernel",
    "run_plan",
    "unwritten",
]
