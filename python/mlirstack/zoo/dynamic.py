"""Models with dynamic dimensions, named and bounded by ``torch.export.Dim``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from mlirstack.zoo.mlp import TinyMlp
from mlirstack.zoo.recipe import integers, model, normal
from mlirstack.zoo.transformer import VOCABULARY, EmbeddedEncoder
from mlirstack.zoo.vision import conv_norm

BATCH = Dim("batch", min=2, max=64)
LENGTH = Dim("length", min=2, max=128)
OTHER_LENGTH = Dim("other_length", min=2, max=128)


@model("mlp_dynamic", normal(4, 32), dynamic=({0: BATCH},))
def mlp_dynamic() -> nn.Module:
    return TinyMlp(32)


@model("cnn_dynamic", normal(4, 3, 16, 16), dynamic=({0: BATCH},))
def cnn_dynamic() -> nn.Module:
    features = nn.Sequential(conv_norm(3, 8, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(features, nn.Flatten(), nn.Linear(8, 10))


@model("softmax_dynamic", normal(4, 64), dynamic=({0: BATCH},))
def softmax_dynamic() -> nn.Module:
    return nn.Softmax(dim=-1)


@model("encoder_dynamic", integers(0, VOCABULARY, 3, 8), dynamic=({0: BATCH},))
def encoder_dynamic() -> nn.Module:
    return EmbeddedEncoder()


class CausalAttention(nn.Module):
    """Query, key and value (batch, heads, length, size) → the same shape."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)


@model("attention_dynamic_length", *[normal(1, 2, 9, 16)] * 3, dynamic=({2: LENGTH}, {2: LENGTH}, {2: LENGTH}))
def attention_dynamic_length() -> nn.Module:
    return CausalAttention()


class Concatenate(nn.Module):
    """(first, 8) and (second, 8) → (first + second, 8)."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y * 2])


@model("cat_dynamic", normal(5, 8), normal(3, 8), dynamic=({0: LENGTH}, {0: OTHER_LENGTH}))
def cat_dynamic() -> nn.Module:
    return Concatenate()
