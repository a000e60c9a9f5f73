"""Target cuda against eager and torch.compile on one GPU, all contenders of a row in one run.

Kernels are built where the compiler is, and measured where the GPU is; only the built directory travels.  Answers are
compared with eager in float64 over poisoned memory.  A case that hangs or crashes is reported and costs that case.

    python benchmarks/cuda_speed.py build built --group gemm,rows --jobs 2  # no GPU needed
    python benchmarks/cuda_speed.py warm --compile both --jobs 4            # torch.compile's compilations, many at a time
    python benchmarks/cuda_speed.py run built --json rows.json              # on the GPU machine
    python benchmarks/cuda_speed.py run built --group models --compile both --timeout 240 --json models.json
    python benchmarks/cuda_speed.py merge benchmarks/results/h200.json rows.json models.json
    python benchmarks/cuda_speed.py table benchmarks/results/h200.json      # as Markdown
    python benchmarks/cuda_speed.py tune-build candidates --group gemm      # then: mlirstack tune run candidates --table …
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from cuda_case import Case
from cuda_table import line, markdown, merged, read_runs, write_runs

from mlirstack.errors import MlirstackError, WorkerLostError
from mlirstack.supervised import Supervised, serve

CASE_MODULES = (
    "cuda_gemm_cases", "cuda_fma_cases", "cuda_conv_cases", "cuda_stream_cases", "cuda_attention_cases", "cuda_model_cases",
    "cuda_small_cases",
)  # fmt: skip
SMALL = "small"  # a group that is no work for a GPU: it must be asked for
_COMPILE = ("none", "default", "max-autotune", "both")


def cases(groups: str | None, only: str | None) -> Iterator[Case]:
    """All cases of the given groups (comma-separated) whose name contains one of ``only``."""
    for name in CASE_MODULES:
        for case in importlib.import_module(name).CASES:
            if case.group not in groups.split(",") if groups else case.group == SMALL:
                continue
            if only and not any(part in case.name for part in only.split(",")):
                continue
            yield case


# --------------------------------------------------------------------------------------------------------------- workers


def _ask_all(arguments: argparse.Namespace, task: str, names: list[str], report: Callable[[dict[str, Any]], None]) -> bool:
    """Let worker processes do a task for every case, ``--jobs`` at a time, and report each result; was all of it right?"""
    command = [sys.executable, __file__, "worker", "--task", task]
    for name in ("directory", "arch", "compile"):
        command += [f"--{name}", getattr(arguments, name)] if name in arguments else []
    deadline = time.monotonic() + arguments.budget
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // arguments.jobs))}
    workers: SimpleQueue[Supervised] = SimpleQueue()
    for _ in range(arguments.jobs):
        workers.put(Supervised(command, timeout=arguments.timeout, environment=threads))

    def ask(name: str) -> dict[str, Any]:
        if time.monotonic() > deadline:
            return {"case": name, "error": "not run: the time budget was spent"}
        worker = workers.get()
        try:
            answer: dict[str, Any] = worker.ask(name)
            return answer
        except WorkerLostError as error:  # the next case gets a fresh process
            return {"case": name, "error": error.message}
        finally:
            workers.put(worker)

    is_right = True
    try:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for result in pool.map(ask, names):
                is_right = is_right and "error" not in result and result.get("ok", True)
                report(result)
    finally:
        while not workers.empty():
            workers.get().close()
    return is_right


def worker(arguments: argparse.Namespace) -> int:
    """Do a task for the cases that the parent process names."""
    by_name = {case.name: case for group in (None, SMALL) for case in cases(group, None)}

    def answer(name: str, tell: Any) -> dict[str, Any]:
        try:
            return _TASKS[arguments.task](by_name[name], arguments)
        except Exception as error:  # whatever a case does wrong is its result
            if re.search("cuda[ _]error", str(error), re.IGNORECASE):
                raise  # the device may be lost to this process
            return {"case": name, "error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}

    serve(answer)
    return 0


def _build_one(case: Case, arguments: argparse.Namespace) -> dict[str, Any]:
    from cuda_measure import kernels

    from mlirstack.bundle.store import BundleInfo, write_bundle
    from mlirstack.lowering import LowerOptions, build_program, program_of

    started = time.perf_counter()
    program = program_of(*case.make(), name=case.name)
    with case.settings():
        lowering, artifact, _ = build_program(program, LowerOptions(f"cuda:{arguments.arch}", "auto", 1))
    info = BundleInfo(case.name, lowering.route, lowering.route_reason or "", {})
    write_bundle(Path(arguments.directory) / case.name, artifact, program.signature, {}, info)
    names = [str(kernel["schedule"]) for kernel in kernels(artifact)]
    return {"case": case.name, "kernels": names, "seconds": time.perf_counter() - started}


def _warm_one(case: Case, arguments: argparse.Namespace) -> dict[str, Any]:
    from cuda_measure import compile_case

    started = time.perf_counter()
    compile_case(case, arguments.compile)
    return {"case": case.name, "kernels": [], "seconds": time.perf_counter() - started}


def _measure_one(case: Case, arguments: argparse.Namespace) -> dict[str, Any]:
    from cuda_measure import measure_case

    return measure_case(case, Path(arguments.directory) / case.name, arguments.compile)


_TASKS = {"build": _build_one, "warm": _warm_one, "measure": _measure_one}


def _tell(result: dict[str, Any]) -> None:
    what = (
        f"ERROR {result['error']}" if "error" in result else f"{', '.join(result['kernels'])}  [{result['seconds']:.1f} s]"
    )
    print(f"{result['case']}: {what}", flush=True)


# -------------------------------------------------------------------------------------------------------------- commands


def build(arguments: argparse.Namespace) -> int:
    """Compile cases into the directory; parameters are left out, a case makes them again."""
    return 0 if _ask_all(arguments, "build", _names(arguments), _tell) else 1


def tune_build(arguments: argparse.Namespace) -> int:
    """Build the kernels of cases in all ways worth trying, for `mlirstack tune run`."""
    from mlirstack.lowering import program_of
    from mlirstack.tune.build import build_set

    def programs() -> Iterator[Any]:
        for case in cases(arguments.group, arguments.only):
            with case.settings():  # until the next one is asked for
                try:
                    yield program_of(*case.make(), name=case.name)
                except MlirstackError as error:
                    print(f"{case.name}: {error}", flush=True)

    found = build_set(
        programs(), f"cuda:{arguments.arch}", Path(arguments.directory), count=arguments.candidates,
        timeout=arguments.timeout, jobs=arguments.jobs, report=lambda line: print(line, flush=True),
    )  # fmt: skip
    return 0 if found.problems else 1


def warm(arguments: argparse.Namespace) -> int:
    """Let torch.compile compile cases on this GPU, so that `run` finds their kernels in Inductor's cache."""
    return 0 if _ask_all(arguments, "warm", _names(arguments), _tell) else 1


def run(arguments: argparse.Namespace) -> int:
    """Measure the built cases, one after the other."""
    from result_file import write_results

    results: list[dict[str, Any]] = []

    def report(result: dict[str, Any]) -> None:
        results.append(result)
        print(line(result), flush=True)
        if arguments.json:
            write_results(arguments.json, results)

    names = [case.name for case in _built_cases(arguments, arguments.group)]
    return 0 if _ask_all(arguments, "measure", names, report) else 1


def check(arguments: argparse.Namespace) -> int:
    """Call every built case once, for a memory or race checker, and compare with float64."""
    from cuda_measure import check_case, is_right, load_built

    wrong = 0
    for case in _built_cases(arguments, arguments.group or SMALL):
        error, eager_error = check_case(load_built(case, Path(arguments.directory) / case.name))
        right = is_right(error, eager_error)
        wrong += not right
        print(f"{case.name}: error {error:.1e} (eager {eager_error:.1e}){'' if right else '  WRONG'}", flush=True)
    return 1 if wrong else 0


def profile(arguments: argparse.Namespace) -> int:
    """Device time of every kernel of the built cases, ours and eager's."""
    from cuda_measure import load_built, profile_case

    for case in _built_cases(arguments, arguments.group):
        for text in profile_case(load_built(case, Path(arguments.directory) / case.name)):
            print(text, flush=True)
    return 0


def table(arguments: argparse.Namespace) -> int:
    """Print results as Markdown, with geometric means of the ratios."""
    print(markdown(read_runs(arguments.results)))
    return 0


def merge(arguments: argparse.Namespace) -> int:
    """Put results of further runs into a collection; of every case the latest result stays."""
    collection = [arguments.results] if arguments.results.exists() else []
    write_runs(arguments.results, merged(run for file in [*collection, *arguments.further] for run in read_runs(file)))
    return 0


def _built_cases(arguments: argparse.Namespace, groups: str | None) -> list[Case]:
    return [case for case in cases(groups, arguments.only) if (Path(arguments.directory) / case.name).is_dir()]


def _names(arguments: argparse.Namespace) -> list[str]:
    return [case.name for case in cases(arguments.group, arguments.only)]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function in (build, tune_build, warm, run, check, profile, worker, table, merge):
        command = commands.add_parser(function.__name__.replace("_", "-"), help=(function.__doc__ or "").splitlines()[0])
        command.set_defaults(function=function, jobs=1, budget=math.inf)
        if function in (table, merge):
            command.add_argument("results", type=Path)
            continue
        if function is worker:
            command.add_argument("--directory")
        else:
            if function is not warm:
                command.add_argument("directory")
            command.add_argument("--group", help="comma-separated groups")
            command.add_argument("--only", help="comma-separated parts of names")
            command.add_argument("--timeout", type=float, default=120.0, help="seconds per case (default 120)")
        if function in (build, tune_build, worker):
            command.add_argument("--arch", default="sm_90a")
        if function in (warm, run, worker):
            command.add_argument("--compile", default="default", choices=_COMPILE)
        if function in (build, tune_build, warm):
            command.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    commands.choices["tune-build"].add_argument("--candidates", type=int, default=10, help="of each kernel (default 10)")
    commands.choices["run"].add_argument("--json", type=Path)
    commands.choices["run"].add_argument("--budget", type=float, default=math.inf, help="seconds for all cases")
    commands.choices["worker"].add_argument("--task", required=True, choices=list(_TASKS))
    commands.choices["merge"].add_argument("further", type=Path, nargs="+")
    arguments = parser.parse_args()
    return int(arguments.function(arguments))


if __name__ == "__main__":
    sys.exit(main())
