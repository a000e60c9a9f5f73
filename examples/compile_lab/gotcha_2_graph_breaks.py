"""Gotcha 2: every graph break ends a fusion and adds a way back through Python.

python examples/compile_lab/gotcha_2_graph_breaks.py
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from measure import device_argument, medians, show

LAYERS = 8


def chain(x: torch.Tensor, breaks: bool) -> torch.Tensor:
    """``x`` of any shape: elementwise layers, with a break after each of them if ``breaks``."""
    for layer in range(LAYERS):
        x = torch.sin(x) * torch.cos(x) + layer
    if breaks:
        torch._dynamo.graph_break()
    return x


def whole(x: torch.Tensor) -> torch.Tensor:
    """Four chains in one graph."""
    return chain(chain(chain(chain(x, False), False), False), False)


def broken(x: torch.Tensor) -> torch.Tensor:
    """Four chains with a break after each."""
    return chain(chain(chain(chain(x, True), True), True), True)


def run(device: str) -> dict[str, Any]:
    """Seconds per call for a small and a large tensor: eager, whole, broken."""
    found: dict[str, Any] = {}
    for size in (1 << 10, 1 << 20):
        torch._dynamo.reset()
        x = torch.rand(size, device=device)
        one, many = torch.compile(whole), torch.compile(broken)
        calls = {"eager": partial(whole, x), "whole": partial(one, x), "broken": partial(many, x)}
        times = medians(calls)
        found[f"{size} numbers"] = {f"{name}_s": seconds for name, seconds in times.items()}
    return found


if __name__ == "__main__":
    show(run(device_argument(__doc__)))
