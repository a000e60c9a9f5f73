"""What mlirstack itself costs: the dump as a share of compile time, and the call of a compiled function that does nothing.

python benchmarks/overheads.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
from torch import nn

import mlirstack as ms
from mlirstack import zoo
from mlirstack.lowering import LowerOptions, build_program, program_of

ROUNDS = 7


class Negate(nn.Module):
    """Four numbers, one op."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of shape [4]."""
        return -x


def dump_share(name: str) -> float:
    """Median over interleaved pairs of (processor time with dump) / (without) - 1; a zoo model, from torch to the object."""
    model = zoo.get(name)

    def build(dump: Path | None) -> None:
        program = program_of(model.module, model.inputs, dynamic_shapes=model.dynamic_shapes, name=name)
        build_program(program, LowerOptions("cpu", dump=dump))

    ratios = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            plain = _seconds(lambda: build(None))
            dumped = _seconds(lambda path=Path(folder): build(path))
        ratios.append(dumped / plain - 1)
    return statistics.median(ratios)


def _seconds(work: object) -> float:
    started = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - started


def call_seconds() -> tuple[float, float, float]:
    """Median seconds of a call: the executable alone, the callable with all checks, eager."""
    x = torch.ones(4)
    model = Negate()
    function = ms.compile(model, (x,), target="cpu")
    inputs = [x]
    candidates = (lambda: function.executable.run(inputs), lambda: function(x), lambda: model(x))
    medians = []
    for candidate in candidates:
        samples = []
        for _ in range(2000):
            started = time.perf_counter()
            candidate()
            samples.append(time.perf_counter() - started)
        medians.append(statistics.median(samples))
    return medians[0], medians[1], medians[2]


def main() -> None:
    """Print both."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for name in ("tiny_mlp", "tiny_mlp_small", "residual_block", "bert_like"):
        print(f"dump of {name:16} {dump_share(name) * 100:5.1f} % of compile time")
    executable, function, eager = call_seconds()
    print(f"call: executable {executable * 1e6:.2f} µs, callable {function * 1e6:.2f} µs, eager {eager * 1e6:.2f} µs")


if __name__ == "__main__":
    main()
