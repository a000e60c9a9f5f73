"""Gotcha 4: a call on a GPU returns before the work is done.  Without waiting, the clock sees the launch alone.

python examples/compile_lab/gotcha_4_synchronise.py
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from measure import device_argument, seconds_of, show, synchronize
from tiny_mlp import TinyMLP

CALLS = 20


def run(device: str) -> dict[str, Any]:
    """Median seconds of a compiled call as the clock sees it without waiting, and with."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = TinyMLP(2048).eval().to(device)
    x = torch.randn(512, 2048, device=device)
    compiled = torch.compile(model)
    hasty = []
    with torch.no_grad():
        for _ in range(3):
            seconds_of(lambda: compiled(x))
        for _ in range(CALLS):
            synchronize()
            started = time.perf_counter()
            compiled(x)
            hasty.append(time.perf_counter() - started)
        right = [seconds_of(lambda: compiled(x)) for _ in range(CALLS)]
    return {"without_waiting_s": statistics.median(hasty), "with_waiting_s": statistics.median(right)}


if __name__ == "__main__":
    show(run(device_argument(__doc__)))
