"""Sizes and load times of bundles: what building costs in memory, what loading costs beside mapping the file of parameters.

    python benchmarks/deploy_load.py --megabytes 64,256,1024 --json benchmarks/results/deploy-load.json

Every number is taken in a fresh process that has loaded a small bundle before, so that Python's imports do not count; files
are in the system's cache.  ``first`` is the first load of a bundle on a machine, which hashes all files; ``again`` are those
after it; ``trusted`` looks at no checksum of parameters.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from result_file import write_results

from mlirstack.bundle.manifest import PARAMETERS, read_manifest
from mlirstack.bundle.stamps import COARSE

WIDTH = 4096
LAYER_MEGABYTES = WIDTH * WIDTH * 4 >> 20
VARIANTS: dict[str, tuple[dict[str, str], ...]] = {
    "iree-cpu": ({}, {"prepack": "false"}, {"data-tiling": "false"}),
    "cpu": ({}, {"prepack": "false"}),
}
"""Settings that are compared, by target; of other targets the defaults alone."""

BUILD = """
import json, re, sys, threading, time
import torch
import mlirstack as ms
import mlirstack.deploy.build
layers, target, path, settings = int(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
seen, over = [], threading.Event()
def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
def watch():
    while not over.wait(0.01):
        seen.append(anonymous())
small = torch.nn.Linear(8, 8)
ms.build(small, (torch.randn(1, 8),), targets=[target], path=path + "-warm-up")
model = torch.nn.Sequential(*(torch.nn.Linear({width}, {width}) for _ in range(layers))).eval()
before, started = anonymous(), time.perf_counter()
watcher = threading.Thread(target=watch)
watcher.start()
report = ms.build(model, (torch.randn(1, {width}),), targets=[target], path=path, settings=settings)
took = time.perf_counter() - started
over.set()
watcher.join()
built = report.targets[0]
print(json.dumps(dict(build_s=took, build_extra_bytes=max(seen) - before, bytes=report.size, code_bytes=built.size,
                      packed_bytes=built.packed)))
"""
LOAD = """
import json, resource, sys, time
import torch
import mlirstack as ms
path, trusted = sys.argv[1], sys.argv[2] == "trusted"
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
small = ms.load(path + "-warm-up")
small(torch.zeros(1, 8, device=small.device))
before, started = peak(), time.perf_counter()
model = ms.load(path, trust_parameters=trusted)
loaded = time.perf_counter()
model(torch.zeros(1, {width}, device=model.device))
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


def run(code: str, *arguments: str, cache: Path) -> dict[str, Any]:
    """What a fresh process with ``code`` prints; ``cache`` is the user's cache for it."""
    text = code.replace("{width}", str(WIDTH))
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-c", text, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(megabytes: int, target: str, settings: dict[str, str], folder: Path) -> dict[str, Any]:
    """Build and load a model with ``megabytes`` of parameters."""
    path, cache = folder / "bundle", folder / "cache"
    row: dict[str, Any] = {"megabytes": megabytes, "target": target, "settings": settings}
    row |= run(BUILD, str(megabytes // LAYER_MEGABYTES), target, str(path), json.dumps(settings), cache=cache)
    (entry,) = read_manifest(path).artifacts
    row |= run(MAP, str(path / (entry.packed or PARAMETERS)), cache=cache)
    shutil.rmtree(cache, ignore_errors=True)  # as on a machine that it is copied to
    time.sleep(COARSE)
    for how in ("first", "again", "trusted"):
        row |= {f"{how}_{key}": value for key, value in run(LOAD, str(path), how, cache=cache).items()}
    for made in (path, path.with_name(f"{path.name}-warm-up"), cache):
        shutil.rmtree(made, ignore_errors=True)
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", default="64,256", help=f"of parameters, multiples of {LAYER_MEGABYTES}")
    parser.add_argument("--targets", default="iree-cpu,cpu", help="comma-separated")
    parser.add_argument("--json", type=Path, help="write the results there")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="mlirstack-load-") as folder:
        for target in arguments.targets.split(","):
            for megabytes in map(int, arguments.megabytes.split(",")):
                for settings in VARIANTS.get(target, ({},)):
                    rows.append(measure(megabytes, target, settings, Path(folder)))
                    print(json.dumps(rows[-1]), flush=True)
                    if arguments.json:
                        write_results(arguments.json, rows)


if __name__ == "__main__":
    main()
