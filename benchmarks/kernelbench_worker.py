"""The process that judges KernelBench's problems, one at a time: whatever kills it costs one problem.

It runs the problem files of a work tree of ScalingIntelligence/KernelBench, at the sizes of ``kernelbench_sizes``.  The
question is a file and whether to time it; ``benchmarks/kernelbench_suite.py`` asks.
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from kernelbench_sizes import problem
from torch import Tensor
from torch.utils import _pytree as pytree

import mlirstack as ms
from mlirstack.compare.timing import Effort, measure
from mlirstack.errors import MlirstackError
from mlirstack.supervised import Tell, serve

_TOLERANCE = 1e-4  # KernelBench's for float32, relative and absolute
_SEEDS = (42, 43)  # of the inputs that are tried
_SHORT = Effort(seconds=0.5, max_samples=60)


@dataclass(frozen=True)
class Verdict:
    """What became of a problem.

    ``verdict``: pass; wrong; ill-conditioned (eager in float32 is as far from float64 as ours is); refused or error (it does
    not compile); cannot (eager fails, or draws random numbers).  ``ratio``: our median time over eager's, in turns.
    """

    verdict: str
    reason: str = ""
    route: str | None = None
    eager_s: float | None = None
    cpu_s: float | None = None

    def row(self) -> dict[str, Any]:
        """The fields that have a value, and the ratio."""
        found = {name: value for name, value in vars(self).items() if value not in (None, "")}
        if self.eager_s and self.cpu_s:
            found["ratio"] = round(self.cpu_s / self.eager_s, 2)
        return found


@dataclass(frozen=True)
class _Problem:
    space: dict[str, Any]

    def model(self) -> torch.nn.Module:
        """As the problem makes it, for inference, always with the same weights."""
        torch.manual_seed(42)
        model: torch.nn.Module = self.space["Model"](*self.space["get_init_inputs"]())
        return model.eval()

    def inputs(self, seed: int) -> tuple[Any, ...]:
        torch.manual_seed(seed)
        return tuple(self.space["get_inputs"]())


def judge(path: str, *, bench: bool, threads: int, tell: Tell) -> Verdict:
    """Compile a problem once, compare it with eager for two inputs, and time it."""
    tell("eager")
    try:
        given = _Problem(problem(Path(path)))
        expected = [_fresh(given, seed) for seed in _SEEDS]
        again = _fresh(given, _SEEDS[0])
    except Exception as error:  # the problem's own code: whatever it raises says that eager cannot
        return Verdict("cannot", f"eager: {_first_line(error)}")
    if _difference(expected[0], again):
        return Verdict("cannot", "its answer differs from one call to the next")
    tell("compile")
    try:
        compiled = ms.compile(given.model(), given.inputs(_SEEDS[0]), target="cpu", threads=threads)
    except MlirstackError as error:
        return Verdict("refused", _first_line(error))
    tell("run")
    for seed, wanted in zip(_SEEDS, expected, strict=True):
        difference = _difference(wanted, compiled(*_copies(given.inputs(seed))))
        if difference:
            is_close = _is_ill_conditioned(given, seed, wanted)
            return Verdict("ill-conditioned" if is_close else "wrong", difference, compiled.route)
    if not bench:
        return Verdict("pass", route=compiled.route)
    tell("bench")
    model, inputs = given.model(), given.inputs(_SEEDS[0])
    # Processor time is what other work on the machine disturbs least; of several threads it would be the sum.
    clock = time.process_time if threads == 1 else time.perf_counter
    times = measure({"eager": lambda: model(*inputs), "cpu": lambda: compiled(*inputs)}, _SHORT, clock=clock)
    return Verdict("pass", route=compiled.route, eager_s=times["eager"].median_s, cpu_s=times["cpu"].median_s)


def _fresh(given: _Problem, seed: int) -> Any:
    """Eager's answer from a new model, with a random state of its own."""
    model, inputs = given.model(), _copies(given.inputs(seed))
    torch.seed()
    return model(*inputs)


def _copies(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.clone() if isinstance(x, Tensor) else x for x in inputs)


def _difference(expected: Any, found: Any) -> str:
    """Empty where all tensors agree by KernelBench's rule, else one line."""
    wanted, given = pytree.tree_leaves(expected), pytree.tree_leaves(found)
    if len(wanted) != len(given):
        return f"{len(given)} results, expected {len(wanted)}"
    for x, y in zip(wanted, given, strict=True):
        if not isinstance(x, Tensor):
            if x != y:
                return f"{y!r}, expected {x!r}"
        elif x.shape != y.shape or x.dtype != y.dtype:
            return f"{tuple(y.shape)} {y.dtype}, expected {tuple(x.shape)} {x.dtype}"
        elif not torch.allclose(x, y, atol=_TOLERANCE, rtol=_TOLERANCE):
            return f"largest difference {(x.double() - y.double()).abs().max().item():.2g}"
    return ""


def _is_ill_conditioned(given: _Problem, seed: int, expected: Any) -> bool:
    """Does eager in float32 miss eager in float64 by more than the tolerance?"""
    inputs = [x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in given.inputs(seed)]
    try:
        exact = given.model().double()(*inputs)
    except RuntimeError:  # it makes float32 tensors of its own
        return False
    narrowed = pytree.tree_map(lambda x: x.float() if isinstance(x, Tensor) and x.dtype == torch.float64 else x, exact)
    return bool(_difference(narrowed, expected))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    text = lines[0] if isinstance(error, MlirstackError) else f"{type(error).__name__}: {lines[0]}"
    return " ".join(text.split())[:200]


def main() -> None:
    """``kernelbench_worker.py THREADS``."""
    threads = int(sys.argv[1])
    warnings.filterwarnings("ignore")
    torch.set_num_threads(threads)
    torch.autograd.set_grad_enabled(False)

    def answer(question: dict[str, Any], tell: Tell) -> Any:
        return judge(question["path"], bench=question["bench"], threads=threads, tell=tell).row()

    serve(answer)


if __name__ == "__main__":
    main()
