"""The Triton kernels that Inductor writes for an NVIDIA GPU, and their PTX, on a machine without one.

torch must be told that there is such a device, so this is done in a process of its own (:mod:`~.triton_child`); what comes
in is a model reference, what comes out is text.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass

from mlirstack.errors import WorkerLostError
from mlirstack.supervised import Supervised

ARCH = "sm_90"
_TIMEOUT = 300.0


@dataclass(frozen=True)
class TritonKernel:
    """A kernel: its Triton source, and its PTX (empty, with ``why_no_ptx``, where Triton did not compile it)."""

    name: str
    source: str
    ptx: str
    why_no_ptx: str = ""


@dataclass(frozen=True)
class TritonCode:
    """``kernels`` for ``arch``, or the reason why there are none."""

    arch: str
    kernels: tuple[TritonKernel, ...]
    why_not: str = ""


def generate(reference: str, *, seed: int = 0, dtype: str | None = None) -> TritonCode:
    """The kernels of a model's inference graph; the model is captured whole by torch.export."""
    if importlib.util.find_spec("triton") is None:
        return TritonCode(ARCH, (), "triton is not installed: pip install triton (Linux; no GPU is needed)")
    command = [sys.executable, "-m", "mlirstack.dynamo.explain.triton_child"]
    with Supervised(command, timeout=_TIMEOUT) as child:
        try:
            kernels = child.ask({"reference": reference, "seed": seed, "dtype": dtype})
        except WorkerLostError as lost:
            reason = lost.message.partition(". ")[0]
            return TritonCode(ARCH, (), f"no Triton code, {lost.doing} failed: {reason[:200]}")
    return TritonCode(ARCH, tuple(TritonKernel(**kernel) for kernel in kernels))
