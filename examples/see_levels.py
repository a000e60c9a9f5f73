"""What each level does to a model: op counts per stage, and the difference between two of them.

python examples/see_levels.py
"""

from __future__ import annotations

import torch
from torch import nn

import mlirstack as ms


def main() -> None:
    """Print a table of the stages and what fusion changed."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10), nn.Softmax(-1)).eval()
    x = torch.randn(8, 64)
    function = ms.compile(model, (x,), target="cpu")
    for stage in function.lowering.stages:
        busiest = ", ".join(f"{count} {op}" for op, count in list(stage.ops.items())[:3])
        print(f"{stage.index:02d} {stage.name:12} {stage.seconds * 1e3:8.1f} ms  {busiest}")
    print(function.lowering.diff("linalg", "fused")[:2000])
    error = (function(x) - model(x)).norm() / model(x).norm()
    print(f"relative L2 error against eager: {error:.1e}")


if __name__ == "__main__":
    main()
