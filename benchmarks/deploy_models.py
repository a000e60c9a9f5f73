"""The models whose bundles are measured: small enough to be carried to another machine, large enough to be timed there.

Operands of the large products are inputs, so that bundles stay small: golden inputs are drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class TinyMlp(nn.Module):
    """Two layers of 2048, gated in between, with the weights as inputs."""

    def forward(
        self, x: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor, b2: torch.Tensor
    ) -> torch.Tensor:
        y = functional.linear(x, w1, b1)
        return functional.linear(torch.relu(y) * torch.sigmoid(y), w2, b2)


class Matmul(nn.Module):
    """A product of two inputs."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.mm(a, b)


class MatmulByRows(nn.Module):
    """A product whose second input lies by rows, as weights do: on a processor, torch is slow at any other of float16."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return functional.linear(a, b)


class Softmax(nn.Module):
    """Softmax over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)


class ResidualBlock(nn.Module):
    """The basic block of ResNet: two 3x3 convolutions with batch normalization, and the way around them."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + x)


class TransformerBlock(nn.Module):
    """Causal attention of 8 heads and a GELU MLP, normalized before each."""

    def __init__(self, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class DynamicMlp(nn.Module):
    """A classifier of any number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.layers(x), -1)


@dataclass(frozen=True)
class Case:
    """A model with example inputs; ``dynamic_shapes`` is torch.export's."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    dynamic_shapes: Any = None


def _normal(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape) * scale).to(dtype)


def _mlp(dtype: torch.dtype) -> Case:
    w, b = [_normal(2048, 2048, dtype=dtype, scale=2048**-0.5) for _ in range(2)], _normal(2048, dtype=dtype)
    return Case(TinyMlp(), (_normal(512, 2048, dtype=dtype), w[0], b, w[1], b.clone()))


def _matmul(dtype: torch.dtype) -> Case:
    return Case(Matmul(), (_normal(4096, 4096, dtype=dtype), _normal(4096, 4096, dtype=dtype)))


def _dynamic() -> Case:
    return Case(DynamicMlp(), (_normal(64, 512),), ({0: torch.export.Dim("batch", min=1, max=1024)},))


CASES: Mapping[str, Callable[[], Case]] = {
    "tiny_mlp-f32": lambda: _mlp(torch.float32),
    "tiny_mlp-f16": lambda: _mlp(torch.float16),
    "tiny_mlp-bf16": lambda: _mlp(torch.bfloat16),
    "matmul_4096-f32": lambda: _matmul(torch.float32),
    "matmul_4096-f16": lambda: Case(MatmulByRows(), _matmul(torch.float16).inputs),
    "matmul_4096-bf16": lambda: _matmul(torch.bfloat16),
    "softmax_8192": lambda: Case(Softmax(), (_normal(8192, 8192),)),
    "layer_norm_8192": lambda: Case(nn.LayerNorm(8192), (_normal(8192, 8192),)),
    "residual_block": lambda: Case(ResidualBlock(), (_normal(8, 64, 56, 56),)),
    "transformer_block": lambda: Case(TransformerBlock(), (_normal(4, 256, 256),)),
    "dynamic_batch": _dynamic,
}


def case(name: str) -> Case:
    """A case by name, its weights and inputs drawn from seed 0."""
    torch.manual_seed(0)
    made = CASES[name]()
    return Case(made.module.eval(), made.inputs, made.dynamic_shapes)
