"""Target ``cpu``: native code for the processor of this machine."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlirstack.errors import StageError, TargetUnavailableError
from mlirstack.passes.elf import ElfObject
from mlirstack.passes.native_code import Disassembly, ObjectCode, host_cpu
from mlirstack.passes.runtime_libraries import needed
from mlirstack.targets.base import Artifact, Executable, Target
from mlirstack.targets.registry import TargetOptions, truth
from mlirstack.targets.requirements import Requirements, cpuinfo_features

if TYPE_CHECKING:
    import torch

    from mlirstack.frontend.program import Program, Signature
    from mlirstack.pipeline.runner import Observer, Payload
    from mlirstack.pipeline.stage import Pipeline


class CpuTarget(Target):
    """Loops and vectors through MLIR, object code through LLVM; x86-64 Linux.

    Setting ``prepack`` (true, false): what depends on parameters alone is computed when a bundle is built, not when it is
    loaded.
    """

    name = "cpu"
    settings = ("prepack",)

    def __init__(self, options: TargetOptions | None = None) -> None:
        self.options = options or TargetOptions()
        self.prepack = truth(self.name, "prepack", self.options.settings.get("prepack", "false"))

    def available(self) -> str | None:
        """None, or the reason why objects cannot be loaded here."""
        if platform.machine() != "x86_64" or platform.system() != "Linux":
            return f"objects are for x86-64 Linux, this is {platform.machine()} {platform.system()}"
        if importlib.util.find_spec("llvmlite") is None:
            return "llvmlite is not installed"
        return None

    def pipeline(self, route: str, level: str) -> Pipeline:
        """The table of ``pipelines/cpu.py``."""
        from mlirstack.pipelines.cpu import cpu_pipeline

        return cpu_pipeline(route, level, threads=self.options.threads)

    def build(self, program: Program, payload: Payload, observers: Sequence[Observer] = ()) -> Artifact:
        """The object that the last stage left, with what a machine needs to run it."""
        if isinstance(payload, Disassembly):
            payload = payload.code
        if isinstance(payload, bytes):
            payload = ObjectCode(payload)
        if not isinstance(payload, ObjectCode):
            raise StageError("the lowering stopped before there was an object", stage="object", hint="lower to 'asm'")
        from mlirstack.targets.cpu.loader import LLVMIR_FILE, OBJECT_FILE, module_abi

        elf = ElfObject.parse(payload.data)
        cpu = host_cpu()
        metadata = {
            "abi": module_abi(elf).text(),
            "libraries": needed(elf.undefined()),
            "cpu": cpu.name,
            "features": cpu.features,
            "threads": self.options.threads,
        }
        files = {OBJECT_FILE: payload.data}
        if payload.llvm_ir:
            files[LLVMIR_FILE] = payload.llvm_ir.encode()
        return Artifact(self.name, files, metadata)

    def requirements(self, artifact: Artifact) -> Requirements:
        """x86-64, the processor features of the building machine, and the linker."""
        features = cpuinfo_features(artifact.metadata.get("features", ""))
        return Requirements("x86_64", features, packages={"llvmlite": ">=0.50", "torch": ">=2.11"})

    def pack(self, artifact: Artifact, signature: Signature, parameters: Mapping[str, torch.Tensor], file: Path) -> Artifact:
        """Run ``@prepare``; see :meth:`Target.pack`."""
        if self.prepack:
            from mlirstack.targets.cpu.loader import OBJECT_FILE, LoadedObject
            from mlirstack.targets.cpu.prepare import prepare_ahead

            prepare_ahead(LoadedObject(artifact.files[OBJECT_FILE]), signature, parameters, file)
        return artifact

    def load(self, artifact: Artifact, signature: Signature, parameters: dict[str, torch.Tensor]) -> Executable:
        """Link the object into this process; :class:`TargetUnavailableError` where this processor lacks what it uses."""
        from mlirstack.targets.cpu.executable import CpuExecutable

        reason = self.available() or missing_features(artifact.metadata.get("features", ""))
        if reason:
            raise TargetUnavailableError(reason, hint="build the bundle on a machine like this one")
        return CpuExecutable(artifact, signature, parameters)


def missing_features(features: str) -> str | None:
    """Why code for ``features`` (``+avx2,-avx512f``) cannot run on this processor, or None."""
    have = set(host_cpu().features.split(","))
    absent = [f[1:] for f in features.split(",") if f.startswith("+") and f not in have]
    return f"the object uses processor features that this machine lacks: {', '.join(absent)}" if absent else None
