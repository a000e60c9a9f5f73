"""Whole models: what a user would hand to torch.compile, at sizes that fill a large GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from cuda_case import Case, Made
from torch import Tensor, nn
from torch.nn import functional as F

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class TinyMlp(nn.Module):
    """fc1 → relu(h) * sigmoid(h) → fc2 → sum over the last dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width) → (batch,)."""
        hidden = self.fc1(x)
        return self.fc2(torch.relu(hidden) * torch.sigmoid(hidden)).sum(-1)


class Block(nn.Module):
    """Pre-norm transformer block: causal attention, GELU feed-forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width), unchanged in shape."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2: learned positions, pre-norm blocks, tied output embedding; ``logits`` of the last position only."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) int64 → (batch, vocabulary)."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x[:, -1]), self.tokens.weight)


class LlamaBlock(nn.Module):
    """Llama's block: RMS norm, rotary positions, grouped queries, SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int, length: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        angles = torch.outer(torch.arange(length), 10000.0 ** -(torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())

    def _rotated(self, x: Tensor) -> Tensor:
        low, high = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-high, low), dim=-1) * self.sin

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width), unchanged in shape."""
        batch, length, width = x.shape
        normed = self.norm1(x)
        q = self.q(normed).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = (layer(normed).view(batch, length, self.groups, self.size).transpose(1, 2) for layer in (self.k, self.v))
        attended = F.scaled_dot_product_attention(self._rotated(q), self._rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class ResidualBlock(nn.Module):
    """ResNet's basic block in eval mode."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width), unchanged in shape."""
        return torch.relu(self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x))))) + x)


def _made(module: Callable[[], nn.Module], dtype: str, *shape: int, channels_last: bool = False) -> Callable[[], Made]:
    def make() -> Made:
        torch.manual_seed(0)
        x = torch.randn(*shape).to(_DTYPES[dtype])
        built = module().eval().to(_DTYPES[dtype])
        if channels_last:
            return built.to(memory_format=torch.channels_last), (x.to(memory_format=torch.channels_last),)
        return built, (x,)

    return make


def _tokens(module: Callable[[], nn.Module], dtype: str, vocabulary: int, *shape: int) -> Callable[[], Made]:
    def make() -> Made:
        torch.manual_seed(0)
        return module().eval().to(_DTYPES[dtype]), (torch.randint(0, vocabulary, shape),)

    return make


def _size(dtype: str) -> int:
    return 4 if dtype == "f32" else 2


def _mlp(dtype: str, batch: int, width: int) -> Case:
    weights = 2 * width * width
    size = (weights + batch * width) * _size(dtype)
    make = _made(lambda: TinyMlp(width), dtype, batch, width)
    return Case(f"tiny_mlp_{batch}x{width}_{dtype}", "models", make, size, 2 * batch * weights, dtype)


def _block(dtype: str, batch: int, length: int, width: int, heads: int) -> Case:
    weights, rows = 12 * width * width, batch * length
    flops = 2 * rows * weights + 2 * rows * length * width  # causal: half of the two attention products
    make = _made(lambda: Block(width, heads), dtype, batch, length, width)
    name = f"transformer_block_{batch}x{length}x{width}_{dtype}"
    return Case(name, "models", make, (weights + 2 * rows * width) * _size(dtype), flops, dtype)


def _gpt(dtype: str, batch: int, length: int, layers: int, width: int) -> Case:
    vocabulary = 50257
    weights, rows = 12 * layers * width * width, batch * length
    flops = 2 * rows * weights + 2 * layers * rows * length * width + 2 * batch * vocabulary * width
    make = _tokens(lambda: Gpt(layers, width, width // 64, vocabulary, length), dtype, vocabulary, batch, length)
    size = (weights + vocabulary * width) * _size(dtype)
    return Case(f"gpt2_{layers}x{width}_{batch}x{length}_{dtype}", "models", make, size, flops, dtype)


def _llama(dtype: str, batch: int, length: int, width: int, heads: int, groups: int, hidden: int) -> Case:
    weights = 2 * width * width + 2 * width * width * groups // heads + 3 * width * hidden
    rows = batch * length
    flops = 2 * rows * weights + 2 * rows * length * width  # causal: half of the two attention products
    make = _made(lambda: LlamaBlock(width, heads, groups, hidden, length), dtype, batch, length, width)
    name = f"llama_block_{batch}x{length}x{width}_{dtype}"
    return Case(name, "models", make, (weights + 2 * rows * width) * _size(dtype), flops, dtype)


def _residual(dtype: str, batch: int, channels: int, side: int) -> Case:
    pixels, weights = batch * side * side, 2 * 9 * channels * channels
    make = _made(lambda: ResidualBlock(channels), dtype, batch, channels, side, side, channels_last=True)
    size = (weights + 2 * pixels * channels) * _size(dtype)
    return Case(f"residual_block_{batch}x{channels}x{side}_{dtype}", "models", make, size, 2 * pixels * weights, dtype)


CASES: tuple[Case, ...] = (
    *(_mlp(dtype, 512, 2048) for dtype in _DTYPES),
    *(_mlp(dtype, 16, 2048) for dtype in _DTYPES),
    *(_block(dtype, 8, 1024, 1024, 16) for dtype in ("f16", "bf16")),
    _gpt("bf16", 4, 1024, 12, 768),
    _gpt("f16", 1, 128, 12, 768),
    _llama("bf16", 2, 2048, 2048, 16, 4, 5632),
    _llama("bf16", 1, 128, 2048, 16, 4, 5632),
    *(_residual("f16", 32, channels, side) for channels, side in ((64, 56), (256, 14))),
)
