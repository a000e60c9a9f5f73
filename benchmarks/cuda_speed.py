"""Target cuda against eager and torch.compile on one GPU, all contenders of a row in one run.

Kernels are built where the compiler is, and measured where the GPU is; only the built directory travels.  Answers are
compared with eager in float64 over poisoned memory.  A row that hangs or crashes is reported and costs that row.

    python benchmarks/cuda_speed.py build built --group gemm,rows          # no GPU needed
    python benchmarks/cuda_speed.py run built --json results.json           # on the GPU machine
    python benchmarks/cuda_speed.py run built --group models --compile both --timeout 240     # and max-autotune
    python benchmarks/cuda_speed.py table results.json                      # as Markdown
    python benchmarks/cuda_speed.py tune-build candidates --group gemm      # then: mlirstack tune run candidates --table …
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from cuda_case import Case

CASE_MODULES = (
    "cuda_gemm_cases", "cuda_fma_cases", "cuda_conv_cases", "cuda_stream_cases", "cuda_attention_cases", "cuda_model_cases",
    "cuda_small_cases",
)  # fmt: skip
PROFILED_CALLS = 10
_MAX_AUTOTUNE = "max-autotune-no-cudagraphs"  # all contenders are replayed as CUDA graphs anyway
_OTHERS = ("eager", "compile", "compile_max")  # contenders of ours; the last two are torch.compile's modes
_COMPILE_MODES: dict[str, tuple[str | None, ...]] = {
    "none": (), "default": (None,), "max-autotune": (_MAX_AUTOTUNE,), "both": (None, _MAX_AUTOTUNE),
}  # fmt: skip


def cases(groups: str | None, only: str | None) -> Iterator[Case]:
    """All cases of the given groups (comma-separated) whose name contains one of ``only``."""
    for name in CASE_MODULES:
        if not (Path(__file__).parent / f"{name}.py").is_file():
            continue
        for case in importlib.import_module(name).CASES:
            if case.group not in groups.split(",") if groups else case.group == "small":
                continue  # small cases are no work for a GPU: they must be asked for
            if only and not any(part in case.name for part in only.split(",")):
                continue
            yield case


# ----------------------------------------------------------------------------------------------------------------- build


def build(arguments: argparse.Namespace) -> int:
    """Compile all cases into ``directory``; parameters are left out, the case makes them again."""
    from mlirstack.bundle.store import BundleInfo, write_bundle
    from mlirstack.errors import MlirstackError
    from mlirstack.lowering import LowerOptions, build_program, program_of

    failed = 0
    for case in cases(arguments.group, arguments.only):
        started = time.perf_counter()
        try:
            program = program_of(*case.make(), name=case.name)
            with case.settings():
                lowering, artifact, _ = build_program(program, LowerOptions(f"cuda:{arguments.arch}", "auto", 1))
        except MlirstackError as error:
            failed += 1
            print(f"{case.name}: {error}", flush=True)
            continue
        info = BundleInfo(case.name, lowering.route, lowering.route_reason or "", {})
        write_bundle(Path(arguments.directory) / case.name, artifact, program.signature, {}, info)
        kernels = ", ".join(f"{k['schedule']}" for k in _kernels(artifact))
        print(f"{case.name}: {kernels}  [{time.perf_counter() - started:.1f} s]", flush=True)
    return 1 if failed else 0


def _kernels(artifact: Any) -> list[dict[str, Any]]:
    return list(json.loads(artifact.files["plan.json"])["kernels"])


# ------------------------------------------------------------------------------------------------------------------ tune


def tune_build(arguments: argparse.Namespace) -> int:
    """Build the kernels of cases in all ways worth trying, for `mlirstack tune run`."""
    from mlirstack.lowering import program_of
    from mlirstack.tune.build import build_set

    def programs() -> Iterator[Any]:
        for case in cases(arguments.group, arguments.only):
            with case.settings():  # until the next one is asked for
                yield program_of(*case.make(), name=case.name)

    found = build_set(
        programs(), f"cuda:{arguments.arch}", Path(arguments.directory), count=arguments.candidates,
        report=lambda line: print(line, flush=True),
    )  # fmt: skip
    return 0 if found.problems else 1


# ------------------------------------------------------------------------------------------------------------------- run


def run(arguments: argparse.Namespace) -> int:
    """Measure all built cases in a worker process, which is replaced when a case hangs or kills it."""
    from mlirstack.errors import WorkerLostError
    from mlirstack.supervised import Supervised

    wanted = [c.name for c in cases(arguments.group, arguments.only) if (Path(arguments.directory) / c.name).is_dir()]
    results: list[dict[str, Any]] = []
    deadline = time.monotonic() + arguments.budget
    command = [sys.executable, __file__, "worker", arguments.directory, "--compile", arguments.compile]
    with Supervised(command, timeout=arguments.timeout) as process:
        for name in wanted:
            if time.monotonic() > deadline:
                results.append({"case": name, "error": "not run: the time budget was spent"})
                continue
            try:
                result = process.ask(name)
            except WorkerLostError as error:
                result = {"case": name, "error": error.message}
            results.append(result)
            print(_line(result), flush=True)
            if arguments.json:
                Path(arguments.json).write_text(json.dumps(results, indent=1))
    return 0 if all("error" not in r and r["ok"] for r in results) else 1


def worker(arguments: argparse.Namespace) -> int:
    """Measure the cases that the parent process names."""
    from mlirstack.supervised import serve

    by_name = {case.name: case for case in cases(None, None)}

    def answer(name: str, tell: Any) -> dict[str, Any]:
        try:
            return measure_case(by_name[name], Path(arguments.directory) / name, arguments.compile)
        except Exception as error:  # whatever a case does wrong is its result
            if "cuda" in str(error).lower():
                raise  # the device may be lost to this process
            return {"case": name, "error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}

    serve(answer)
    return 0


def measure_case(case: Case, directory: Path, compile_mode: str) -> dict[str, Any]:
    """Accuracy and device time of one case: ours, eager, torch.compile in one mode, two, or none."""
    import torch

    from mlirstack.bundle.store import read_bundle
    from mlirstack.compare.device_timing import poison_memory, rotations, time_on_device

    module, inputs = case.make()
    module, inputs = module.cuda().eval(), tuple(x.cuda() for x in inputs)
    parameters = _tensors(module)
    data = [
        ({k: v.detach().clone() for k, v in parameters.items()}, tuple(x.clone() for x in inputs))
        for _ in range(rotations(case.bytes))
    ]
    reference_module = (case.eager() if case.eager else module).cuda().eval()

    def eager(parameters: dict[str, Any], inputs: tuple[Any, ...]) -> Any:
        return torch.func.functional_call(reference_module, parameters if not case.eager else {}, inputs)

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
        torch._dynamo.reset()  # otherwise the ninth case runs eager: eight compilations are kept of one function
        for mode in _COMPILE_MODES[compile_mode]:
            compiled = torch.compile(eager, mode=mode)
            contenders["compile" if mode is None else "compile_max"] = [
                lambda p=p, x=x, f=compiled: f(p, x) for p, x in data
            ]
        seconds = {name: timing.median_s for name, timing in time_on_device(contenders).items()}
    return {
        "case": case.name, "group": case.group, "dtype": case.dtype, "bytes": case.bytes, "flops": case.flops,
        "error_ours": error, "error_eager": eager_error, "precision": precision,
        "ok": error <= max(4 * eager_error, 1e-6) and not math.isnan(error),
        "compile_mode": compile_mode,
        "kernels": [kernel["schedule"] for kernel in _kernels(read_bundle(directory).artifact)],
        **{f"{name}_s": value for name, value in seconds.items()},
    }  # fmt: skip


def _load(directory: Path, parameters: dict[str, Any]) -> Any:
    from mlirstack.bundle.store import read_bundle
    from mlirstack.targets.callable import CompiledFunction
    from mlirstack.targets.registry import create_target

    bundle = read_bundle(directory)
    executable = create_target("cuda").load(bundle.artifact, bundle.signature, parameters)
    return CompiledFunction(executable, bundle.signature, parameters)


def _precise(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, str]:
    """The module's answer in float64, or in float32 where memory does not suffice."""
    import copy

    import torch

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
    import torch
    from torch.utils import _pytree as pytree

    worst = 0.0
    for got, want in zip(pytree.tree_leaves(answer), pytree.tree_leaves(expected), strict=True):
        difference = torch.linalg.vector_norm(got.double() - want.double())
        worst = max(worst, float(difference / torch.linalg.vector_norm(want.double()).clamp_min(1e-30)))
        if not math.isfinite(float(difference)):
            return math.nan
    return worst


def _tensors(module: Any) -> dict[str, Any]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _built(directory: Path, groups: str | None, only: str | None) -> Iterator[tuple[Case, Any, tuple[Any, ...], Any]]:
    """Each case that has been built: the case, its module and inputs on the GPU, and our function."""
    for case in cases(groups, only):
        if (directory / case.name).is_dir():
            module, inputs = case.make()
            module, inputs = module.cuda().eval(), tuple(x.cuda() for x in inputs)
            yield case, module, inputs, _load(directory / case.name, _tensors(module))


# ----------------------------------------------------------------------------------------------------------------- check


def check(arguments: argparse.Namespace) -> int:
    """Call every built case once, for a memory or race checker, and compare with float64."""
    import torch

    wrong = 0
    for case, module, inputs, ours in _built(Path(arguments.directory), arguments.group or "small", arguments.only):
        with torch.no_grad(), case.settings():
            got, expected = ours(*inputs), _precise(module, inputs)[0]
            error, eager_error = _error(got, expected), _error(module(*inputs), expected)
        is_right = error <= max(4 * eager_error, 1e-6)
        wrong += not is_right
        print(f"{case.name}: error {error:.1e} (eager {eager_error:.1e}){'' if is_right else '  WRONG'}", flush=True)
    return 1 if wrong else 0


# --------------------------------------------------------------------------------------------------------------- profile


def profile(arguments: argparse.Namespace) -> int:
    """Device time of every kernel of the built cases, ours and eager's."""
    import torch
    from torch.profiler import ProfilerActivity

    for case, module, inputs, ours in _built(Path(arguments.directory), arguments.group, arguments.only):
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
            print(f"\n{case.name}, {name}: microseconds per call, launches per call, kernel")
            for row in sorted(recorded.key_averages(), key=lambda row: -row.self_device_time_total)[:14]:
                each = row.self_device_time_total / PROFILED_CALLS
                print(f"{each:10.1f} {row.count / PROFILED_CALLS:6.1f}  {row.key[:100]}")
    return 0


# ----------------------------------------------------------------------------------------------------------------- table


def _line(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"{result['case']}: ERROR {result['error']}"
    ours = result["ours_s"]
    rate = (
        f"{result['flops'] / ours / 1e12:.0f} TFLOP/s"
        if result["flops"] > 200 * result["bytes"]
        else (f"{result['bytes'] / ours / 1e12:.2f} TB/s")
    )
    ratios = "  ".join(f"{name} {result[f'{name}_s'] / ours:.2f}x" for name in _OTHERS if f"{name}_s" in result)
    wrong = "" if result["ok"] else "  WRONG"
    return f"{result['case']}: {ours * 1e6:.1f} us  {rate}  {ratios}  error {result['error_ours']:.1e} (eager {result['error_eager']:.1e}){wrong}  {'+'.join(result['kernels'])}"  # noqa: E501


def _print_mean(name: str, ratios: list[float]) -> None:
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"\nGeometric mean against {name}: {mean:.2f}, least {min(ratios):.2f} ({len(ratios)} cases)")


def table(arguments: argparse.Namespace) -> int:
    """Results as Markdown, one table per group, with geometric means of the ratios."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in json.loads(Path(arguments.results).read_text()):
        groups.setdefault(result.get("group", "failed"), []).append(result)
    for group, rows in groups.items():
        print(f"\n### {group}\n")
        print("| case | µs | against eager | against torch.compile | against max-autotune | error (eager's) |")
        print("| --- | --- | --- | --- | --- | --- |")
        for row in rows:
            if "error" in row:
                print(f"| {row['case']} | - | - | - | - | {row['error'][:80]} |")
                continue
            ratios = [f"{row[f'{n}_s'] / row['ours_s']:.2f}" if f"{n}_s" in row else "-" for n in _OTHERS]
            error = f"{row['error_ours']:.1e} ({row['error_eager']:.1e})" + ("" if row["ok"] else " wrong")
            print(f"| {row['case']} | {row['ours_s'] * 1e6:.1f} | {' | '.join(ratios)} | {error} |")
        measured = [row for row in rows if "error" not in row]
        for name in _OTHERS:
            _print_mean(name, [row[f"{name}_s"] / row["ours_s"] for row in measured if f"{name}_s" in row])
        both = [row for row in measured if "compile_s" in row and "compile_max_s" in row]
        _print_mean(
            "torch.compile's better mode", [min(row["compile_s"], row["compile_max_s"]) / row["ours_s"] for row in both]
        )
    return 0


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function in (build, run, worker, check, profile, tune_build):
        command = commands.add_parser(function.__name__.replace("_", "-"), help=(function.__doc__ or "").splitlines()[0])
        command.add_argument("directory")
        command.add_argument("--group", help="comma-separated groups")
        command.add_argument("--only", help="comma-separated parts of names")
        command.set_defaults(function=function)
        if function in (build, tune_build):
            command.add_argument("--arch", default="sm_90a")
            command.add_argument("--candidates", type=int, default=10, help="of each kernel (tune-build)")
        else:
            command.add_argument("--compile", default="default", choices=list(_COMPILE_MODES))
        if function is run:
            command.add_argument("--json")
            command.add_argument("--timeout", type=float, default=60.0, help="seconds per case")
            command.add_argument("--budget", type=float, default=math.inf, help="seconds for all cases")
    command = commands.add_parser("table", help="print results as Markdown")
    command.add_argument("results")
    command.set_defaults(function=table)
    arguments = parser.parse_args()
    return int(arguments.function(arguments))


if __name__ == "__main__":
    sys.exit(main())
