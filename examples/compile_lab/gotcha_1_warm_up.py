"""Gotcha 1: the first call compiles.  Whoever times it times the compiler.

python examples/compile_lab/gotcha_1_warm_up.py
"""

from __future__ import annotations

from typing import Any

import torch
from measure import device_argument, medians, seconds_of, show
from tiny_mlp import TinyMLP


def run(device: str) -> dict[str, Any]:
    """Seconds of the first and the second call, of a warm one, and of eager; calls after which compiling has paid off."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = TinyMLP(1024).eval().to(device)
    x = torch.randn(256, 1024, device=device)
    with torch.no_grad():
        model(x)
        compiled = torch.compile(model)
        first, second = seconds_of(lambda: compiled(x)), seconds_of(lambda: compiled(x))
        warm = medians({"eager": lambda: model(x), "compiled": lambda: compiled(x)})
    saved = warm["eager"] - warm["compiled"]
    return {
        "first_call_s": first,
        "second_call_s": second,
        "warm_s": warm["compiled"],
        "eager_s": warm["eager"],
        "calls_until_it_pays": round(first / saved) if saved > 0 else None,
    }


if __name__ == "__main__":
    show(run(device_argument(__doc__)))
