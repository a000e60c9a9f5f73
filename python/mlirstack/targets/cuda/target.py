"""Target ``cuda``: kernels for an NVIDIA GPU, with the plan of their launches; ``cuda:sm_80`` … ``cuda:sm_90a``, and
``cuda:sm_80+sm_89+sm_90``: machine code for each of these, and PTX for later ones, in one fat binary.

Building needs no GPU; loading needs a driver, torch and cuda-bindings, and neither torch-mlir nor any compiler.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlirstack.errors import BundleError, StageError, TargetUnavailableError
from mlirstack.passes.cuda.plan import LaunchPlan
from mlirstack.passes.cuda.tf32_kernels import kernels_with_tf32
from mlirstack.schedules.cuda.device import DEFAULT_ARCH
from mlirstack.targets.base import Artifact, Executable, Target
from mlirstack.targets.cuda.arch import Arch, Architectures
from mlirstack.targets.registry import TargetOptions
from mlirstack.targets.requirements import Requirements
from mlirstack.targets.tf32 import tf32_of_torch

if TYPE_CHECKING:
    import torch

    from mlirstack.frontend.program import Program, Signature
    from mlirstack.pipeline.runner import Observer, Payload
    from mlirstack.pipeline.stage import Pipeline
    from mlirstack.targets.cuda.driver import Driver

CUBIN_FILE, PTX_FILE, PLAN_FILE = "kernels.cubin", "kernels.ptx", "plan.json"  # of an artifact
FATBIN_FILE = "kernels.fatbin"  # in place of the cubin, where there is code for several architectures
JIT_VARIABLE = "MLIRSTACK_CUDA_JIT"


class CudaTarget(Target):
    """The part after the colon is what to compile for, see :class:`Architectures`; without it, torch's current device.

    ``jit`` (else the environment variable MLIRSTACK_CUDA_JIT=1) lets the driver compile the PTX even where the cubin runs.
    ``driver`` replaces that of torch's current device.
    """

    name = "cuda"
    schedules = ("transform",)

    def __init__(
        self, options: TargetOptions | None = None, *, jit: bool | None = None, driver: Driver | None = None
    ) -> None:
        arch = options.arch if options else None
        self._archs = Architectures.parse(arch) if arch else None
        self._schedule = options.schedule if options else None
        self._jit = os.environ.get(JIT_VARIABLE, "0") not in ("", "0") if jit is None else jit
        self._driver = driver

    @property
    def arch(self) -> str:
        """What is compiled for."""
        if self._archs:
            return str(self._archs)
        if self._driver is None and self._unavailable():
            return DEFAULT_ARCH
        return str(Arch.of_device(self._open().capability))

    def available(self) -> str | None:
        """None, or the reason why programs cannot run here."""
        reason = None if self._driver else self._unavailable()
        if reason or not self._archs:
            return reason
        driver = self._open()
        return None if self._archs.image_for(driver.capability) else _mismatch(self._archs, driver)

    def pipeline(self, route: str, level: str) -> Pipeline:
        """The table of ``pipelines/cuda.py``; f32 is multiplied as TF32 where torch's settings say so now."""
        from mlirstack.pipelines.cuda import cuda_pipeline

        return cuda_pipeline(route, level, arch=self.arch, schedule=self._schedule, tf32=tf32_of_torch())

    def build(self, program: Program, payload: Payload, observers: Sequence[Observer] = ()) -> Artifact:
        """The cubin or the fat binary, the PTX it was made from, and the launch plan."""
        from mlirstack.passes.cuda.cubin import assemble
        from mlirstack.passes.cuda.fatbin import make_fatbin
        from mlirstack.passes.cuda.planned import PlannedCode
        from mlirstack.passes.cuda.toolkit import program as tool
        from mlirstack.passes.cuda.toolkit import version_of

        if not isinstance(payload, PlannedCode):
            raise StageError("the lowering stopped before there was a launch plan", stage="plan", hint="leave out --to")
        first, ptx = payload.plan.arch, payload.ptx
        files = {PTX_FILE: ptx.encode(), PLAN_FILE: payload.plan.to_json().encode()}
        if self._archs and self._archs.are_several:
            others = {str(arch): assemble(ptx, str(arch))[0] for arch in self._archs.archs[1:]}
            files[FATBIN_FILE] = make_fatbin({first: payload.cubin, **others}, {first: ptx})
        else:
            files[CUBIN_FILE] = payload.cubin
        metadata = {
            "arch": str(self._archs) if FATBIN_FILE in files else first,
            "cuda": list(version_of(tool("ptxas"))),
            **self.figures(payload),
            "tf32": kernels_with_tf32(payload.ptx),
        }
        return Artifact(self.name, files, metadata)

    def figures(self, payload: Payload) -> dict[str, Any]:
        """Bytes of temporaries of each function, with reuse and without; None where they depend on shapes."""
        from mlirstack.passes.cuda.planned import PlannedCode

        if not isinstance(payload, PlannedCode):
            return {}
        return {"memory": {f.name: {"arena": f.arena_bytes, "unshared": f.unshared_bytes} for f in payload.plan.functions}}

    def requirements(self, artifact: Artifact) -> Requirements:
        """The GPU, a driver of the major CUDA version that assembled the kernels, and the bindings to it."""
        major = artifact.metadata.get("cuda", [0, 0])[0]
        packages = {"cuda-bindings": ">=13", "torch": ">=2.11"}
        arch = str(Architectures.parse(artifact.metadata["arch"]).first)
        return Requirements(device="cuda", arch=arch, cuda=(major, 0), packages=packages)

    def load(self, artifact: Artifact, signature: Signature, parameters: dict[str, torch.Tensor]) -> Executable:
        """Load kernels and parameters onto the device; :class:`TargetUnavailableError` where it cannot run them."""
        from mlirstack.targets.cuda.executable import CudaExecutable

        machine_code = FATBIN_FILE if FATBIN_FILE in artifact.files else CUBIN_FILE
        missing = [name for name in (machine_code, PTX_FILE, PLAN_FILE) if name not in artifact.files]
        if missing:
            raise BundleError(f"the artifact holds no {', '.join(missing)}", hint="build it again")
        try:
            plan = LaunchPlan.from_json(artifact.files[PLAN_FILE].decode())
        except (ValueError, KeyError, TypeError) as error:
            raise BundleError(f"{PLAN_FILE} cannot be read: {error}", hint="build it again") from error
        driver, archs = self._open(), Architectures.parse(artifact.metadata.get("arch", plan.arch))
        image = archs.image_for(driver.capability, jit=self._jit)
        if image is None:
            raise TargetUnavailableError(
                _mismatch(archs, driver), hint=f"build for this device: --target cuda:{Arch.of_device(driver.capability)}"
            )
        ptx = artifact.files[PTX_FILE].decode()
        if image == "cubin":
            _check_cubin(artifact.metadata.get("cuda", [0, 0]), driver)
        else:
            _check_ptx(ptx, driver)
        # Of a fat binary the driver takes what fits: machine code, else the PTX in there.
        code = artifact.files[machine_code if image == "cubin" or (archs.are_several and not self._jit) else PTX_FILE]
        return CudaExecutable(plan, code, signature, parameters, driver, ptx=ptx)

    @staticmethod
    def _unavailable() -> str | None:
        from mlirstack.targets.cuda.native import unavailable

        return unavailable()

    def _open(self) -> Driver:
        if self._driver is None:
            from mlirstack.targets.cuda.native import current_driver

            return current_driver()
        return self._driver


def _mismatch(archs: Architectures, driver: Driver) -> str:
    major, minor = driver.capability
    return f"kernels for {archs} do not run on {driver.device_name}, whose compute capability is {major}.{minor}"


def _check_cubin(cuda: Sequence[int], driver: Driver) -> None:
    """Machine code runs with the drivers of its own major CUDA version and of later ones."""
    if cuda[0] > driver.version[0]:
        raise TargetUnavailableError(
            f"the kernels were assembled by CUDA {cuda[0]}.{cuda[1]}, this driver serves CUDA {_version(driver)}",
            hint=f"update the driver, or set {JIT_VARIABLE}=1 to let it compile the PTX",
        )


def _check_ptx(ptx: str, driver: Driver) -> None:
    from mlirstack.passes.cuda.toolkit import isa_text, ptx_of_cuda

    found = re.search(r"^\.version (\d+)\.(\d+)", ptx, re.MULTILINE)
    isa, newest = int(found[1]) * 10 + int(found[2]) if found else 0, ptx_of_cuda(driver.version)
    if isa > newest:
        raise TargetUnavailableError(
            f"the kernels are PTX {isa_text(isa)}, the driver of CUDA {_version(driver)} reads PTX up to {isa_text(newest)}",
            hint="update the driver",
        )


def _version(driver: Driver) -> str:
    return f"{driver.version[0]}.{driver.version[1]}"
