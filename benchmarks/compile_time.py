"""Compile time of target cpu against Inductor's, both cold and in turns, in one run.

Each compilation starts from the eager module and ends with a callable that has run once: export, every stage, loading and
the first call on our side; Dynamo, code generation, the C++ compiler and the first call on Inductor's, with its caches off.
Imports and start-up are paid before the clock starts, for both.

    python benchmarks/compile_time.py --model resnet18_64 --repeat 3
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
import warnings
from pathlib import Path

import torch

from mlirstack import api, zoo
from mlirstack.compare.inductor import compile_inductor
from mlirstack.compare.timing import torch_threads


def seconds_on_cpu(model: zoo.ZooModel) -> float:
    """Seconds until target cpu has answered once."""
    module, inputs = copy.deepcopy((model.module, model.inputs))
    started = time.perf_counter()
    compiled = api.compile(module, inputs, dynamic_shapes=model.dynamic_shapes, target="cpu")
    with torch.no_grad():
        compiled(*inputs)
    return time.perf_counter() - started


def seconds_of_inductor(model: zoo.ZooModel) -> float:
    """Seconds until Inductor has answered once."""
    module, inputs = copy.deepcopy((model.module, model.inputs))
    return compile_inductor(module, inputs, dynamic=model.dynamic_shapes is not None).compile_s


def main() -> None:
    """Measure, print a line per compiler and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="resnet18_64", help="a name of the zoo")
    parser.add_argument("--repeat", type=int, default=3, help="compilations of each")
    parser.add_argument("--json", type=Path, help="write the result there")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    model, small = zoo.get(options.model), zoo.get("tiny_mlp_small")
    times: dict[str, list[float]] = {"cpu": [], "inductor": []}
    with torch_threads(1):
        seconds_on_cpu(small)
        seconds_of_inductor(small)
        for _ in range(options.repeat):
            times["cpu"].append(seconds_on_cpu(model))
            times["inductor"].append(seconds_of_inductor(model))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:9} median {medians[name]:6.2f} s   all: {', '.join(f'{value:.2f}' for value in values)}")
    ratio = medians["cpu"] / medians["inductor"]
    print(f"{options.model}: cpu compiles in {ratio:.2f} of Inductor's cold time")
    if options.json:
        result = {"model": options.model, "seconds": times, "medians": medians, "ratio": ratio}
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
