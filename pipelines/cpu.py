"""Stage table of target ``cpu``: linalg on tensors, buffers, loops, LLVM, object code.

Read it from top to bottom: each stage leaves behind what its name says, and what follows works on that alone.
"""

from __future__ import annotations

from mlirstack.passes.asserts import AssertsToErrors
from mlirstack.passes.bfloat_bits import BfloatBits
from mlirstack.passes.debug_lines import DebugLines
from mlirstack.passes.entry import BarePointers, DescribeEntries, ExportEntries
from mlirstack.passes.hoist_parameters import FusePrepared, HoistParameters
from mlirstack.passes.llvm_ir import TranslateToLlvmIr
from mlirstack.passes.loop_order import OrderLoops
from mlirstack.passes.merge_equal import MergeEqual
from mlirstack.passes.native_code import CompileObject, Disassemble
from mlirstack.passes.near_zero import CallNearZero
from mlirstack.passes.outline import OutlineKernels
from mlirstack.passes.restore_locations import RestoreLocations
from mlirstack.passes.round_sums import RoundSumsOnce
from mlirstack.passes.two_roundings import TwoRoundings
from mlirstack.passes.vector_math import VectorMath
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass, PythonPass, Translation
from mlirstack.pipelines.frontend import frontend_stages
from mlirstack.pipelines.graph import FUNCTION, SLICES, fused, prepared, to_buffers
from mlirstack.schedules.cpu.machine import HOST
from mlirstack.schedules.cpu.packing import PackContractions
from mlirstack.schedules.cpu.parallel import ParallelizeKernels
from mlirstack.schedules.cpu.strided_vectors import UnrollStridedVectors
from mlirstack.schedules.cpu.tiling import TileKernels
from mlirstack.schedules.cpu.unit_loops import DropUnitLoops
from mlirstack.schedules.cpu.vector_lowering import LowerVectors
from mlirstack.schedules.cpu.vectorize import VectorizeKernels

PACKED = Stage(
    "packed",
    "linalg",
    (
        # The right-hand side of a contraction in panels, the rest in the shape of register tiles.
        PackContractions(),
        # The copy of a weight into panels depends on parameters alone; a transpose before it is the same copy.
        HoistParameters(),
        FusePrepared(),
        Pass("canonicalize"),
        Pass("cse"),
        RestoreLocations(),
    ),
    "contractions over register tiles; weights are packed in @prepare",
    verify_each=False,
)

KERNELS = Stage(
    "kernels",
    "linalg",
    (
        *SLICES,
        OutlineKernels(),
        Pass("canonicalize"),
        Pass("cse"),
        # Repeated layers become one kernel, called several times; it stands for the lines of all.
        MergeEqual(),
        Pass("symbol-dce"),
        RestoreLocations(),
    ),
    "each fused region is a function that writes into its last argument",
    verify_each=False,
)


def _tiled(vector_bits: int = HOST) -> Stage:
    return Stage(
        "tiled",
        "linalg",
        (
            TileKernels(vector_bits),
            # A window that slides by one element is a slice.
            DropUnitLoops(),
            Pass("canonicalize"),
            Pass("cse"),
            # What is not tiled becomes plain loops, in an order that LLVM can vectorize.
            OrderLoops(),
            RestoreLocations(),
        ),
        "loops around linalg ops of register size, by kernel class; what no schedule fits stays whole",
        verify_each=False,
    )


VECTORIZED = Stage(
    "vectorized",
    "vector",
    (VectorizeKernels(), RestoreLocations()),
    "vector ops in the loops, accumulators in loop variables",
)

BUFFERIZED = Stage(
    "bufferized",
    "buffer",
    (
        *to_buffers(),
        # Who frees what: every allocation once, results belong to the caller.
        Pass("buffer-deallocation-pipeline"),
        Pass("convert-bufferization-to-memref"),
        Pass("canonicalize"),
        Pass("cse"),
        DescribeEntries(),
        RestoreLocations(),
    ),
    "memrefs with explicit allocation and release; results are arguments where their shape is known",
    verify_each=False,
)


def _loops(math: VectorMath) -> Stage:
    return Stage(
        "loops",
        "scf",
        (
            # For programs that begin here; others are described already.
            DescribeEntries(),
            # exp, tanh, … of vectors: polynomials, or the vector functions of the C library.
            math,
            # Contractions to outer products, transfers to one-dimensional loads and stores.
            LowerVectors(),
            UnrollStridedVectors(),
            Pass("scf-forall-to-parallel", on=FUNCTION),
            Pass("tm-tensor-to-loops", on=FUNCTION),
            # memref.copy would call a runtime library that is not shipped: copies become linalg ops, then loops.
            Pass("refback-munge-memref-copy", on=FUNCTION),
            Pass("convert-linalg-to-loops", on=FUNCTION),
            Pass("canonicalize"),
            Pass("cse"),
            RestoreLocations(),
        ),
        "loops over scalars for everything that is not vectors already",
        verify_each=False,
    )


# Narrow floats are storage: arithmetic on them is done in f32, conversions are integer arithmetic where the machine and its
# libraries have none.
_NARROW_FLOATS = (
    TwoRoundings(),
    Pass("math-extend-to-supported-types", {"extra-types": "f32", "target-type": "f32"}, on=FUNCTION),
    Pass("arith-emulate-unsupported-floats", {"source-types": "bf16", "target-type": "f32"}),
    Pass("arith-expand", {"include-bf16": True}, on=FUNCTION),
)


def _llvm(threads: int, exports: PythonPass) -> Stage:
    threading = (
        Pass("convert-scf-to-openmp", {"num-threads": threads}),
        # Bodies are wrapped in a scope for stack memory, which goes away where there is none.
        Pass("canonicalize"),
    )
    return Stage(
        "llvm",
        "llvm",
        (
            *_NARROW_FLOATS,
            Pass("lower-vector-multi-reduction", on=FUNCTION),
            Pass("lower-vector-mask", on=FUNCTION),
            Pass("convert-vector-to-scf"),
            Pass("fold-memref-alias-ops", on=FUNCTION),
            Pass("expand-strided-metadata"),
            Pass("lower-affine"),
            *(threading if threads > 1 else ()),
            Pass("convert-scf-to-cf"),
            # Needs blocks, not loops, to leave a function early.
            AssertsToErrors(),
            # A tenth of the code around calls: 150 weights are 150 pointers, not a thousand numbers.
            BarePointers(),
            Pass("convert-complex-to-standard", on=FUNCTION),
            # The partial results of a reduction have no order that eager would keep either.
            Pass("convert-vector-to-llvm", {"reassociate-fp-reductions": True}),
            CallNearZero(),
            Pass("convert-math-to-llvm"),
            Pass("convert-math-to-libm"),
            Pass("convert-complex-to-llvm"),
            Pass("convert-index-to-llvm"),
            Pass("convert-ub-to-llvm"),
            Pass("finalize-memref-to-llvm"),
            *((Pass("convert-openmp-to-llvm"),) if threads > 1 else ()),
            Pass("convert-func-to-llvm"),
            Pass("convert-cf-to-llvm"),
            # expand-strided-metadata and finalize-memref-to-llvm leave address arithmetic.
            Pass("lower-affine"),
            Pass("convert-arith-to-llvm"),
            Pass("reconcile-unrealized-casts"),
            Pass("canonicalize"),
            Pass("cse"),
            # LLVM's back end aborts on some vectors of bf16; it never sees one.
            BfloatBits(),
            Pass("canonicalize"),
            exports,
            Pass("symbol-dce"),
            RestoreLocations(),
        ),
        "LLVM dialect: one function per kernel, and the entry points that call them",
        verify_each=False,
    )


LLVMIR = Stage("llvmir", "llvmir", (DebugLines(), TranslateToLlvmIr()), "LLVM IR, before LLVM's own optimizations")
ASM = Stage("asm", "asm", (Disassemble(),), "disassembly of the object: what runs")


def cpu_pipeline(route: str, level: str, *, threads: int = 1, opt_level: int = 2) -> Pipeline:
    """The stage table for a program at ``level`` that takes ``route`` ("tosa" or "linalg"), each kernel on ``threads``."""
    parallel = Stage(
        "parallel",
        "linalg",
        (ParallelizeKernels(threads),),
        "large kernels split among threads",
    )
    compiled = Stage("object", "object", (CompileObject(opt_level),), "relocatable object for this machine's processor")
    kernels = (KERNELS, parallel) if threads > 1 else (KERNELS,)
    back = (
        prepared(RoundSumsOnce()), fused(computed_apart=True), PACKED, *kernels,
        _tiled(), VECTORIZED, BUFFERIZED, _loops(VectorMath()),
        _llvm(threads, ExportEntries()), LLVMIR, compiled, ASM,
    )  # fmt: skip
    names = [stage.name for stage in back]
    back = back[names.index(_FIRST_STAGE.get(level, "prepared")) :]
    return Pipeline("cpu", (*frontend_stages(route, level), *back), "linalg to native code for this machine's processor")


def freestanding_stages(cpu: str, translation: Translation, exports: PythonPass, scratch: int) -> tuple[Stage, ...]:
    """From kernel functions on tensors to one object that needs no library, for the table of another target.

    ``cpu`` is a key of :data:`FREESTANDING`; ``translation`` and ``exports`` are how the code is entered; ``scratch`` bytes
    is the largest buffer that a kernel may have, on the stack.
    """
    bufferized = Stage(
        "bufferized",
        "buffer",
        (
            *to_buffers(),
            Pass("buffer-loop-hoisting", on=FUNCTION),
            Pass(
                "promote-buffers-to-stack",
                {"max-alloc-size-in-bytes": scratch, "max-rank-of-allocated-memref": _ANY_RANK},
                on=FUNCTION,
            ),
            Pass("canonicalize"),
            Pass("cse"),
            RestoreLocations(),
        ),
        "memrefs; what a kernel keeps for itself lies on the stack",
    )
    return (
        _tiled(FREESTANDING[cpu]),
        VECTORIZED,
        bufferized,
        _loops(VectorMath(functions=("none",))),
        _llvm(1, exports),
        Stage("llvmir", "llvmir", (DebugLines(), translation), "LLVM IR, before LLVM's own optimizations"),
        Stage("object", "object", (CompileObject(3, cpu, freestanding=True),), f"relocatable object for {cpu}"),
        ASM,
    )


_ANY_RANK = 8
# Processors that one-row kernels are compiled for without asking the machine, and their vectors in bits.
FREESTANDING = {"host": HOST, "x86-64-v3": 256, "x86-64-v4": 512}

# For programs that stand below linalg already.
_FIRST_STAGE = {"vector": "bufferized", "buffer": "loops", "scf": "loops", "llvm": "llvmir", "llvmir": "object"}
