"""The stages of the targets ``iree-*``: linalg on tensors, then IREE's own phases to a vmfb.

Each phase is a run of IREE's compiler that continues from what the phase before has left, so IREE's levels are dumped,
timed, resumed and overridden like ours.  The vmfb is byte for byte that of one run from start to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlirstack.errors import UsageError
from mlirstack.passes.cuda.map_kernels import MapKernels
from mlirstack.passes.cut_unread import CutUnread
from mlirstack.passes.fold_sizes import FoldSizes
from mlirstack.passes.fold_transposes import FoldTransposes
from mlirstack.passes.index_checks import ChecksOutOfKernels
from mlirstack.passes.iree.bind import BindKernels
from mlirstack.passes.iree.blocks import BlockProducts
from mlirstack.passes.iree.compiler import PHASES
from mlirstack.passes.iree.doubles import ExpandDoubles
from mlirstack.passes.iree.embed import EmbedKernels
from mlirstack.passes.iree.embedded_kernels import CheckKernels
from mlirstack.passes.iree.factors import WidenFactors
from mlirstack.passes.iree.linked_code import ExportLinked, TranslateLinked
from mlirstack.passes.iree.linked_embed import EmbedLinked
from mlirstack.passes.iree.linked_kernels import FormLinkedKernels
from mlirstack.passes.iree.phase import VMFB, IreePhase
from mlirstack.passes.iree.regions import FormRegions
from mlirstack.passes.iree.results import ResultSizes
from mlirstack.passes.iree.rows import MOST_SCRATCH, OneRow
from mlirstack.passes.iree.split import SplitProgram
from mlirstack.passes.iree.targets import CPU, KERNEL_ARCHITECTURES
from mlirstack.passes.iree.tensor_maps import MakeTensorMaps
from mlirstack.passes.merge_equal import MergeEqual
from mlirstack.passes.native_code import host_cpu
from mlirstack.passes.restore_locations import RestoreLocations
from mlirstack.passes.settle_broadcasts import SettleBroadcasts
from mlirstack.passes.simplify import SimplifyLinalg
from mlirstack.passes.sink_expansions import SinkExpansions
from mlirstack.passes.two_roundings import TwoRoundings
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass, Step
from mlirstack.pipelines import cpu, cuda
from mlirstack.pipelines.frontend import frontend_stages
from mlirstack.pipelines.graph import fused
from mlirstack.schedules.iree import OutputChannelsLast

_PURPOSES = {
    "iree-cpu": "linalg on tensors handed to IREE, compiled for CPUs through LLVM",
    "iree-cuda": "linalg on tensors handed to IREE, compiled to PTX for NVIDIA GPUs",
    "iree-rocm": "linalg on tensors handed to IREE, compiled for AMD GPUs through LLVM",
    "iree-vulkan": "linalg on tensors handed to IREE, compiled to SPIR-V",
}


def iree_pipeline(name: str, route: str, level: str, settings: IreePhase) -> Pipeline:
    """The table of target ``name`` for a program at ``level``; every phase runs as ``settings`` says."""
    _check_level(level)
    return _with_phases(name, (*frontend_stages(route, level), _prepared(settings)), settings)


def _prepared(settings: IreePhase) -> Stage:
    return Stage(
        "prepared",
        "linalg",
        (
            # What TOSA says about infinities.
            SimplifyLinalg(),
            # IREE drops assertions inside kernels, and keeps those between them.
            ChecksOutOfKernels(),
            OutputChannelsLast(),
            # Code for processors is linked with no mathematical library.
            *((ExpandDoubles(), _wide_factors(settings.arch)) if settings.backend == CPU else ()),
            # What a size of 1 decides at run time; sizes that are the same have one name by then.
            Pass("resolve-shaped-type-result-dims", on="func.func"),
            FoldSizes(),
            Pass("canonicalize"),
            Pass("cse"),
            SettleBroadcasts(),
            # IREE folds unit dimensions as we do.
            CutUnread(),
            Pass("canonicalize"),
            Pass("cse"),
            *((ResultSizes(),) if settings.fenced else ()),
            *((TwoRoundings(),) if settings.backend == CPU else ()),
            RestoreLocations(),
        ),
        "the same program in the form that IREE compiles right and well",
    )


def _wide_factors(arch: str) -> WidenFactors:
    """What widens the factors of products that processors of ``arch`` cannot multiply as they are."""
    has_bf16 = arch == "host" and "+avx512bf16" in host_cpu().features
    return WidenFactors(("f16",) if has_bf16 else ("f16", "bf16"))


def iree_linked_pipeline(name: str, route: str, level: str, settings: IreePhase) -> Pipeline:
    """The table of a target for processors with our own kernels: products, softmax, norms and what else computes row by row,
    compiled as target ``cpu`` compiles them; the program around them as :func:`iree_pipeline` hands it over."""
    _check_level(level)
    bits = cpu.FREESTANDING[settings.arch]
    regions = Stage(
        "regions",
        "linalg",
        (FormRegions(bits), FoldTransposes(), RestoreLocations()),
        "products, and what stands between other ops that IREE is good at, each region a function; the program rides along",
    )
    dispatches = Stage(
        "dispatches",
        "linalg",
        (
            # Linear layers compute on rows, what follows them on [batch, length]: it belongs to them all the same.
            SinkExpansions(),
            Pass("canonicalize"),
            Pass("cse"),
            FormLinkedKernels(),
            MergeEqual(),
            Pass("symbol-dce"),
            RestoreLocations(),
        ),
        "the program again, with calls of kernels where products or rows are ours",
    )
    kernels = Stage(
        "kernels",
        "linalg",
        (BlockProducts(bits), SplitProgram(alignment=1), OneRow(), RestoreLocations()),
        "the kernels, each over one row or one block of a product; the program, which packs weights, rides along",
    )
    object_code = cpu.freestanding_stages(settings.arch, TranslateLinked(), ExportLinked(), MOST_SCRATCH)
    program = Stage(
        "program",
        "program",
        (EmbedLinked(),),
        "what IREE is given: the program with dispatches of our kernels, and the object with their machine code",
    )
    stages = (_prepared(settings), regions, fused(), dispatches, kernels, *object_code, program)
    return _with_phases(name, (*frontend_stages(route, level), *stages), settings, CheckKernels())


def iree_cuda_pipeline(
    route: str,
    level: str,
    settings: IreePhase,
    *,
    image: str = "cubin",
    clusters: bool = False,
    tf32: Sequence[str] = (),
) -> Pipeline:
    """The table of ``iree-cuda`` with our own kernels: dispatches as target ``cuda`` forms them, its stages from buffers to
    machine code for the kernels that its emitters write, and IREE's phases for the program around them.

    ``image`` is what is embedded (:class:`EmbedKernels`), ``clusters``: may kernels be of clusters of blocks, ``tf32`` are
    the kinds of f32 ops that may be multiplied as TF32.
    """
    _check_level(level)
    arch = KERNEL_ARCHITECTURES.get(settings.arch, settings.arch)
    graph, back = cuda.stages_around_kernels(arch, tf32, clusters=clusters)
    split = Stage(
        "kernels",
        "linalg",
        (*((ResultSizes(),) if settings.fenced else ()), SplitProgram(), RestoreLocations()),
        "the regions that are ours, each a kernel function; the program that calls them rides along",
    )
    mapped = Stage(
        "mapped",
        "gpu",
        (
            MapKernels(arch),
            MakeTensorMaps(),
            Pass("canonicalize"),
            Pass("cse"),
            BindKernels(),
            Pass("canonicalize"),
            RestoreLocations(),
        ),
        "blocks, warps and threads; parameters as IREE passes them: pointers, then 32-bit numbers",
    )
    program = Stage(
        "program",
        "program",
        (EmbedKernels(image),),
        "what IREE is given: the program with dispatches of our kernels, and their machine code",
    )
    stages = (*frontend_stages(route, level), *graph, split, cuda.BUFFERIZED, mapped, *back, program)
    return _with_phases("iree-cuda", stages, settings, CheckKernels())


def _check_level(level: str) -> None:
    if level not in ("fx", "torch", "tosa", "linalg"):
        raise UsageError(
            f"IREE takes programs at linalg or above; this one stands at level '{level}'",
            hint="lower it to linalg at most, or compile it for target cpu",
        )


def _with_phases(name: str, stages: Sequence[Stage], settings: IreePhase, *checks: Step) -> Pipeline:
    phases = [Stage(f"iree-{phase}", "iree", (replace(settings, phase=phase),), doc) for phase, doc in PHASES.items()]
    vmfb = Stage("vmfb", "vmfb", (replace(settings, phase=VMFB), *checks), "the file that IREE's runtime loads")
    return Pipeline(name, (*stages, *phases, vmfb), _PURPOSES[name])


def iree_cpu_pipeline(route: str, level: str, arch: str = "host") -> Pipeline:
    """The table of ``iree-cpu`` without kernels of ours; ``arch`` is LLVM's name of the processor to compile for."""
    return iree_pipeline("iree-cpu", route, level, IreePhase(VMFB, arch=arch))
