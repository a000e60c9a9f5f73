"""Multi-layer perceptrons: the founding TinyMLP, its dtypes, and sizes that do not divide."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlirstack.zoo.recipe import model, normal

SMALL = 32


class TinyMlp(nn.Module):
    """(batch, width) → (batch,): two square linear layers around ``relu(x) * sigmoid(x)``, then a sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc1(x)
        h = torch.relu(h) * torch.sigmoid(h)
        return self.fc2(h).sum(-1)


class ResidualMlp(nn.Module):
    """(..., width) → (..., width): layer norm, linear, GELU, linear, added to the input."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


@model("tiny_mlp", normal(512, 2048))
def tiny_mlp() -> nn.Module:
    return TinyMlp(2048)


@model("tiny_mlp_small", normal(8, SMALL))
def tiny_mlp_small() -> nn.Module:
    return TinyMlp(SMALL)


@model("mlp_ragged", normal(7, 33))
def mlp_ragged() -> nn.Module:
    return nn.Sequential(nn.Linear(33, 65), nn.ReLU(), nn.Linear(65, 17), nn.Tanh(), nn.Linear(17, 3))


@model("mlp_residual", normal(2, 6, 24))
def mlp_residual() -> nn.Module:
    return ResidualMlp(24, 48)


@model("mlp_f16", normal(8, SMALL, dtype=torch.float16))
def mlp_f16() -> nn.Module:
    return TinyMlp(SMALL).half()


@model("mlp_bf16", normal(8, SMALL, dtype=torch.bfloat16))
def mlp_bf16() -> nn.Module:
    return TinyMlp(SMALL).bfloat16()


@model("mlp_f64", normal(8, SMALL, dtype=torch.float64))
def mlp_f64() -> nn.Module:
    return TinyMlp(SMALL).double()


@model("linear_no_bias", normal(2, 5, 24))
def linear_no_bias() -> nn.Module:
    return nn.Linear(24, 40, bias=False)


@model("bilinear", normal(4, 12), normal(4, 20))
def bilinear() -> nn.Module:
    return nn.Bilinear(12, 20, 8)
