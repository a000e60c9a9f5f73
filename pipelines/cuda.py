"""Stage table of target ``cuda``: linalg on tensors, kernels, launches, machine code of the GPU, launch plan.

Read it from top to bottom: each stage leaves behind what its name says, and what follows works on that alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlirstack.passes.buffers import OwnFills
from mlirstack.passes.cuda.accumulators import HoistAccumulators
from mlirstack.passes.cuda.allow_tf32 import AllowTf32
from mlirstack.passes.cuda.cubin import AssembleCubin
from mlirstack.passes.cuda.device_code import TranslateKernels
from mlirstack.passes.cuda.dispatches import FormDispatches
from mlirstack.passes.cuda.launches import InlineLaunches
from mlirstack.passes.cuda.map_kernels import LabelKernels, MapKernels
from mlirstack.passes.cuda.merge_reductions import MergeReductions
from mlirstack.passes.cuda.nvvm import NVVM_STEPS
from mlirstack.passes.cuda.outline_copies import OutlineCopies
from mlirstack.passes.cuda.overlap import OverlapLaunches
from mlirstack.passes.cuda.planned import TabulateKernels, WritePlan
from mlirstack.passes.cuda.ptx import CompilePtx
from mlirstack.passes.cuda.sass import DisassembleCubin
from mlirstack.passes.cuda.shared_buffers import SharedGlobals, SinkSharedBuffers
from mlirstack.passes.debug_lines import DIRECTIVES, DebugLines
from mlirstack.passes.entry import DescribeEntries
from mlirstack.passes.fold_casts import FoldCasts
from mlirstack.passes.fold_concats import FoldConcats
from mlirstack.passes.fold_sizes import FoldSizes
from mlirstack.passes.fold_transposes import FoldTransposes
from mlirstack.passes.merge_equal import MergeEqual
from mlirstack.passes.raise_roundings import RaiseRoundings
from mlirstack.passes.restore_locations import RestoreLocations
from mlirstack.passes.settle_broadcasts import SettleBroadcasts
from mlirstack.passes.sink_expansions import SinkExpansions
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass, Step
from mlirstack.pipelines.frontend import frontend_stages
from mlirstack.pipelines.graph import FUNCTION, SLICES, fused, prepared, to_buffers
from mlirstack.schedules.cuda.device import DEFAULT_ARCH, device_of
from mlirstack.schedules.cuda.product.transform_gemm import (
    TRANSFORM,
    FormContractions,
    LaunchBlocks,
    MapToThreads,
    MultiplyBuffers,
    PipelineCopies,
    Share,
    TileToBlocks,
)

_BEFORE_HOISTING = (
    # Before fusion, so that what is made of slices is computed where it is read.
    FoldConcats(),
    # A weight is read as it is stored: transposed, it would be a second copy of it.
    FoldTransposes(),
    # What a size of 1 decides at run time; sizes that are the same have one name by then.
    Pass("resolve-shaped-type-result-dims", on=FUNCTION),
    FoldSizes(),
    Pass("canonicalize"),
    Pass("cse"),
    SettleBroadcasts(),
)

FLATTENED = Stage(
    "flattened",
    "linalg",
    (
        SinkExpansions(),
        Pass("canonicalize"),
        FoldCasts(),
        RaiseRoundings(),
        Pass("canonicalize"),
        Pass("cse"),
        RestoreLocations(),
    ),
    "reshapes and casts no longer stand between ops that one kernel can compute",
)

BUFFERIZED = Stage(
    "bufferized",
    "buffer",
    (
        *to_buffers(OwnFills()),
        Pass("convert-bufferization-to-memref"),
        Pass("canonicalize"),
        Pass("cse"),
        DescribeEntries(),
        # What bufferization copies between kernels, and what it leaves between them, is work for kernels as well.
        OutlineCopies(),
        RestoreLocations(),
    ),
    "memrefs; entry points hold allocations, views, contiguous copies, checks, and calls of kernels",
)


def _launched(arch: str) -> Stage:
    return Stage(
        "gpu",
        "gpu",
        (
            InlineLaunches(),
            Pass("lower-affine", on=FUNCTION),
            Pass("canonicalize", on=FUNCTION),
            Pass("cse", on=FUNCTION),
            Pass("symbol-dce"),
            OverlapLaunches(arch),
            RestoreLocations(),
        ),
        "kernels in gpu.module, launched by host functions that are straight lines",
    )


NVVM = Stage(
    "nvvm", "nvvm", (*NVVM_STEPS, RestoreLocations()), "kernels in the LLVM and NVVM dialects, host functions as before"
)
LLVMIR = Stage(
    "llvmir",
    "llvmir",
    (DebugLines(DIRECTIVES), TranslateKernels()),
    "LLVM IR of all kernels, the host functions as a launch plan",
)
SASS = Stage("sass", "sass", (DisassembleCubin(),), "disassembly of the cubin: what runs")
TABLE = Stage("table", "table", (TabulateKernels(),), "per kernel: registers, shared memory, occupancy, bytes, FLOPs, bound")
PLAN = Stage("plan", "plan", (WritePlan(),), "launch plan: buffers, launches in order, constants, as the run time reads it")


def _dispatches(arch: str, prefer: str, *, partial: bool = False, clusters: bool = True) -> Stage:
    return Stage(
        "dispatches",
        "linalg",
        (
            *SLICES,
            MergeReductions(),
            FormDispatches(arch, prefer, partial, clusters),
            Pass("canonicalize"),
            Pass("cse"),
            # Repeated layers become one kernel, launched several times; it stands for the lines of all.
            MergeEqual(),
            Pass("symbol-dce"),
            RestoreLocations(),
        ),
        "each region that one kernel computes is a function with a class and a schedule",
    )


def stages_around_kernels(arch: str, tf32: Sequence[str], *, clusters: bool) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """What another table needs to lower its own program around kernels of ours: the stages on tensors, up to ``dispatches``
    with the rest left alone, and those from launches to the plan.  ``clusters``: can its run time launch them?"""
    graph = (
        prepared(*_BEFORE_HOISTING, keep_narrow=True),
        fused(*_tf32(tf32)),
        FLATTENED,
        _dispatches(arch, "", partial=True, clusters=clusters),
    )
    return graph, (_launched(arch), NVVM, LLVMIR, *_machine_code(arch))


def _tf32(kinds: Sequence[str]) -> tuple[Step, ...]:
    return (AllowTf32(tuple(kinds)),) if kinds else ()


def _machine_code(arch: str) -> tuple[Stage, ...]:
    ptx = Stage("ptx", "ptx", (CompilePtx(arch),), "PTX, optimized by LLVM")
    cubin = Stage("cubin", "cubin", (AssembleCubin(arch),), f"machine code for {arch}, assembled by ptxas")
    return (ptx, cubin, SASS, TABLE, PLAN)


_TIDY = (Pass("canonicalize"), Pass("cse"))
_ALIASES = Pass("fold-memref-alias-ops", on=FUNCTION)

# With ``schedule="transform"``: stages that write matrix products with the transform dialect, in place of an emitter.
_TILED = Stage("tiled", "linalg", (TileToBlocks(),), "a loop over blocks around each product, a loop over K inside")
_BY_TRANSFORM = (
    Stage(
        "shared",
        "tiles",
        (Share(), *_TIDY, Pass("refback-munge-memref-copy", on=FUNCTION), *_TIDY),
        "tiles of the operands are copied into shared memory",
    ),
    Stage(
        "threads",
        "tiles",
        (MapToThreads(), *_TIDY, _ALIASES, *_TIDY, LaunchBlocks(), *_TIDY, _ALIASES, *_TIDY),
        "vectors of the size of an instruction, mapped to warps and threads",
    ),
    Stage(
        "vectorized",
        "tiles",
        (Pass("loop-invariant-code-motion"), FormContractions(), *_TIDY, Pass("loop-invariant-code-motion"), *_TIDY,
         HoistAccumulators(), *_TIDY),
        "contractions of vectors, accumulators in loop variables",
    ),
    Stage(
        "pipelined",
        "gpu",
        (
            SinkSharedBuffers(), MultiplyBuffers(), *_TIDY, _ALIASES, *_TIDY,
            Pass("convert-vector-to-gpu", {"use-nvgpu": True}, on=FUNCTION), *_TIDY,
            PipelineCopies(), *_TIDY,
            # Rows of a tile start in different banks.
            Pass("nvgpu-optimize-shared-memory", on=FUNCTION), *_TIDY,
            Pass("gpu-launch-sink-index-computations", on=FUNCTION), Pass("gpu-kernel-outlining"),
            SharedGlobals(), LabelKernels(), *_TIDY,
        ),
        "mma.sync, asynchronous copies two iterations ahead, kernels outlined",
    ),
)  # fmt: skip


def cuda_pipeline(
    route: str, level: str, *, arch: str | None = None, schedule: str | None = None, tf32: Sequence[str] = ()
) -> Pipeline:
    """The stage table for a program at ``level`` that takes ``route`` ("tosa" or "linalg"), for GPUs of ``arch``
    ("sm_90a" if none is given).  Of several, ``sm_80+sm_89``, kernels fit all and are code of the first.  ``schedule``
    "transform" writes matrix products with the transform dialect.  ``tf32``: the kinds of f32 ops ("matmul", "convolution")
    that tensor cores may compute as TF32."""
    by_transform = schedule == TRANSFORM
    served, chip = arch or DEFAULT_ARCH, device_of(arch).arch
    mapped = Stage(
        "mapped",
        "tiles" if by_transform else "gpu",
        (MapKernels(served), Pass("canonicalize"), Pass("cse"), RestoreLocations()),
        "blocks, warps and threads; loads, stores and tensor-core ops",
    )
    back = (
        prepared(*_BEFORE_HOISTING, keep_narrow=True),
        fused(*_tf32(tf32)),
        FLATTENED,
        _dispatches(served, schedule or ""),
        *((_TILED,) if by_transform else ()),
        BUFFERIZED,
        mapped,
        *(_BY_TRANSFORM if by_transform else ()),
        _launched(chip),
        NVVM,
        LLVMIR,
        *_machine_code(chip),
    )
    names = [stage.name for stage in back]
    back = back[names.index(_FIRST_STAGE.get(level, "prepared")) :]
    return Pipeline("cuda", (*frontend_stages(route, level), *back), "linalg to machine code of an NVIDIA GPU")


# For programs that stand below linalg already.
_FIRST_STAGE = {
    "buffer": "mapped", "gpu": "nvvm", "nvvm": "llvmir", "llvmir": "ptx", "ptx": "cubin", "cubin": "sass", "sass": "table",
    "table": "plan",
}  # fmt: skip
