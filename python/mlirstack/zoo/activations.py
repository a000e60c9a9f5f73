"""Activation functions and softmax."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlirstack.zoo.recipe import model, normal, operation


@operation("gelu_exact", normal(4, 64))
def gelu_exact(x: Tensor) -> Tensor:
    return F.gelu(x)


@operation("gelu_tanh", normal(4, 64))
def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


@operation("silu_mish", normal(4, 64))
def silu_mish(x: Tensor) -> Tensor:
    return F.silu(x) + F.mish(x)


@operation("hard_activations", normal(4, 64, scale=4.0))
def hard_activations(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return F.hardswish(x), F.hardsigmoid(x), F.hardtanh(x), F.relu6(x)


@operation("soft_activations", normal(4, 64, scale=2.0))
def soft_activations(x: Tensor) -> Tensor:
    smooth = F.elu(x) + F.selu(x) + F.celu(x, 0.5)
    return smooth + F.leaky_relu(x, 0.1) + F.softplus(x) + F.softsign(x) + F.logsigmoid(x)


class PReluGlu(nn.Module):
    """(batch, channels, length) → (batch, channels / 2, length)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.prelu = nn.PReLU(channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.prelu(x), dim=1)


@model("prelu_glu", normal(2, 8, 10))
def prelu_glu() -> nn.Module:
    return PReluGlu(8)


@operation("softmax", normal(4, 64))
def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


@operation("softmax_inner", normal(2, 9, 5))
def softmax_inner(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=1)


@operation("softmax_f16", normal(4, 64, dtype=torch.float16, scale=20.0))
def softmax_f16(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


@operation("log_softmax", normal(4, 64))
def log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, dim=-1)


@operation("elementwise_chain", normal(256, 256), normal(256, 256))
def elementwise_chain(x: Tensor, y: Tensor) -> Tensor:
    h = torch.tanh(x * y + 0.5)
    return (h * torch.sigmoid(y) - x).abs().clamp(max=3.0) * 0.25
