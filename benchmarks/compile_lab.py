"""The compile lab: TinyMLP eager against compiled in every way there is, and the five gotchas, on one device.

    python benchmarks/compile_lab.py ways --json benchmarks/results/compile-lab-cpu.json
    python benchmarks/compile_lab.py gotchas --json benchmarks/results/compile-gotchas-cpu.json

    python benchmarks/compile_lab.py table benchmarks/results/compile-*.json      # as Markdown

With ``--device cuda`` on a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "compile_lab"))

from measure import medians, seconds_of
from result_file import write_results

import mlirstack as ms
from mlirstack import zoo
from mlirstack.compare.accuracy import moved
from mlirstack.compare.timing import Effort
from mlirstack.dynamo.backend import mlirstack
from mlirstack.errors import MlirstackError

GOTCHAS = (
    "gotcha_1_warm_up", "gotcha_2_graph_breaks", "gotcha_3_dynamic_shapes", "gotcha_4_synchronise", "gotcha_5_small_models",
)  # fmt: skip
MODES = ("default", "reduce-overhead", "max-autotune")
Function = Callable[..., Any]


def ways(device: str) -> list[dict[str, Any]]:
    """zoo:tiny_mlp in each way: seconds until the first result and per call, speed against eager, relative L2 error."""
    example = zoo.get("tiny_mlp")
    model = example.module.to(device).eval()
    (x,) = moved(example.inputs, device)
    functions: dict[str, Function] = {"eager": model}
    first_s: dict[str, float] = {}
    failed: list[dict[str, Any]] = []
    torch.compile(torch.relu)(x)  # Inductor's own start-up, once a process and for some of it once a machine
    for name, make in _makers(device, model, example.inputs).items():
        try:
            first_s[name] = seconds_of(lambda name=name, make=make: functions.setdefault(name, make())(x))
        except (RuntimeError, MlirstackError) as error:  # RuntimeError: the base of Dynamo's and Inductor's exceptions
            functions.pop(name, None)
            reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:160]}"
            failed.append({"way": name, "error": reason})
    with torch.no_grad():
        right = zoo.get("tiny_mlp").module.double()(example.inputs[0].double())
        errors = {name: float((f(x).double().cpu() - right).norm() / right.norm()) for name, f in functions.items()}
        times = medians({name: lambda f=f: f(x) for name, f in functions.items()}, Effort(seconds=1.0, max_samples=100))
    measured = [
        {
            "way": name,
            "first_result_s": first_s.get(name),
            "median_s": seconds,
            "speed_against_eager": times["eager"] / seconds,
            "rel_l2": errors[name],
        }
        for name, seconds in times.items()
    ]
    return measured + failed


def _makers(device: str, model: torch.nn.Module, inputs: tuple[Any, ...]) -> dict[str, Callable[[], Function]]:
    """Ways to make a function of ``model`` on ``device``; ``inputs`` are on the host."""

    def no_grad(function: Function) -> Function:
        def call(*inputs: Any) -> Any:
            with torch.no_grad():
                return function(*inputs)

        return call

    makers: dict[str, Callable[[], Function]] = {
        f"torch.compile, {mode}": lambda mode=mode: no_grad(torch.compile(model, mode=mode)) for mode in MODES
    }
    makers["torch.compile, backend mlirstack"] = lambda: no_grad(
        torch.compile(model, backend=mlirstack, options={"fallback": "error"})
    )
    exported = zoo.get("tiny_mlp").module
    makers[f"mlirstack, target {device}"] = lambda: ms.compile(exported, inputs, target=device)
    iree = "iree-cpu" if device == "cpu" else "iree-cuda:sm_{}{}".format(*torch.cuda.get_device_capability())
    for name, kernels in ((f"mlirstack, target iree-{device}", "own"), (f"IREE alone, on {device}", "iree")):
        makers[name] = lambda kernels=kernels: ms.compile(exported, inputs, target=iree, settings={"kernels": kernels})
    return makers


def gotchas(device: str) -> list[dict[str, Any]]:
    """Each script of the lab, one after the other."""
    return [{"gotcha": name, **import_module(name).run(device)} for name in GOTCHAS]


def table(files: list[Path]) -> str:
    """The results of some runs as Markdown."""
    lines: list[str] = []
    for file in files:
        stored = json.loads(file.read_text())
        rows = stored["results"]
        lines += ["", f"{stored['machine']}, torch {stored['versions']['torch']}, `{stored['command']}`:", ""]
        if "way" in rows[0]:
            lines += ["| way | first result | per call | against eager | rel. L2 error |", "| --- | --- | --- | --- | --- |"]
            lines += [_way(row) for row in rows]
        else:
            lines += ["| gotcha | measured |", "| --- | --- |"]
            for row in rows:
                name = row.pop("gotcha").split("_", 2)[2].replace("_", " ")
                lines.append(f"| {name} | {_flat(row)} |")
    return "\n".join(lines).strip()


def _way(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"| {row['way']} | not possible: {row['error']} | | | |"
    speed, error = f"{row['speed_against_eager']:.2f}x", f"{row['rel_l2']:.1e}"
    return f"| {row['way']} | {_time(row['first_result_s'])} | {_time(row['median_s'])} | {speed} | {error} |"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def _flat(value: Any, name: str = "") -> str:
    """Nested results in one line; names that end in _s are seconds."""
    if isinstance(value, dict):
        return "; ".join(f"{key.removesuffix('_s').replace('_', ' ')}: {_flat(one, key)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(_flat(one, name) for one in value)
    if name.endswith("_s") or name == "seconds":
        return _time(value)
    return f"{value:.2f}x" if name == "speed" else str(value)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ways", "gotchas", "table"))
    parser.add_argument("results", type=Path, nargs="*", help="result files for the table")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "table":
        print(table(arguments.results))
        return
    warnings.filterwarnings("ignore")
    torch.set_num_threads(arguments.threads)
    torch._inductor.config.force_disable_caches = True
    rows = ways(arguments.device) if arguments.what == "ways" else gotchas(arguments.device)
    print(json.dumps(rows, indent=1))
    if arguments.json:
        write_results(arguments.json, rows)


if __name__ == "__main__":
    main()
