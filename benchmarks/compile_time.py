"""Compile time and memory of target cpu against Inductor's, both cold and in turns, in one run.

Each compilation starts from the eager module and ends with a callable that has run once: export, every stage, loading and
the first call on our side; Dynamo, code generation, the C++ compiler and the first call on Inductor's, with its caches off.
Each has a process to itself, which has paid for imports and start-up with a small model before the clock starts.

    python benchmarks/compile_time.py --model resnet18_224,bert_base --json benchmarks/results/compile-models.json
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from compile_models import CompileCase, compile_case
from result_file import write_results

from mlirstack import api
from mlirstack.compare.inductor import compile_inductor
from mlirstack.compare.timing import torch_threads

GOAL = 1 / 3  # of Inductor's time
MEMORY_GOAL = 2.0  # times the bytes of the parameters


@dataclass(frozen=True)
class Cost:
    """Of one compilation: wall-clock seconds; processor seconds, those of other processes it started included; how far the
    resident memory of the process rose above what it was with the model loaded, in bytes."""

    wall_s: float
    processor_s: float
    memory_bytes: int


def compile_for_cpu(case: CompileCase) -> None:
    """Until target cpu has answered once."""
    compiled = api.compile(case.module, case.inputs, dynamic_shapes=case.dynamic_shapes, target="cpu")
    with torch.no_grad():
        compiled(*case.inputs)


def compile_with_inductor(case: CompileCase) -> None:
    """Until Inductor has answered once."""
    compile_inductor(case.module, case.inputs, dynamic=case.dynamic_shapes is not None)


COMPILERS: dict[str, Callable[[CompileCase], None]] = {"cpu": compile_for_cpu, "inductor": compile_with_inductor}


def cost(compiler: str, model: str) -> Cost:
    """Compile ``model`` in this process, after ``tiny_mlp_small``."""
    warnings.filterwarnings("ignore")
    with torch_threads(1):
        COMPILERS[compiler](compile_case("tiny_mlp_small"))
        case = compile_case(model)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before, processor, started = status_kib("VmRSS"), processor_seconds(), time.perf_counter()
        COMPILERS[compiler](case)
        wall = time.perf_counter() - started
        return Cost(wall, processor_seconds() - processor, (status_kib("VmHWM") - before) * 1024)


def status_kib(field: str) -> int:
    """A field of /proc/self/status that is given in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def processor_seconds() -> float:
    """User and system time of this process and of all that descend from it, those that ended included."""
    parents, ticks = {}, {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        process = int(entry.parent.name)
        # utime, stime, and both of children that were waited for: fields 14 to 17 of proc(5), of which two are cut off.
        parents[process], ticks[process] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks[process] for process in family) / os.sysconf("SC_CLK_TCK")


def in_a_new_process(compiler: str, model: str) -> Cost:
    """:func:`cost` in a process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(cost, compiler, model).result()


def measure(model: str, repeat: int) -> dict[str, Any]:
    """Compile ``repeat`` times with each compiler, in turns; print a line per compiler and the ratios."""
    costs: dict[str, list[Cost]] = {name: [] for name in COMPILERS}
    for _ in range(repeat):
        for name in COMPILERS:
            costs[name].append(in_a_new_process(name, model))
    wall = {name: statistics.median(c.wall_s for c in found) for name, found in costs.items()}
    processor = {name: statistics.median(c.processor_s for c in found) for name, found in costs.items()}
    parameters = compile_case(model).parameter_bytes
    memory = max(c.memory_bytes for c in costs["cpu"]) / parameters
    for name, found in costs.items():
        every = ", ".join(f"{c.wall_s:.2f}" for c in found)
        print(f"{model}: {name:9} wall {wall[name]:6.2f} s ({every}), processor {processor[name]:6.2f} s", flush=True)
    ratios = {"wall": wall["cpu"] / wall["inductor"], "processor": processor["cpu"] / processor["inductor"]}
    print(
        f"{model}: cpu takes {ratios['wall']:.2f} of Inductor's cold time ({ratios['processor']:.2f} of its processor time;"
        f" goal {GOAL:.2f}) and {memory:.2f} times the parameters' {parameters / 2**20:.0f} MiB (goal {MEMORY_GOAL:.1f})",
        flush=True,
    )
    return {
        "model": model,
        "costs": {name: [asdict(c) for c in found] for name, found in costs.items()},
        "ratio": ratios,
        "parameter_bytes": parameters,
        "memory_ratio": memory,
    }


def main() -> None:
    """Measure every model; exit status 0 whatever the ratios are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="resnet18_64", help="resnet18_224, bert_base, names of the zoo; comma-separated")
    parser.add_argument("--repeat", type=int, default=3, help="compilations of each")
    parser.add_argument("--json", type=Path, help="write the result there")
    options = parser.parse_args()
    results = [measure(model, options.repeat) for model in options.model.split(",")]
    if options.json:
        write_results(options.json, results)


if __name__ == "__main__":
    main()
