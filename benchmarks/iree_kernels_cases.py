"""The cases of ``iree_kernels.py``: those of the deployed bundles, and some more that kernels of ours are about.

Operands of large products are inputs, so that bundles stay small: golden inputs are drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import deploy_models
import torch
from deploy_models import Case
from torch import nn
from torch.nn import functional


class Chain(nn.Module):
    """Elementwise operations that one kernel can compute: memory is read once and written once."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * 1.5 + 0.25) * torch.sigmoid(x) - torch.exp(-x * x)


class Attention(nn.Module):
    """Attention as a whole."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v)


class Gpt(nn.Module):
    """A GPT-2 of two layers, small enough to be carried: token and position embeddings, causal blocks, tied head."""

    def __init__(self, width: int = 256, heads: int = 8, layers: int = 2, words: int = 2048, length: int = 256) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(deploy_models.TransformerBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)


def _normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def _attention() -> Case:
    return Case(Attention(), tuple(_normal(4, 16, 1024, 64, dtype=torch.float16) for _ in range(3)))


def _half(made: Case, dtype: torch.dtype = torch.bfloat16) -> Case:
    return Case(made.module.to(dtype), tuple(x.to(dtype) if x.is_floating_point() else x for x in made.inputs))


def _gpt() -> Case:
    return _half(Case(Gpt(), (torch.randint(0, 2048, (4, 256)),)))


class Norm(nn.Module):
    """Rows over their root mean square, as Llama's layers have it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


CPU, CUDA = "cpu", "cuda"
_SHARED = {name: made for name, made in deploy_models.CASES.items() if name != "dynamic_batch"}
_ON_CUDA: Mapping[str, Callable[[], Case]] = {
    **_SHARED,
    "chain_16m": lambda: Case(Chain(), (_normal(16 * 2**20),)),
    "attention-f16": _attention,
    "transformer_block-bf16": lambda: _half(_SHARED["transformer_block"]()),
    "residual_block-f16": lambda: _half(_SHARED["residual_block"](), torch.float16),
    "gpt2_like-bf16": _gpt,
}


_ON_CPU: Mapping[str, Callable[[], Case]] = {
    "softmax_1024": lambda: Case(deploy_models.Softmax(), (_normal(1024, 1024),)),
    "softmax_1021": lambda: Case(deploy_models.Softmax(), (_normal(1024, 1021),)),
    "softmax_1024-bf16": lambda: Case(deploy_models.Softmax(), (_normal(1024, 1024, dtype=torch.bfloat16),)),
    "softmax_64": lambda: Case(deploy_models.Softmax(), (_normal(8192, 64),)),
    "layer_norm_1024": lambda: Case(nn.LayerNorm(1024), (_normal(1024, 1024),)),
    "layer_norm_768": lambda: Case(nn.LayerNorm(768), (_normal(8, 128, 768),)),
    "rms_norm_1024": lambda: Case(Norm(1024), (_normal(1024, 1024),)),
    "tiny_mlp-f32": _SHARED["tiny_mlp-f32"],
    "transformer_block": _SHARED["transformer_block"],
    "gpt2_like": lambda: Case(Gpt(), (torch.randint(0, 2048, (4, 256)),)),
}
CASES: Mapping[str, Mapping[str, Callable[[], Case]]] = {CUDA: _ON_CUDA, CPU: _ON_CPU}


def case(name: str, on: str) -> Case:
    """A case by name, its weights and inputs drawn from seed 0."""
    torch.manual_seed(0)
    made = CASES[on][name]()
    return Case(made.module.eval(), made.inputs, made.dynamic_shapes)
