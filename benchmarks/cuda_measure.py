"""What `cuda_speed.py` does with one built case on a GPU: load it, check it against float64, time it beside the others."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from cuda_case import Case
from torch import nn
from torch.profiler import ProfilerActivity
from torch.utils import _pytree as pytree

from mlirstack.bundle.store import read_bundle
from mlirstack.compare.device_timing import poison_memory, rotations, time_on_device
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.registry import create_target

PROFILED_CALLS = 10
_MAX_AUTOTUNE = "max-autotune-no-cudagraphs"  # all contenders are replayed as CUDA graphs anyway
COMPILE_MODES: dict[str, tuple[str | None, ...]] = {
    "none": (), "default": (None,), "max-autotune": (_MAX_AUTOTUNE,), "both": (None, _MAX_AUTOTUNE),
}  # fmt: skip

Parameters = dict[str, torch.Tensor]
Inputs = tuple[torch.Tensor, ...]
Built = tuple[Case, nn.Module, Inputs, CompiledFunction]


def measure_case(case: Case, directory: Path, compile_mode: str) -> dict[str, Any]:
    """Accuracy and device time of one case: ours, eager, torch.compile in one mode, two, or none."""
    module, inputs = _on_device(case)
    parameters = _tensors(module)
    data = [
        ({k: v.detach().clone() for k, v in parameters.items()}, tuple(x.clone() for x in inputs))
        for _ in range(rotations(case.bytes))
    ]
    eager = _eager(case, module)
    ours = [_load(directory, p) for p, _ in data]
    expected, precision = _precise(module, inputs)
    poison_memory(case.bytes)
    with torch.no_grad(), case.settings():
        got = ours[0](*inputs)
        torch.cuda.synchronize()
        error, eager_error = (_error(answer, expected) for answer in (got, eager(*data[0])))
        contenders = {
            "ours": [lambda f=f, x=x: f(*x) for f, (_, x) in zip(ours, data, strict=True)],
            "eager": [lambda p=p, x=x: eager(p, x) for p, x in data],
        }
        for mode, compiled in _compiled(eager, compile_mode):
            contenders["compile" if mode is None else "compile_max"] = [
                lambda p=p, x=x, f=compiled: f(p, x) for p, x in data
            ]
        seconds = {name: timing.median_s for name, timing in time_on_device(contenders).items()}
    return {
        "case": case.name, "group": case.group, "dtype": case.dtype, "bytes": case.bytes, "flops": case.flops,
        "error_ours": error, "error_eager": eager_error, "precision": precision, "ok": is_right(error, eager_error),
        "compile_mode": compile_mode,
        "kernels": [kernel["schedule"] for kernel in kernels(read_bundle(directory).artifact)],
        **{f"{name}_s": value for name, value in seconds.items()},
    }  # fmt: skip


def compile_case(case: Case, compile_mode: str) -> None:
    """Let torch.compile compile a case and call it once: Inductor keeps the kernels, and a measurement finds them."""
    module, inputs = _on_device(case)
    eager, parameters = _eager(case, module), _tensors(module)
    with torch.no_grad(), case.settings():
        for _, compiled in _compiled(eager, compile_mode):
            compiled(parameters, inputs)
        torch.cuda.synchronize()


def check_case(built: Built) -> tuple[float, float]:
    """Errors of one call, ours and eager's, against float64."""
    case, module, inputs, ours = built
    with torch.no_grad(), case.settings():
        got, expected = ours(*inputs), _precise(module, inputs)[0]
        return _error(got, expected), _error(module(*inputs), expected)


def profile_case(built: Built) -> Iterator[str]:
    """Lines that say where the device time of a call goes, kernel by kernel, ours and eager's."""
    case, module, inputs, ours = built
    ours.executable.use_graph = False
    for name, function in (("ours", ours), ("eager", module)):
        with torch.no_grad(), case.settings():
            for _ in range(3):
                function(*inputs)
            torch.cuda.synchronize()
            with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as recorded:
                for _ in range(PROFILED_CALLS):
                    function(*inputs)
                torch.cuda.synchronize()
        yield f"\n{case.name}, {name}: microseconds per call, launches per call, kernel"
        for row in sorted(recorded.key_averages(), key=lambda row: -row.self_device_time_total)[:14]:
            each = row.self_device_time_total / PROFILED_CALLS
            yield f"{each:10.1f} {row.count / PROFILED_CALLS:6.1f}  {row.key[:100]}"


def load_built(case: Case, directory: Path) -> Built:
    """The case, its module and inputs on the GPU, and our function."""
    module, inputs = _on_device(case)
    return case, module, inputs, _load(directory, _tensors(module))


def is_right(error: float, eager_error: float) -> bool:
    """Is an answer about as near to float64 as eager's?"""
    return error <= max(4 * eager_error, 1e-6) and not math.isnan(error)


def kernels(artifact: Any) -> list[dict[str, Any]]:
    """The kernel table of an artifact."""
    return list(json.loads(artifact.files["plan.json"])["kernels"])


def _on_device(case: Case) -> tuple[nn.Module, Inputs]:
    module, inputs = case.make()
    return module.cuda().eval(), tuple(x.cuda() for x in inputs)


def _tensors(module: nn.Module) -> Parameters:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _eager(case: Case, module: nn.Module) -> Callable[[Parameters, Inputs], Any]:
    """What ours is compared with: the module, or the library's call that the case names, as a function of parameters."""
    reference = (case.eager() if case.eager else module).cuda().eval()

    def eager(parameters: Parameters, inputs: Inputs) -> Any:
        return torch.func.functional_call(reference, parameters if not case.eager else {}, inputs)

    return eager


def _compiled(eager: Callable[..., Any], compile_mode: str) -> Iterator[tuple[str | None, Callable[..., Any]]]:
    torch._dynamo.reset()  # otherwise the ninth case runs eager: eight compilations are kept of one function
    for mode in COMPILE_MODES[compile_mode]:
        yield mode, torch.compile(eager, mode=mode)


def _load(directory: Path, parameters: Parameters) -> CompiledFunction:
    bundle = read_bundle(directory)
    executable = create_target("cuda").load(bundle.artifact, bundle.signature, parameters)
    return CompiledFunction(executable, bundle.signature, parameters)


def _precise(module: nn.Module, inputs: Inputs) -> tuple[Any, str]:
    """The module's answer in float64, or in float32 where memory does not suffice."""
    for kind in (torch.float64, torch.float32):
        try:
            with torch.no_grad():
                precise = copy.deepcopy(module).to(kind)
                return precise(*(x.to(kind) if x.is_floating_point() else x for x in inputs)), str(kind)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
    raise MemoryError("no reference fits into the device's memory")


def _error(answer: Any, expected: Any) -> float:
    """Largest relative L2 error over the outputs."""
    worst = 0.0
    for got, want in zip(pytree.tree_leaves(answer), pytree.tree_leaves(expected), strict=True):
        difference = torch.linalg.vector_norm(got.double() - want.double())
        worst = max(worst, float(difference / torch.linalg.vector_norm(want.double()).clamp_min(1e-30)))
        if not math.isfinite(float(difference)):
            return math.nan
    return worst
