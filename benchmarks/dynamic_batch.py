"""Models whose batch is known at run time only, at several sizes: our kernels in IREE, plain IREE, our own target, eager.

    python benchmarks/dynamic_batch.py build BUNDLES                                    # needs no GPU
    python benchmarks/dynamic_batch.py run BUNDLES --json benchmarks/results/h200-dynamic-batch.json

Each model is compiled once for each target; every size of the batch is compared with the model in float64, then timed.
Kernel time is the time of a call in which the GPU runs at least one kernel; latency the median of calls that are waited for.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from deploy_models import DynamicMlp
from result_file import write_results
from torch import nn
from torch.nn import functional

import mlirstack as ms
from mlirstack.deploy.gpu_time import gpu_time

OWN, PLAIN, TARGET, EAGER = "ours in IREE", "plain IREE", "our target", "eager"
_CALLS = 50  # that are timed


class Block(nn.Module):
    """The MLP half of a transformer's block and a softmax: a norm, two layers with GELU between them, a residual."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x + self.down(functional.gelu(self.up(self.norm(x)))), -1)


@dataclass(frozen=True)
class Case:
    """A model, the shape of one element of its batch, the most that the batch can be, and the sizes that are measured."""

    module: Callable[[], nn.Module]
    shape: tuple[int, ...]
    most: int
    sizes: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    def made(self) -> nn.Module:
        """The model, its weights drawn from seed 0."""
        torch.manual_seed(0)
        return self.module().to(self.dtype).eval()

    def inputs(self, size: int) -> torch.Tensor:
        """A batch of so many elements."""
        return torch.randn(size, *self.shape, generator=torch.Generator().manual_seed(size)).to(self.dtype)


CASES: Mapping[str, Case] = {
    "classifier-f32": Case(DynamicMlp, (512,), 1024, (1, 7, 64, 333, 1024)),
    "softmax-f32": Case(lambda: nn.Softmax(-1), (8192,), 8192, (1, 33, 1024, 8192)),
    "block-f32": Case(Block, (128, 512), 64, (1, 7, 33, 64)),
    "block-f16": Case(Block, (128, 512), 64, (1, 7, 33, 64), torch.float16),
    "block-bf16": Case(Block, (128, 512), 64, (1, 7, 33, 64), torch.bfloat16),
}


def build_all(directory: Path, names: Sequence[str]) -> None:
    """Build the bundles that are not there yet: one with our kernels, one without."""
    for name in names:
        case = CASES[name]
        batch = torch.export.Dim("batch", min=1, max=case.most)
        for part, targets in (("own", ["iree-cuda:sm_90", "cuda:sm_90a"]), ("plain", ["iree-cuda:sm_90"])):
            path = directory / f"{name}-{part}"
            if path.is_dir():
                continue
            report = ms.build(
                case.made(),
                (case.inputs(min(case.most, 16)),),
                targets=targets,
                path=path,
                dynamic_shapes=({0: batch},),
                settings={"kernels": "own" if part == "own" else "iree"},
            )
            print(f"{path.name}: {report.seconds:.1f} s", flush=True)


def run_all(directory: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Check and time each model at each size: a row as soon as it is known."""
    for name in names:
        case = CASES[name]
        model = case.made().cuda()
        contenders: dict[str, Callable[..., Any]] = {
            PLAIN: ms.load(directory / f"{name}-plain", device="iree-cuda"),
            OWN: ms.load(directory / f"{name}-own", device="iree-cuda"),
            TARGET: ms.load(directory / f"{name}-own", device="cuda:sm_90a"),
            EAGER: model,
        }
        exact = copy.deepcopy(model).double()
        for size in case.sizes:
            x = case.inputs(size).cuda()
            with torch.no_grad():
                expected = exact(x.double())
                timed = {contender: _timed(call, x, expected) for contender, call in contenders.items()}
            yield {"model": name, "batch": size, "contenders": timed}


def _timed(call: Callable[..., Any], x: torch.Tensor, expected: torch.Tensor) -> dict[str, float]:
    answer = call(x)
    error = (answer.double() - expected).norm() / expected.norm()
    samples = []
    for _ in range(_CALLS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call(x)
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - started)
    return {
        "rel_l2": float(error),
        "kernel_us": round(gpu_time(lambda: call(x)).busy * 1e6, 2),
        "median_us": round(statistics.median(samples) * 1e6, 1),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: microseconds of kernels (of a call) for each contender, how much faster ours are than plain IREE's, and
    whether all are as right as eager."""
    names = (PLAIN, OWN, TARGET, EAGER)
    lines = [
        f"| model | batch | {' | '.join(names)} | over plain IREE |",
        f"| --- | --- | {' | '.join('---' for _ in names)} | --- |",
    ]
    for row in rows:
        found = row["contenders"]
        cells = [
            f"{found[n]['kernel_us']:.1f} ({found[n]['median_us']:.0f}){'' if _is_right(row, n) else ' WRONG'}"
            for n in names
        ]
        gain = found[PLAIN]["kernel_us"] / found[OWN]["kernel_us"]
        lines.append(f"| {row['model']} | {row['batch']} | {' | '.join(cells)} | {gain:.2f}x |")
    return "\n".join(lines)


def _is_right(row: Mapping[str, Any], contender: str) -> bool:
    """Is a contender's error no larger than twice eager's, or one rounding of the result?"""
    found = row["contenders"]
    rounding = torch.finfo(CASES[row["model"]].dtype).eps
    return bool(found[contender]["rel_l2"] <= max(2 * found[EAGER]["rel_l2"], 4 * rounding))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "run"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default=",".join(CASES), help="names of models, comma-separated")
    parser.add_argument("--json", type=Path, help="write the results there")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if arguments.what == "build":
        build_all(arguments.directory, names)
        return
    rows = []
    for row in run_all(arguments.directory, names):
        rows.append(row)
        print(json.dumps(row), flush=True)
        if arguments.json:  # at once: a run that is cut short keeps what it has
            write_results(arguments.json, rows)
    print(table(rows))
    sys.exit(0 if all(_is_right(row, name) for row in rows for name in row["contenders"]) else 1)


if __name__ == "__main__":
    main()
