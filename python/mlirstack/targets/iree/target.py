"""The targets ``iree-*``: artifacts are vmfb files that IREE's compiler made and IREE's runtime loads.

Building runs the stage table of :mod:`mlirstack.pipelines.iree`; loading needs neither torch-mlir nor IREE's compiler, and
with NumPy arrays not even torch.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mlirstack.errors import BundleError, PipelineError, TargetUnavailableError, UsageError
from mlirstack.frontend.program import Program, Signature
from mlirstack.passes.iree.archive import ENCODER, MODULE
from mlirstack.passes.iree.packed import PackedModule
from mlirstack.passes.iree.targets import BACKENDS, KERNEL_ARCHITECTURES, check_architecture
from mlirstack.pipeline.registry import nearest
from mlirstack.targets.base import ArrayExecutable, Artifact, Executable, Target
from mlirstack.targets.iree.bytecode import bytecode_read_here, bytecode_version
from mlirstack.targets.registry import TargetOptions, truth
from mlirstack.targets.requirements import (
    CROSS_FEATURES,
    X86_LEVELS,
    Requirements,
    cuda_device,
    is_installed,
    known_machine_features,
    unmet,
)
from mlirstack.targets.tf32 import tf32_of_torch

if TYPE_CHECKING:
    import numpy as np
    import torch

    from mlirstack.passes.iree.phase import IreePhase
    from mlirstack.pipeline.runner import Observer, Payload
    from mlirstack.pipeline.stage import Pipeline

RUNTIME = "iree-base-runtime"
COMPILER = "iree-base-compiler"
_TRUTHS = ("data-tiling", "prepack")  # settings that are true or false
_OWN_NEED = X86_LEVELS["x86-64-v3"]  # instructions that our own kernels for processors rely on


class IreeTarget(Target):
    """What the targets share.  ``backend`` is IREE's name of the code generator, ``device`` that of the place to run.

    ``settings``: ``opt-level`` is O0 to O3; ``data-tiling`` (true, false) packs the operands of contractions on processors;
    ``ukernels`` (none, default, all) are hand-written inner loops there.
    """

    backend: ClassVar[str]
    device: ClassVar[str]
    settings: ClassVar[tuple[str, ...]] = ("opt-level", "data-tiling", "ukernels")
    fenced: ClassVar[bool] = False  # results in memory of the caller's, calls that return early

    def __init__(self, options: TargetOptions) -> None:
        if options.threads < 1:
            raise UsageError(f"{options.threads} threads", hint="at least one thread is needed")
        self.arch = options.arch or self._default_arch()
        try:
            check_architecture(self.backend, self.arch)
        except PipelineError as error:
            raise UsageError(f"target '{self.name}': {error.message}", hint=error.hint) from None
        self.threads = options.threads
        self.given = dict(options.settings)

    def available(self) -> str | None:
        """None where IREE's runtime is installed and the device is there."""
        return None if is_installed("iree.runtime") else f"IREE's runtime is not installed (pip install {RUNTIME})"

    def pipeline(self, route: str, level: str) -> Pipeline:
        """Front end, IREE's phases, vmfb."""
        from mlirstack.pipelines.iree import iree_pipeline

        return iree_pipeline(self.name, route, level, self._phase())

    def _phase(self) -> IreePhase:
        """The last of IREE's phases, with what was set."""
        from mlirstack.passes.iree.phase import VMFB, IreePhase

        try:
            phase = IreePhase(VMFB, backend=self.backend, arch=self.arch, fenced=self.fenced)
            for key, value in self.given.items():
                field = key.replace("-", "_")
                if field in IreePhase.__dataclass_fields__:
                    phase = replace(phase, **{field: truth(self.name, key, value) if key in _TRUTHS else value})  # type: ignore[arg-type]
        except PipelineError as error:
            raise UsageError(f"target '{self.name}': {error.message}", hint=error.hint) from None
        return phase

    def build(self, program: Program, payload: Payload, observers: Sequence[Observer] = ()) -> Artifact:
        """Wrap the vmfb; :class:`UsageError` where the table was not run to its end."""
        vmfb = payload.data if isinstance(payload, PackedModule) else payload
        if not isinstance(vmfb, bytes):
            raise UsageError("the stages were not run to the end: there is no vmfb", hint="leave out --to")
        metadata = {
            "backend": self.backend,
            "arch": self.arch,
            "compiler": f"{COMPILER} {importlib.metadata.version(COMPILER)}",
            "flags": list(self._phase().flags()),
            "bytecode": list(bytecode_version(vmfb)),
            "sha256": hashlib.sha256(vmfb).hexdigest(),
        }
        if not isinstance(payload, PackedModule):
            return Artifact(self.name, {MODULE: vmfb}, metadata)
        metadata["reads"] = payload.reads(program.parameters)
        return Artifact(self.name, {MODULE: vmfb, ENCODER: payload.encoder}, metadata)

    def requirements(self, artifact: Artifact) -> Requirements:
        """The runtime, the version of its bytecode, and the device."""
        major, minor = artifact.metadata["bytecode"]
        series = ".".join(artifact.metadata["compiler"].split()[1].split(".")[:2])
        return Requirements(device=self.device, packages={RUNTIME: f">={series}"}, bytecode=(major, minor))

    def pack(self, artifact: Artifact, signature: Signature, parameters: Mapping[str, torch.Tensor], file: Path) -> Artifact:
        """Run the encoder, where the module has one; see :meth:`Target.pack`."""
        if ENCODER not in artifact.files:
            return artifact
        if not is_installed("iree.runtime"):
            raise UsageError(
                f"packing parameters ahead needs {RUNTIME}", hint=f"pip install {RUNTIME}, or --set prepack=false"
            )
        from mlirstack.targets.iree.packing import pack_into
        from mlirstack.targets.iree.runtime import flat_bytes

        return pack_into(file, artifact, parameters, lambda name: flat_bytes(parameters[name]))

    def load(self, artifact: Artifact, signature: Signature, parameters: dict[str, torch.Tensor]) -> Executable:
        """Load the vmfb and bind ``parameters``, which must stay alive and unchanged: most are read in place.

        Raises :class:`BundleError` for a damaged file, :class:`TargetUnavailableError` where it cannot run.
        """
        from mlirstack.targets.iree.packing import packed_of
        from mlirstack.targets.iree.runtime import IreeExecutable, flat_bytes

        vmfb, packed = self._checked(artifact), packed_of(artifact, parameters, lambda name: flat_bytes(parameters[name]))
        return IreeExecutable(vmfb, signature, parameters, packed, threads=self.threads)

    def load_arrays(self, artifact: Artifact, signature: Signature, parameters: Mapping[str, np.ndarray]) -> ArrayExecutable:
        """As :meth:`load`, without torch."""
        from mlirstack.targets.iree.arrays import IreeArrayExecutable, flat_bytes
        from mlirstack.targets.iree.packing import packed_of

        vmfb, packed = self._checked(artifact), packed_of(artifact, parameters, lambda name: flat_bytes(parameters[name]))
        return IreeArrayExecutable(vmfb, signature, parameters, packed, device=self.device, threads=self.threads)

    def _checked(self, artifact: Artifact) -> bytes:
        """The vmfb, known to be undamaged and to be one that this machine and this runtime can take."""
        reason = self.available()
        if reason:
            raise TargetUnavailableError(reason)
        vmfb = artifact.files.get(MODULE)
        if vmfb is None:
            raise BundleError(f"the artifact holds no {MODULE}")
        if hashlib.sha256(vmfb).hexdigest() != artifact.metadata.get("sha256"):
            # A damaged file can crash the process or, worse, compute something else.
            raise BundleError(f"{MODULE} is damaged: its checksum differs", hint="build it again")
        wanted = replace(self.requirements(artifact), bytecode=bytecode_version(vmfb))
        for lack in unmet(wanted, bytecode_read_here())[:1]:
            raise TargetUnavailableError(lack.reason, hint=lack.remedy)
        return vmfb

    def _default_arch(self) -> str:
        return BACKENDS[self.backend].default


class IreeCpuTarget(IreeTarget):
    """IREE on a processor: ``iree-cpu``, ``iree-cpu:x86-64-v3``, ``:generic``, ``:aarch64``, ``:riscv64``.

    The part after the colon is a level of the x86-64 ABI or another architecture; without it, code is made for the machine
    that builds.

    Softmax, norms and what else computes row by row are our own kernels for ``x86-64-v3``, ``x86-64-v4``, and machines that
    build and have the former's instructions.  Setting ``kernels``: "own" (the default), or "iree" for IREE's code alone;
    ``prepack`` (true, false): what depends on parameters alone is computed when a bundle is built, not when it is loaded.
    """

    name = "iree-cpu"
    backend = "llvm-cpu"
    device = "cpu"
    settings = (*IreeTarget.settings, "prepack", "kernels")

    def __init__(self, options: TargetOptions) -> None:
        super().__init__(options)
        self.kernels = _one_of(self, "kernels", ("own", "iree"))

    def _phase(self) -> IreePhase:
        """Products of ``generic`` without IREE's inner loops, which are scalar code there and take ten times as long."""
        phase = super()._phase()
        return replace(phase, ukernels="none") if self.arch == "generic" and "ukernels" not in self.given else phase

    def pipeline(self, route: str, level: str) -> Pipeline:
        """With our kernels, the stages of target ``cpu`` from linalg to an object stand in between."""
        from mlirstack.pipelines.cpu import FREESTANDING
        from mlirstack.pipelines.iree import iree_linked_pipeline

        can_run_own = self.arch in FREESTANDING and (self.arch != "host" or set(_OWN_NEED) <= set(known_machine_features()))
        if self.kernels == "iree" or not can_run_own:
            return super().pipeline(route, level)
        return iree_linked_pipeline(self.name, route, level, self._phase())

    def requirements(self, artifact: Artifact) -> Requirements:
        """Also the instruction set; for ``host`` all features that the building machine has."""
        arch = artifact.metadata["arch"]
        if arch in CROSS_FEATURES:
            return replace(super().requirements(artifact), machine=arch, features=CROSS_FEATURES[arch])
        features = artifact.metadata["features"] if arch == "host" else X86_LEVELS[arch]
        return replace(super().requirements(artifact), machine="x86_64", features=tuple(features))

    def build(self, program: Program, payload: Payload, observers: Sequence[Observer] = ()) -> Artifact:
        """As for all; the metadata says which kernels are ours, and for ``host`` which processor features that was."""
        artifact = super().build(program, payload, observers)
        kernels = _own_kernels(artifact)
        if kernels:
            artifact = replace(artifact, metadata={**artifact.metadata, "kernels": kernels})
        if self.arch != "host":
            return artifact
        machine = {"machine": platform.machine(), "features": list(known_machine_features())}
        return replace(artifact, metadata={**artifact.metadata, **machine})


class IreeCudaTarget(IreeTarget):
    """IREE on an NVIDIA GPU: ``iree-cuda:sm_80``, ``:sm_86``, ``:sm_89``, ``:sm_90``.

    What target ``cuda`` has emitters for runs as our own kernels, embedded as machine code; IREE compiles the rest to PTX,
    which the driver compiles at load.  Building needs no GPU.

    Settings: ``kernels`` "own" (the default), or "iree" for IREE's code alone.  ``image`` of our kernels: "ptx" is compiled
    by the driver at load; by default it is "cubin" for sm_90, whose kernels run on no other device (they use sm_90a), else
    "fatbin", machine code and PTX for later devices.  ``clusters`` "true" allows kernels whose blocks work in clusters,
    which IREE does not know of.
    """

    name = "iree-cuda"
    backend = "cuda"
    device = "cuda"
    settings = ("opt-level", "kernels", "image", "clusters")
    fenced = True

    def __init__(self, options: TargetOptions) -> None:
        super().__init__(options)
        is_exact = self.arch in KERNEL_ARCHITECTURES
        self.kernels = _one_of(self, "kernels", ("own", "iree"))
        self.image = _one_of(self, "image", ("cubin" if is_exact else "fatbin", "ptx"))
        self.clusters = truth(self.name, "clusters", _one_of(self, "clusters", ("false", "true")))

    def pipeline(self, route: str, level: str) -> Pipeline:
        """With our kernels, the stages of target ``cuda`` come first."""
        from mlirstack.pipelines.iree import iree_cuda_pipeline

        if self.kernels == "iree":
            return super().pipeline(route, level)
        return iree_cuda_pipeline(
            route,
            level,
            self._phase(),
            image=self.image,
            clusters=self.clusters,
            tf32=tf32_of_torch(),
        )

    def available(self) -> str | None:
        """None where the runtime is installed, there is a GPU, and it runs what is asked for."""
        reason = super().available()
        if reason:
            return reason
        lacks = unmet(Requirements(device=self.device, arch=self.arch))
        return lacks[0].reason if lacks else None

    def requirements(self, artifact: Artifact) -> Requirements:
        """Also the architecture of the code, and a driver that reads its PTX (8.x came with CUDA 12.x) and what our kernels'
        assembler has made."""
        metadata = artifact.metadata
        major, minor = metadata["ptx"]
        cuda = max((major + 4, minor), (metadata.get("cuda", [0])[0], 0))
        return replace(super().requirements(artifact), arch=metadata.get("kernel_arch", metadata["arch"]), cuda=cuda)

    def build(self, program: Program, payload: Payload, observers: Sequence[Observer] = ()) -> Artifact:
        """As for all; the metadata says which version of PTX the vmfb holds, and which kernels of ours."""
        from mlirstack.passes.cuda.toolkit import program as tool
        from mlirstack.passes.cuda.toolkit import version_of

        artifact = super().build(program, payload, observers)
        found = re.search(rb"^\.version (\d+)\.(\d+)", artifact.files[MODULE], re.MULTILINE)
        # A program without kernels holds no PTX, and needs no more than the first CUDA with this scheme.
        ptx = [int(found[1]), int(found[2])] if found else [7, 0]
        metadata = {**artifact.metadata, "ptx": ptx}
        kernels = _own_kernels(artifact)
        if kernels:
            metadata["kernels"] = kernels
            metadata["tf32"] = [name for described in kernels for name in described["tf32"]]
            metadata["kernel_arch"] = KERNEL_ARCHITECTURES.get(self.arch, self.arch)
            metadata["cuda"] = list(version_of(tool("ptxas")))
        return replace(artifact, metadata=metadata)

    def load(self, artifact: Artifact, signature: Signature, parameters: dict[str, torch.Tensor]) -> Executable:
        """Load the vmfb onto torch's current device; parameters are copied there."""
        from mlirstack.targets.iree.gpu import IreeCudaExecutable

        executable = IreeCudaExecutable(self._checked(artifact), signature, parameters)
        executable.tf32 = bool(artifact.metadata.get("tf32"))
        return executable

    def _default_arch(self) -> str:
        """That of the GPU here, where it has an entry in the table; else the least that is compiled for."""
        found = cuda_device()
        known = BACKENDS[self.backend].known
        if isinstance(found, str):
            return BACKENDS[self.backend].default
        name = f"sm_{found.capability[0]}{found.capability[1]}"
        return name if name in known else BACKENDS[self.backend].default


class _CompileOnly(IreeTarget):
    """Artifacts that are made here and, so far, run by nobody here."""

    settings = ("opt-level",)

    def available(self) -> str | None:
        """Never: nothing of this kind has been run yet."""
        return "code is only compiled for it: mlirstack has not been run on such a device"


class IreeRocmTarget(_CompileOnly):
    """AMD GPUs, compile only: ``iree-rocm:gfx942``."""

    name = "iree-rocm"
    backend = "rocm"
    device = "hip"


class IreeVulkanTarget(_CompileOnly):
    """SPIR-V for Vulkan, compile only: ``iree-vulkan:ampere``; without an architecture, what most devices have."""

    name = "iree-vulkan"
    backend = "vulkan-spirv"
    device = "vulkan"


def _own_kernels(artifact: Artifact) -> list[dict[str, Any]]:
    """The descriptions of our own kernels inside an artifact, for its metadata."""
    from mlirstack.passes.iree.embedded_kernels import kernels_of

    return kernels_of(artifact.files[MODULE]) or []


def _one_of(target: IreeTarget, key: str, values: tuple[str, ...]) -> str:
    """The setting ``key``, one of ``values``; the first where it is not given."""
    given = target.given.get(key, values[0])
    if given not in values:
        raise UsageError(
            f"target '{target.name}' has no {key} '{given}'{nearest(given, [*values])}", hint=f"{key}: {', '.join(values)}"
        )
    return given
