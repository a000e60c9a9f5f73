"""The model of the lab: two linear layers with a chain of elementwise ops and a reduction that a compiler can fuse."""

from __future__ import annotations

import torch
from torch import nn


class TinyMLP(nn.Module):
    """fc1, relu, sigmoid, multiply, fc2, sum over features."""

    def __init__(self, features: int = 2048) -> None:
        super().__init__()
        self.features = features
        self.fc1 = nn.Linear(features, features)
        self.fc2 = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of shape [batch, features], one number per row."""
        h = self.fc1(x)
        return self.fc2(torch.relu(h) * torch.sigmoid(h)).sum(-1)

    def example_inputs(self) -> tuple[torch.Tensor]:
        """A batch of 512."""
        return (torch.randn(512, self.features),)


class PrintingMLP(TinyMLP):
    """The same with the line that is left over from debugging, and a branch on a value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As :class:`TinyMLP`."""
        h = self.fc1(x)
        print("after fc1")
        if h.abs().max() > 1e4:
            h = h.clamp(-1e4, 1e4)
        return self.fc2(torch.relu(h) * torch.sigmoid(h)).sum(-1)


class MendedMLP(TinyMLP):
    """:class:`PrintingMLP` with what ``explain`` says about its breaks done."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As :class:`TinyMLP`."""
        h = self.fc1(x).clamp(-1e4, 1e4)
        return self.fc2(torch.relu(h) * torch.sigmoid(h)).sum(-1)


class SmallPrintingMLP(PrintingMLP):
    """64 features: breaks cost more than arithmetic."""

    def __init__(self) -> None:
        super().__init__(64)

    def example_inputs(self) -> tuple[torch.Tensor]:
        """A batch of 16."""
        return (torch.randn(16, 64),)


class SmallMendedMLP(MendedMLP):
    """64 features."""

    def __init__(self) -> None:
        super().__init__(64)

    def example_inputs(self) -> tuple[torch.Tensor]:
        """A batch of 16."""
        return (torch.randn(16, 64),)
