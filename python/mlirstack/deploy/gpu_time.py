"""The GPU's own view of a call: which kernels ran, and how long at least one of them did.

What torch's profiler (CUPTI) has seen is taken, which is every kernel of the process, whoever launched it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

CALLS = 10  # under the profiler


@dataclass(frozen=True)
class Kernel:
    """One kernel or dispatch: how often it runs in a call, and the seconds of all these together."""

    name: str
    count: float
    seconds: float


@dataclass(frozen=True)
class GpuTime:
    """``busy``: seconds of a call in which at least one kernel ran.  ``kernels``: slowest first, each with its own seconds.

    Kernels may overlap: with programmatic dependent launch a kernel starts while the one before still runs, and waits.  The
    sum over kernels counts such a second twice; ``busy`` counts it once, and gaps between kernels not at all.
    """

    busy: float
    kernels: tuple[Kernel, ...]


def gpu_time(call: Callable[[], object]) -> GpuTime:
    """The GPU time of ``call``, copies of memory left out; the mean of some calls, made back to back."""
    import torch
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    events = [
        (str(event.name), float(event.time_range.start) * 1e-6, float(event.time_range.end) * 1e-6)
        for event in profiler.events() or ()
        if event.device_type == DeviceType.CUDA and not event.name.lower().startswith(("memcpy", "memset"))
    ]
    found: dict[str, list[float]] = {}
    for name, start, end in events:
        found.setdefault(name, []).append(end - start)
    kernels = (Kernel(name, len(times) / CALLS, sum(times) / CALLS) for name, times in found.items())
    busy = covered((start, end) for _, start, end in events) / CALLS
    return GpuTime(busy, tuple(sorted(kernels, key=lambda kernel: -kernel.seconds)))


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """How long the union of ``intervals`` (start, end) is.

    >>> covered([(0.0, 2.0), (5.0, 6.0), (1.0, 3.0)])
    4.0
    """
    total, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
