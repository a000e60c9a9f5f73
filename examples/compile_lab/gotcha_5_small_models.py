"""Gotcha 5: where a model is small, guards and launches cost more than fusion saves.

python examples/compile_lab/gotcha_5_small_models.py
"""

from __future__ import annotations

from typing import Any

import torch
from measure import device_argument, medians, show
from tiny_mlp import TinyMLP

FEATURES = (16, 128, 512, 1024)


def run(device: str) -> dict[str, Any]:
    """For each width of the model (batch 64) seconds of eager and compiled, and how much faster compiled is."""
    found: dict[str, Any] = {}
    for features in FEATURES:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = TinyMLP(features).eval().to(device)
        x = torch.randn(64, features, device=device)
        compiled = torch.compile(model)
        with torch.no_grad():
            times = medians({"eager": lambda m=model, x=x: m(x), "compiled": lambda m=compiled, x=x: m(x)})
        ratio = times["eager"] / times["compiled"]
        found[f"{features} features"] = {"eager_s": times["eager"], "compiled_s": times["compiled"], "speed": ratio}
    return found


if __name__ == "__main__":
    show(run(device_argument(__doc__)))
