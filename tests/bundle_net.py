"""A small model and its bundle for IREE on a processor: what tests of damaged bundles and of calls share."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import mlirstack as ms
from mlirstack.bundle.manifest import MANIFEST


class Net(nn.Module):
    """Weights, a buffer, a dynamic batch; two results that could share memory with a parameter and with an input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 8)
        self.register_buffer("offset", torch.arange(8.0))

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        y = torch.relu(self.layer(x)) * scale
        return {"y": y, "shifted": y + self.offset, "offset": self.offset.view(2, 4), "scale": scale.view(2, 4)}


def drawn_net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def build_net(net: Net, path: Path) -> Path:
    dynamic = ({0: torch.export.Dim("batch", min=1, max=32)}, None)
    inputs = (torch.randn(4, 16), torch.randn(8))
    report = ms.build(net, inputs, targets=["iree-cpu:x86-64-v3"], path=path, dynamic_shapes=dynamic)
    assert report.size == sum(f.stat().st_size for f in path.rglob("*") if f.is_file() and f.name != MANIFEST)
    return path
