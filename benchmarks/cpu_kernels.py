"""Speed of target cpu against eager and torch.compile, one kernel class a row, all in one run.

All candidates of a row take turns; what is compared is processor time, which other work on the machine disturbs least.
Ratios are eager's time over the candidate's: above 1 is faster than eager.

    python benchmarks/cpu_kernels.py --only matmul,softmax --threads 1
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import mlirstack as ms
from mlirstack.compare.inductor import compile_inductor
from mlirstack.compare.timing import Effort, measure, torch_threads


@dataclass(frozen=True)
class Case:
    """One row: a model and its inputs; ``goal`` is the ratio to eager that is aimed for, ``flops`` of one call if they are
    the measure."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    goal: float
    flops: float | None = None


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call the function."""
        return self.function(*inputs)


class TinyMlp(nn.Module):
    """fc1 → relu(h) * sigmoid(h) → fc2 → sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width) → (batch,)."""
        hidden = self.fc1(x)
        return self.fc2(torch.relu(hidden) * torch.sigmoid(hidden)).sum(-1)


def chain(x: Tensor) -> Tensor:
    """Six elementwise ops."""
    return torch.sigmoid(x * 2 + 1) * torch.relu(x) - x * 0.5


def conv(channels: int, filters: int, stride: int) -> nn.Module:
    """A 3x3 convolution with batch norm and ReLU."""
    return nn.Sequential(nn.Conv2d(channels, filters, 3, stride, 1), nn.BatchNorm2d(filters), nn.ReLU())


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Softmax attention, unfused."""
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def cases() -> dict[str, Case]:
    """All rows."""
    torch.manual_seed(0)
    square = torch.randn(1024, 1024)
    heads = [torch.randn(8, 512, 64) for _ in range(3)]
    found = {
        f"matmul {n}": Case(Of(torch.matmul), (torch.randn(n, n), torch.randn(n, n)), 0.9, 2.0 * n**3)
        for n in (512, 1024, 2048)
    }
    return found | {
        "tiny_mlp": Case(TinyMlp(2048), (torch.randn(512, 2048),), 0.85, 4.0 * 512 * 2048**2),
        "chain": Case(Of(chain), (square,), 1.5),
        "gelu erf": Case(nn.GELU(), (square,), 1.5),
        "gelu tanh": Case(nn.GELU(approximate="tanh"), (square,), 1.5),
        "softmax": Case(nn.Softmax(-1), (square,), 1.0),
        "layer norm": Case(nn.LayerNorm(1024), (square,), 1.0),
        "sum rows": Case(Of(lambda x: x.sum(-1)), (square,), 1.0),
        "sum columns": Case(Of(lambda x: x.sum(0)), (square,), 1.0),
        "conv 64x56": Case(conv(64, 64, 1), (torch.randn(1, 64, 56, 56),), 1.0, 2.0 * 56**2 * 64 * 64 * 9),
        "conv 256x14": Case(conv(256, 256, 1), (torch.randn(1, 256, 14, 14),), 1.0, 2.0 * 14**2 * 256 * 256 * 9),
        "attention": Case(Of(attention), tuple(heads), 1.0),
        "batch matmul": Case(Of(torch.bmm), (heads[0], heads[1].mT.contiguous()), 0.9),
    }


def calls(case: Case, *, inductor: bool) -> dict[str, Callable[[], object]]:
    """The candidates of a row, each checked against eager once."""
    model, inputs = case.model.eval(), case.inputs
    compiled = ms.compile(model, inputs, target="cpu")
    expected = model(*inputs)
    torch.testing.assert_close(compiled(*inputs), expected, rtol=1e-3, atol=1e-3)
    found: dict[str, Callable[[], object]] = {"eager": lambda: model(*inputs), "cpu": lambda: compiled(*inputs)}
    if inductor:
        other = compile_inductor(model, inputs, dynamic=False)
        found["inductor"] = lambda: other.function(*inputs)
    return found


def main() -> None:
    """Print a line per case; exit status 0 whatever the ratios are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="comma-separated beginnings of case names")
    parser.add_argument("--seconds", type=float, default=1.0, help="measuring time for each candidate")
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--json", type=Path, help="write the result there")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    wanted = tuple(options.only.split(","))
    rows = []
    print(f"{'case':14} {'eager ms':>9} {'cpu ms':>9} {'cpu':>6} {'(min)':>6} {'goal':>5} {'inductor':>9} {'GF/s':>6}")
    with torch_threads(1), torch.no_grad():
        for name, case in cases().items():
            if not name.startswith(wanted):
                continue
            candidates = calls(case, inductor=not options.no_inductor)
            timings = measure(candidates, Effort(seconds=options.seconds), clock=time.process_time)
            eager = timings["eager"]
            row = {"case": name, "goal": case.goal, "eager_s": eager.median_s}
            for other in list(timings)[1:]:
                row |= {f"{other}_s": timings[other].median_s, f"{other}_ratio": eager.median_s / timings[other].median_s}
            row["cpu_ratio_of_minima"] = eager.min_s / timings["cpu"].min_s
            rows.append(row)
            speed = f"{case.flops / timings['cpu'].median_s / 1e9:6.1f}" if case.flops else ""
            inductor = f"{row['inductor_ratio']:9.2f}" if "inductor_ratio" in row else " " * 9
            print(
                f"{name:14} {eager.median_s * 1e3:9.3f} {timings['cpu'].median_s * 1e3:9.3f} {row['cpu_ratio']:6.2f}"
                f" {row['cpu_ratio_of_minima']:6.2f} {case.goal:5.2f} {inductor} {speed}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
