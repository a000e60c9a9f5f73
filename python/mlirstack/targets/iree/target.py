"""The target ``iree-cpu``: artifacts are vmfb files that IREE's compiler made and IREE's runtime loads.

Building runs the stage table of :mod:`mlirstack.pipelines.iree`; loading needs neither torch-mlir nor IREE's compiler.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlirstack.errors import BundleError, TargetUnavailableError, UsageError
from mlirstack.frontend.program import Program, Signature
from mlirstack.targets.base import Artifact, Executable, Target
from mlirstack.targets.registry import TargetOptions

if TYPE_CHECKING:
    import torch

    from mlirstack.pipeline.runner import Observer, Payload
    from mlirstack.pipeline.stage import Pipeline

MODULE = "module.vmfb"
RUNTIME = "iree-base-runtime"
COMPILER = "iree-base-compiler"


class IreeCpuTarget(Target):
    """IREE on the processor of this machine, or another x86-64 one: ``iree-cpu:x86-64-v3``, ``iree-cpu:generic``.

    The part after the colon is LLVM's name of a processor; without it, code is made for the machine that builds.
    """

    name = "iree-cpu"

    def __init__(self, options: TargetOptions) -> None:
        if options.threads < 1:
            raise UsageError(f"{options.threads} threads", hint="at least one thread is needed")
        self.cpu = options.arch or "host"
        self.threads = options.threads

    def available(self) -> str | None:
        """None where IREE's runtime is installed."""
        try:
            found = importlib.util.find_spec("iree.runtime")
        except ModuleNotFoundError:
            found = None
        return None if found else f"IREE's runtime is not installed (pip install {RUNTIME})"

    def pipeline(self, route: str, level: str) -> Pipeline:
        """Front end, IREE's phases, vmfb."""
        from mlirstack.pipelines.iree import iree_cpu_pipeline

        return iree_cpu_pipeline(route, level, self.cpu)

    def build(self, program: Program, payload: Payload, observers: Sequence[Observer] = ()) -> Artifact:
        """Wrap the vmfb; :class:`UsageError` where the table was not run to its end."""
        if not isinstance(payload, bytes):
            raise UsageError("the stages were not run to the end: there is no vmfb", hint="leave out --to")
        metadata = {
            "cpu": self.cpu,
            "compiler": f"{COMPILER} {importlib.metadata.version(COMPILER)}",
            "sha256": hashlib.sha256(payload).hexdigest(),
        }
        return Artifact(self.name, {MODULE: payload}, metadata)

    def load(self, artifact: Artifact, signature: Signature, parameters: dict[str, torch.Tensor]) -> Executable:
        """Load the vmfb and bind ``parameters``, which must stay alive and unchanged: most are read in place.

        Raises :class:`BundleError` for a damaged file, :class:`TargetUnavailableError` where it cannot run.
        """
        reason = self.available()
        if reason:
            raise TargetUnavailableError(reason)
        vmfb = artifact.files.get(MODULE)
        if vmfb is None:
            raise BundleError(f"the artifact holds no {MODULE}")
        if hashlib.sha256(vmfb).hexdigest() != artifact.metadata.get("sha256"):
            # A damaged file can crash the process or, worse, compute something else.
            raise BundleError(f"{MODULE} is damaged: its checksum differs", hint="build it again")
        from mlirstack.targets.iree.runtime import IreeExecutable

        return IreeExecutable(vmfb, signature, parameters, threads=self.threads)
