"""Stage table of target ``cuda``: linalg on tensors, kernels, launches, machine code of the GPU, launch plan.

Read it from top to bottom: each stage leaves behind what its name says, and what follows works on that alone.
"""

from __future__ import annotations

from mlirstack.passes.cuda.cubin import AssembleCubin
from mlirstack.passes.cuda.device_code import TranslateKernels
from mlirstack.passes.cuda.dispatches import FormDispatches
from mlirstack.passes.cuda.launches import InlineLaunches
from mlirstack.passes.cuda.map_kernels import MapKernels
from mlirstack.passes.cuda.nvvm import NVVM_STEPS
from mlirstack.passes.cuda.outline_copies import OutlineCopies
from mlirstack.passes.cuda.planned import TabulateKernels, WritePlan
from mlirstack.passes.cuda.ptx import CompilePtx
from mlirstack.passes.cuda.sass import DisassembleCubin
from mlirstack.passes.entry import DescribeEntries
from mlirstack.passes.settle_broadcasts import SettleBroadcasts
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass
from mlirstack.pipelines.frontend import frontend_stages
from mlirstack.pipelines.graph import FUNCTION, FUSED, SLICES, TO_BUFFERS, prepared
from mlirstack.schedules.cuda.device import device_of

# What a size of 1 decides at run time; sizes that are the same have one name by then.
_BROADCASTS = (
    Pass("resolve-shaped-type-result-dims", on=FUNCTION),
    Pass("canonicalize"),
    Pass("cse"),
    SettleBroadcasts(),
)

BUFFERIZED = Stage(
    "bufferized",
    "buffer",
    (
        *TO_BUFFERS,
        Pass("convert-bufferization-to-memref"),
        Pass("canonicalize"),
        Pass("cse"),
        DescribeEntries(),
        # What bufferization copies between kernels, and what it leaves between them, is work for kernels as well.
        OutlineCopies(),
    ),
    "memrefs; entry points hold allocations, views, contiguous copies, checks, and calls of kernels",
)

GPU = Stage(
    "gpu",
    "gpu",
    (
        InlineLaunches(),
        Pass("lower-affine", on=FUNCTION),
        Pass("canonicalize", on=FUNCTION),
        Pass("cse", on=FUNCTION),
        Pass("symbol-dce"),
    ),
    "kernels in gpu.module, launched by host functions that are straight lines",
)

NVVM = Stage("nvvm", "nvvm", NVVM_STEPS, "kernels in the LLVM and NVVM dialects, host functions as before")
LLVMIR = Stage("llvmir", "llvmir", (TranslateKernels(),), "LLVM IR of all kernels, the host functions as a launch plan")
SASS = Stage("sass", "sass", (DisassembleCubin(),), "disassembly of the cubin: what runs")
TABLE = Stage("table", "table", (TabulateKernels(),), "per kernel: registers, shared memory, occupancy, bytes, FLOPs, bound")
PLAN = Stage("plan", "plan", (WritePlan(),), "launch plan: buffers, launches in order, constants, as the run time reads it")


def _dispatches(arch: str) -> Stage:
    return Stage(
        "dispatches",
        "linalg",
        (
            *SLICES,
            FormDispatches(arch),
            Pass("canonicalize"),
            Pass("cse"),
            # Repeated layers become one kernel, launched several times.
            Pass("duplicate-function-elimination"),
            Pass("symbol-dce"),
        ),
        "each region that one kernel computes is a function with a class and a schedule",
    )


def cuda_pipeline(route: str, level: str, *, arch: str | None = None) -> Pipeline:
    """The stage table for a program at ``level`` that takes ``route`` ("tosa" or "linalg"), for GPUs of ``arch``
    ("sm_90a" if none is given)."""
    chip = device_of(arch).arch
    mapped = Stage(
        "mapped",
        "gpu",
        (MapKernels(chip), Pass("canonicalize"), Pass("cse")),
        "blocks, warps and threads; loads, stores and tensor-core ops",
    )
    ptx = Stage("ptx", "ptx", (CompilePtx(chip),), "PTX, optimized by LLVM")
    cubin = Stage("cubin", "cubin", (AssembleCubin(chip),), f"machine code for {chip}, assembled by ptxas")
    back = (
        prepared(*_BROADCASTS),
        FUSED,
        _dispatches(chip),
        BUFFERIZED,
        mapped,
        GPU,
        NVVM,
        LLVMIR,
        ptx,
        cubin,
        SASS,
        TABLE,
        PLAN,
    )
    names = [stage.name for stage in back]
    back = back[names.index(_FIRST_STAGE.get(level, "prepared")) :]
    return Pipeline("cuda", (*frontend_stages(route, level), *back), "linalg to machine code of an NVIDIA GPU")


# For programs that stand below linalg already.
_FIRST_STAGE = {
    "buffer": "mapped", "gpu": "nvvm", "nvvm": "llvmir", "llvmir": "ptx", "ptx": "cubin", "cubin": "sass", "sass": "table",
    "table": "plan",
}  # fmt: skip
