"""How long callables take, measured so that their ratio means something on a noisy machine.

The callables take turns within every round, each round starts with another one, and short calls are repeated until a sample
is long enough for the clock.  Medians are compared; the minimum is kept as a second opinion.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds per call: median and minimum over ``samples`` samples of ``calls`` calls each."""

    median_s: float
    min_s: float
    samples: int
    calls: int


@dataclass(frozen=True)
class Effort:
    """How much measuring is done.

    ``seconds`` is spent per callable, within ``min_samples`` and ``max_samples``; a sample lasts ``sample_seconds`` at
    least; before that, each callable runs ``warm_up_calls`` times at least and ``warm_up_seconds`` long at least.
    """

    seconds: float = 1.0
    min_samples: int = 5
    max_samples: int = 200
    sample_seconds: float = 2e-3
    warm_up_calls: int = 2
    warm_up_seconds: float = 0.05


def measure(
    callables: Mapping[str, Callable[[], object]],
    effort: Effort = Effort(),
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time all callables, interleaved; the garbage collector rests meanwhile.  ``clock`` gives seconds."""
    names = list(callables)
    collecting = gc.isenabled()
    gc.disable()
    try:
        calls = {name: _calls_per_sample(callables[name], effort, clock) for name in names}
        samples: dict[str, list[float]] = {name: [] for name in names}
        spent, rounds = 0.0, 0
        while rounds < effort.min_samples or (rounds < effort.max_samples and spent < effort.seconds * len(names)):
            first = rounds % max(len(names), 1)
            for name in names[first:] + names[:first]:
                seconds = _sample(callables[name], calls[name], clock)
                samples[name].append(seconds / calls[name])
                spent += seconds
            rounds += 1
    finally:
        if collecting:
            gc.enable()
    return {name: Timing(statistics.median(times), min(times), len(times), calls[name]) for name, times in samples.items()}


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch's intra-op thread count within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _calls_per_sample(function: Callable[[], object], effort: Effort, clock: Callable[[], float]) -> int:
    """Warm up, and find how many calls fill a sample; the fastest warm call counts, the first ones are often slow."""
    spent, fastest, done = 0.0, math.inf, 0
    while done < effort.warm_up_calls or spent < effort.warm_up_seconds:
        seconds = _sample(function, 1, clock)
        spent, fastest, done = spent + seconds, min(fastest, seconds), done + 1
    return max(1, math.ceil(effort.sample_seconds / max(fastest, 1e-9)))


def _sample(function: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    started = clock()
    for _ in range(calls):
        function()
    return clock() - started
