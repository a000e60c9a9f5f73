"""How long each kernel of a call takes: on a GPU as CUPTI sees it, on a processor by IREE's own programs for that."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlirstack.bundle.load import load
from mlirstack.bundle.manifest import PARAMETERS
from mlirstack.bundle.store import stored_golden
from mlirstack.bundle.torch_arrays import array_of
from mlirstack.deploy.bench import golden_call
from mlirstack.deploy.gpu_time import Kernel, gpu_time
from mlirstack.errors import MissingDependencyError, MlirstackError, UsageError
from mlirstack.frontend.program import ENTRY
from mlirstack.passes.iree.archive import MODULE, PACKED, SCOPE
from mlirstack.pipeline.tool import run_tool

CALLS = 10
TIMEOUT = 120  # seconds

_DEVICE = "local-sync"
_MODES = "queue-events,host-execution,executable-metadata"
_IREE_TYPES = {
    "bool": "i8", "int8": "i8", "uint8": "i8", "int16": "i16", "uint16": "i16", "int32": "i32", "uint32": "i32",
    "int64": "i64", "uint64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip


def profile(path: Path, *, device: str | None = None) -> tuple[Kernel, ...]:
    """The kernels of a call with the golden inputs, slowest first: on a GPU those of any target, on a processor IREE's.

    Raises :class:`UsageError` where what ``device`` names has no profile or takes inputs that IREE's programs cannot be
    given, :class:`MlirstackError` with their message where they fail.
    """
    model = load(path, device=device)
    golden = stored_golden(path, model.manifest)
    if model.device.startswith("cuda"):  # IREE 3.13 has no profile of its own there
        call = golden_call(model.function, model.manifest, golden, model.device)
        call()
        return gpu_time(call).kernels
    if not model.entry.target.startswith("iree-"):
        raise UsageError(f"{model.entry.spec} has no profile of dispatches", hint="--device iree-cpu, or another of IREE's")
    function: Any = model.function
    inputs = golden.inputs(0)
    leaves = [spec.leaf or 0 for spec in model.manifest.signature.arguments if spec.kind == "input"]
    program, reader = _tool("iree-benchmark-module"), _tool("iree-profile")
    with tempfile.TemporaryDirectory(prefix="mlirstack-profile-") as folder:
        directory = Path(folder)
        arguments = [f"--device={_DEVICE}", f"--module={(path / model.entry.files[MODULE]).resolve()}"]
        for scope, file in ((SCOPE, PARAMETERS), (PACKED, model.entry.packed)):
            if file and file in model.manifest.files:
                arguments.append(f"--parameters={scope}={(path / file).resolve()}")
        for number, slot in enumerate(function.executable.slots):
            given = slot.position is not None
            value = inputs[leaves[slot.position]] if given else array_of(function.parameters[slot.name])
            arguments.append(_argument(value, slot.spec.dtype, directory / f"{number}.bin"))
        record = [f"--device_profiling_mode={_MODES}", "--device_profiling_output=profile"]
        _run([program, *arguments, f"--function={ENTRY}", f"--benchmark_min_time={CALLS}x", *record], directory)
        return _dispatches(_run([reader, "dispatch", "--format=jsonl", "profile"], directory))


def _argument(value: object, dtype: str, file: Path) -> str:
    if not isinstance(value, np.ndarray):
        if isinstance(value, float):
            raise UsageError("IREE's programs cannot be given a Python float: there is no profile of this model")
        return f"--input={int(str(value))}"
    if dtype not in _IREE_TYPES:
        raise UsageError(f"IREE's programs cannot be given {dtype}: there is no profile of this model")
    file.write_bytes(np.ascontiguousarray(value).tobytes())
    return f"--input={'x'.join(map(str, (*value.shape, _IREE_TYPES[dtype])))}=@{file.name}"


def _dispatches(lines: str) -> tuple[Kernel, ...]:
    groups = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    found = [
        # The benchmark's own warm-up is not recorded: counts are those of CALLS calls.
        Kernel(group["key"], group["count"] / CALLS, group["total_ns"] * 1e-9 / CALLS)
        for group in groups
        if group.get("type", "").endswith("dispatch_group") and group.get("valid", 0)
    ]
    return tuple(sorted(found, key=lambda dispatch: -dispatch.seconds))


def _run(command: Sequence[str], directory: Path) -> str:
    done = run_tool(command, directory=directory, timeout=TIMEOUT)
    if done.failure:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise MlirstackError(f"{Path(command[0]).name} {done.failure}: {' '.join(lines[:2])[:300]}")
    return done.stdout


def _tool(name: str) -> str:
    spec = importlib.util.find_spec("iree._runtime_libs")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (Path(folder) / name).is_file():
            return str(Path(folder) / name)
    raise MissingDependencyError(f"{name} is not installed", hint="pip install iree-base-runtime")
