"""Sizes and load times of bundles: what building costs in memory, what loading costs beside mapping the file of parameters.

    python benchmarks/deploy_load.py --megabytes 64,256,1024 --json benchmarks/results/deploy-load.json

Every number is taken in a fresh process, on a file that the system has in its cache.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from result_file import write_results

WIDTH = 4096
LAYER_MEGABYTES = WIDTH * WIDTH * 4 >> 20

BUILD = """
import json, resource, sys, time
import torch
import mlirstack as ms
import mlirstack.deploy.build
layers, target, path, settings = int(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
small = torch.nn.Linear(8, 8)
ms.build(small, (torch.randn(1, 8),), targets=[target], path=path + "-warm-up")
model = torch.nn.Sequential(*(torch.nn.Linear({width}, {width}) for _ in range(layers))).eval()
before, started = peak(), time.perf_counter()
report = ms.build(model, (torch.randn(1, {width}),), targets=[target], path=path, settings=settings)
code = sum(t.size for t in report.targets)
took = dict(build_s=time.perf_counter() - started, build_extra_bytes=peak() - before)
print(json.dumps(took | dict(bytes=report.size, code_bytes=code)))
"""
LOAD = """
import json, resource, sys, time
import numpy as np, torch
import mlirstack as ms
from mlirstack.targets.iree.session import processor
processor(1)
path, trusted = sys.argv[1], sys.argv[2] == "trusted"
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, started = peak(), time.perf_counter()
model = ms.load(path, trust_parameters=trusted)
loaded = time.perf_counter()
model(torch.zeros(1, {width}))
first = time.perf_counter()
print(json.dumps(dict(load_s=loaded - started, first_call_s=first - loaded, extra_bytes=peak() - before)))
"""
MAP = """
import json, sys, time
import numpy as np
started = time.perf_counter()
mapped = np.memmap(sys.argv[1], np.uint8, mode="c")
touched = int(mapped[::4096].sum())
print(json.dumps(dict(map_and_touch_s=time.perf_counter() - started)))
"""


def run(code: str, *arguments: str) -> dict[str, Any]:
    """What a fresh process with ``code`` prints."""
    text = code.replace("{width}", str(WIDTH))
    done = subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(megabytes: int, target: str, settings: dict[str, str], folder: Path) -> dict[str, Any]:
    """Build and load a model with ``megabytes`` of parameters."""
    path = folder / f"{megabytes}"
    row: dict[str, Any] = {"megabytes": megabytes, "target": target, "settings": settings}
    row |= run(BUILD, str(megabytes // LAYER_MEGABYTES), target, str(path), json.dumps(settings))
    row |= run(MAP, str(path / "parameters.safetensors"))
    for how in ("checked", "trusted"):
        row |= {f"{how}_{key}": value for key, value in run(LOAD, str(path), how).items()}
    shutil.rmtree(path)
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", default="64,256", help=f"of parameters, multiples of {LAYER_MEGABYTES}")
    parser.add_argument("--target", default="iree-cpu")
    parser.add_argument("--json", type=Path, help="write the results there")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="mlirstack-load-") as folder:
        for megabytes in map(int, arguments.megabytes.split(",")):
            for settings in ({}, {"data-tiling": "false"}):
                rows.append(measure(megabytes, arguments.target, settings, Path(folder)))
                print(json.dumps(rows[-1]), flush=True)
    if arguments.json:
        write_results(arguments.json, rows)


if __name__ == "__main__":
    main()
