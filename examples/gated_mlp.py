"""A model of one's own, for the command line.

mlirstack compare examples/gated_mlp.py:GatedMlp --targets cpu,iree-cpu
mlirstack lower examples/gated_mlp.py:GatedMlp --target cpu --out dump/
mlirstack lower examples/gated_mlp.py:GatedMlp --target cpu --out dump/ --dynamic 'x:0=1..64'
"""

from __future__ import annotations

import torch
from torch import nn


class GatedMlp(nn.Module):
    """``down(silu(gate(x)) * up(x))``, the feed-forward block of Llama-like models."""

    def __init__(self, width: int = 256, hidden: int = 688) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of shape [batch, width]."""
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))

    @staticmethod
    def example_inputs() -> tuple[torch.Tensor]:
        """One call's arguments."""
        return (torch.randn(16, 256),)
