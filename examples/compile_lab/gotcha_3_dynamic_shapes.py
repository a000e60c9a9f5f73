"""Gotcha 3: a new shape is a new compilation, until torch makes the dimension dynamic.

python examples/compile_lab/gotcha_3_dynamic_shapes.py
"""

from __future__ import annotations

from typing import Any

import torch
from measure import device_argument, seconds_of, show
from tiny_mlp import TinyMLP

BATCHES = (32, 48, 64, 80, 96)


def run(device: str) -> dict[str, Any]:
    """For each way of compiling the seconds of the first call with each batch size, and how many of them compiled."""
    torch.manual_seed(0)
    model = TinyMLP(256).eval().to(device)
    found: dict[str, Any] = {}
    for name, dynamic in (("static", False), ("default", None), ("dynamic", True)):
        torch._dynamo.reset()
        counters = torch._dynamo.utils.counters
        counters.clear()
        compiled = torch.compile(model, dynamic=dynamic)
        with torch.no_grad():
            inputs = [torch.randn(batch, 256, device=device) for batch in BATCHES]
            seconds = [seconds_of(lambda x=x, f=compiled: f(x)) for x in inputs]
        found[name] = {"seconds": seconds, "compilations": counters["stats"]["unique_graphs"]}
    return {"batches": list(BATCHES), **found}


if __name__ == "__main__":
    show(run(device_argument(__doc__)))
