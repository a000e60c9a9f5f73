"""How long callables take on a GPU: CUDA graphs of many calls, replayed in random order, timed with events.

A graph takes the host out of the measurement, so that small kernels can be compared; each contender comes as several
callables over data of their own, so that repeated calls do not find everything in the cache.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence

import torch

from mlirstack.compare.timing import Timing
from mlirstack.errors import UsageError

Calls = Sequence[Callable[[], object]]
_GRAPH_SECONDS = 1.5e-3  # long against the time of a launch
_MAX_CALLS = 400
_ROTATED_BYTES = 180e6  # more than three times the second-level cache of an H200


def time_on_device(
    contenders: Mapping[str, Calls], *, seconds: float = 0.15, min_samples: int = 11, seed: int = 0
) -> dict[str, Timing]:
    """Device seconds per call of each contender, on the current device.

    Contenders take turns in random order, each for about ``seconds`` in total and ``min_samples`` samples at least.  Where
    one of them cannot be captured (run-time checks wait for the device), all are timed call by call, the host included.
    """
    try:
        graphs = {name: _capture(calls) for name, calls in contenders.items()}
    except UsageError:
        graphs = {name: _repeat(calls) for name, calls in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    order, shuffle = list(graphs), random.Random(seed).shuffle
    spent, rounds = 0.0, 0
    while rounds < min_samples or spent < seconds * len(graphs):
        shuffle(order)
        for name in order:
            replay, calls = graphs[name]
            elapsed = _elapsed(replay)
            spent += elapsed
            samples[name].append(elapsed / calls)
        rounds += 1
    return {
        name: Timing(statistics.median(times), min(times), len(times), graphs[name][1]) for name, times in samples.items()
    }


def rotations(size: int, *, most: int = 8) -> int:
    """How many sets of data of ``size`` bytes calls should take turns over, so that none finds its own in the cache."""
    return max(1, min(most, math.ceil(_ROTATED_BYTES / max(size, 1))))


def poison_memory(size: int) -> None:
    """Leave NaN in the memory that torch's allocator hands out next for tensors of up to ``size`` bytes."""
    pieces = [torch.full((max(size, 1 << 20) // 4,), math.nan, device="cuda") for _ in range(3)]
    del pieces


def _capture(calls: Calls) -> tuple[Callable[[], object], int]:
    """What replays a graph of a few rounds of ``calls``, and the number of calls in it."""
    stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
        stream.synchronize()
        once = _elapsed(lambda: [call() for call in calls], stream) / len(calls)
    count = _rounds(once, len(calls)) * len(calls)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(count):
            calls[i % len(calls)]()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay, count


def _repeat(calls: Calls) -> tuple[Callable[[], object], int]:
    """As :func:`_capture`, without a graph."""

    def once() -> None:
        for call in calls:
            call()

    once()
    rounds = _rounds(_elapsed(once) / len(calls), len(calls))

    def replay() -> None:
        for _ in range(rounds):
            once()

    return replay, rounds * len(calls)


def _rounds(seconds: float, calls: int) -> int:
    """How often to go through ``calls`` calls of ``seconds`` each."""
    return math.ceil(min(_MAX_CALLS, max(1, math.ceil(_GRAPH_SECONDS / max(seconds, 1e-7)))) / calls)


def _elapsed(work: Callable[[], object], stream: torch.cuda.Stream | None = None) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3
