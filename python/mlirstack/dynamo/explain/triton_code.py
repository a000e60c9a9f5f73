"""The Triton kernels that Inductor writes for an NVIDIA GPU, and their PTX, on a machine without one.

torch must be told that there is such a device, so this is done in a process of its own (:mod:`~.triton_child`); what comes
in is a model reference, what comes out is text.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlirstack.dynamo.explain.graphs import read_graph
from mlirstack.dynamo.explain.kernels import Kernel, read_module
from mlirstack.dynamo.explain.optimizations import Fusion, fusion_of
from mlirstack.errors import WorkerLostError
from mlirstack.supervised import Supervised

ARCH = "sm_90"
_TIMEOUT = 300.0


@dataclass(frozen=True)
class TritonKernel:
    """A kernel: the ops in it, the bytes that a call moves (None where a size is not known), its Triton source, and its PTX
    (empty, with ``why_no_ptx``, where Triton did not compile it)."""

    name: str
    fused_ops: tuple[str, ...]
    bytes: int | None
    source: str
    ptx: str
    why_no_ptx: str = ""


@dataclass(frozen=True)
class TritonCode:
    """``kernels`` for ``arch``, and what fusion did to all kernels, those of libraries too; or why there are none."""

    arch: str
    kernels: tuple[TritonKernel, ...]
    fusion: Fusion | None = None
    why_not: str = ""


def generate(reference: str, *, seed: int = 0, dtype: str | None = None) -> TritonCode:
    """The kernels of a model's inference graph; the model is captured whole by torch.export."""
    if importlib.util.find_spec("triton") is None:
        return TritonCode(ARCH, (), why_not="triton is not installed: pip install triton (Linux; no GPU is needed)")
    command = [sys.executable, "-m", "mlirstack.dynamo.explain.triton_child"]
    with Supervised(command, timeout=_TIMEOUT) as child:
        try:
            answer = child.ask({"reference": reference, "seed": seed, "dtype": dtype})
        except WorkerLostError as lost:
            reason = lost.message.partition(". ")[0]
            return TritonCode(ARCH, (), why_not=f"no Triton code, {lost.doing} failed: {reason[:200]}")
    return code_of(answer)


def code_of(answer: Mapping[str, Any]) -> TritonCode:
    """What :mod:`~.triton_child` answers, read: the generated module, the graph it was made of, each kernel's texts."""
    module = read_module(answer["code"], "", read_graph(answer["graph"], "post-grad", ""), {})
    calls = {call.name: call for call in module.kernels}
    kernels = tuple(_kernel(calls.get(given["name"]), given) for given in answer["kernels"])
    return TritonCode(ARCH, kernels, fusion_of([module]))


def _kernel(call: Kernel | None, given: Mapping[str, str]) -> TritonKernel:
    """A kernel by its call; one that is not called by its name has no ops here."""
    return TritonKernel(fused_ops=call.fused_ops if call else (), bytes=call.bytes if call else None, **given)
