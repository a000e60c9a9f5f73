"""The stages of the targets ``iree-*``: linalg on tensors, then IREE's own phases to a vmfb.

Each phase is a run of IREE's compiler that continues from what the phase before has left, so IREE's levels are dumped,
timed, resumed and overridden like ours.  The vmfb is byte for byte that of one run from start to end.
"""

from __future__ import annotations

from dataclasses import replace

from mlirstack.errors import UsageError
from mlirstack.passes.index_checks import ChecksOutOfKernels
from mlirstack.passes.iree_compiler import PHASES
from mlirstack.passes.iree_doubles import ExpandDoubles
from mlirstack.passes.iree_phase import VMFB, IreePhase
from mlirstack.passes.iree_targets import CPU
from mlirstack.passes.simplify import SimplifyLinalg
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass
from mlirstack.pipelines.frontend import frontend_stages
from mlirstack.schedules.iree import OutputChannelsLast

_PURPOSES = {
    "iree-cpu": "linalg on tensors handed to IREE, compiled for CPUs through LLVM",
    "iree-cuda": "linalg on tensors handed to IREE, compiled to PTX for NVIDIA GPUs",
    "iree-rocm": "linalg on tensors handed to IREE, compiled for AMD GPUs through LLVM",
    "iree-vulkan": "linalg on tensors handed to IREE, compiled to SPIR-V",
}


def iree_pipeline(name: str, route: str, level: str, settings: IreePhase) -> Pipeline:
    """The table of target ``name`` for a program at ``level``; every phase runs as ``settings`` says."""
    if level not in ("fx", "torch", "tosa", "linalg"):
        raise UsageError(
            f"IREE takes programs at linalg or above; this one stands at level '{level}'",
            hint="lower it to linalg at most, or compile it for target cpu",
        )
    prepared = Stage(
        "prepared",
        "linalg",
        (
            # What TOSA says about infinities.
            SimplifyLinalg(),
            # IREE drops assertions inside kernels, and keeps those between them.
            ChecksOutOfKernels(),
            OutputChannelsLast(),
            # Code for processors is linked with no mathematical library.
            *((ExpandDoubles(),) if settings.backend == CPU else ()),
            Pass("canonicalize"),
            Pass("cse"),
        ),
        "the same program in the form that IREE compiles right and well",
    )
    phases = [Stage(f"iree-{phase}", "iree", (replace(settings, phase=phase),), doc) for phase, doc in PHASES.items()]
    vmfb = Stage("vmfb", "vmfb", (replace(settings, phase=VMFB),), "the file that IREE's runtime loads")
    return Pipeline(name, (*frontend_stages(route, level), prepared, *phases, vmfb), _PURPOSES[name])


def iree_cpu_pipeline(route: str, level: str, cpu: str = "host") -> Pipeline:
    """The table of ``iree-cpu`` with its defaults; ``cpu`` is LLVM's name of the processor to compile for."""
    return iree_pipeline("iree-cpu", route, level, IreePhase(VMFB, arch=cpu))
