"""Products of weights in IREE modules for processors: our kernels next to IREE's own, at many sizes.

    python benchmarks/iree_products.py --arch x86-64-v3
    python benchmarks/iree_products.py --arch x86-64-v4 --all --json benchmarks/results/cpu-iree-products.json

A linear layer of each size is compiled with and without kernels of ours, compared with float64, and called in turn; the
ratio is the median over pairs of calls, so that it holds while the speed of the machine drifts.  One thread is timed in
processor time, several by the clock.  ``--all`` takes ours at the sizes that are IREE's by rule
(``passes/iree/products.py``) as well.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from result_file import write_results
from torch import nn
from torch.nn import functional

import mlirstack as ms
from mlirstack.passes.iree import products
from mlirstack.passes.iree.embedded_kernels import kernels_of

# Rows, columns, sums; with an activation behind.
SIZES = (
    (1, 256, 256, False), (1, 1024, 1024, False), (4, 1024, 1024, False), (7, 65, 77, False), (8, 512, 512, False),
    (8, 1024, 4096, False), (16, 1024, 1024, False), (33, 1025, 1025, False), (64, 256, 256, False), (64, 3072, 768, False),
    (256, 512, 128, False), (512, 1024, 256, False), (512, 1024, 512, False), (128, 4096, 1024, False),
    (512, 512, 2048, False), (512, 2048, 2048, False), (32, 512, 256, True), (128, 3072, 768, True), (512, 2048, 2048, True),
)  # fmt: skip


class Layer(nn.Module):
    """A linear layer, with or without GELU behind it."""

    def __init__(self, sums: int, columns: int, *, activated: bool) -> None:
        super().__init__()
        self.linear, self.activated = nn.Linear(sums, columns), activated

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return functional.gelu(y) if self.activated else y


def measure(size: tuple[int, int, int, bool], arch: str, threads: int, seconds: float) -> dict[str, Any]:
    """One row: microseconds of a call of each, their ratio pair by pair, relative errors, whether a kernel is ours."""
    rows, columns, sums, activated = size
    model, x = Layer(sums, columns, activated=activated).eval(), torch.randn(rows, sums)
    given = [{"kernels": kernels} for kernels in ("iree", "own")]
    compiled = [ms.compile(model, (x,), target=f"iree-cpu:{arch}", threads=threads, settings=s) for s in given]
    with torch.no_grad():
        exact = model.double()(x.double())
    errors = [float((call(x) - exact).norm() / exact.norm()) for call in compiled]
    clock = time.process_time if threads == 1 else time.perf_counter
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 9:
        for taken, call in zip(times, compiled, strict=True):
            started = clock()
            call(x)
            taken.append(clock() - started)
    plain, own = (statistics.median(taken) for taken in times)
    return {
        "size": f"{rows}x{columns}x{sums}" + ("+gelu" if activated else ""),
        "arch": arch,
        "threads": threads,
        "ours": bool(kernels_of(compiled[1].lowering.payload)),
        "plain_us": round(plain * 1e6, 1),
        "own_us": round(own * 1e6, 1),
        "ratio": round(statistics.median(a / b for a, b in zip(*times, strict=True)), 3),
        "own_gflops": round(2 * rows * columns * sums / own / 1e9, 1),
        "errors": errors,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="x86-64-v3,x86-64-v4", help="comma-separated")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.5, help="of timing for each size")
    parser.add_argument("--all", action="store_true", help="ours at all sizes")
    parser.add_argument("--json", type=Path, help="write the results there")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if given.all:
        products.is_fast = lambda found, bits: found.op.points >= products.LEAST_WORK
    rows = []
    for arch in given.arch.split(","):
        for size in SIZES:
            torch.manual_seed(0)
            rows.append(measure(size, arch, given.threads, given.seconds))
            print(json.dumps(rows[-1]), flush=True)
            if given.json:
                write_results(given.json, rows)


if __name__ == "__main__":
    main()
