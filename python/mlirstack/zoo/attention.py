"""Attention in the forms that models use: fused, masked, grouped-query, half precision, and spelled out."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlirstack.zoo.recipe import booleans, model, normal, operation

HEADS = (1, 2, 8, 16)  # batch, heads, length, head size


@operation("sdpa", normal(*HEADS), normal(*HEADS), normal(*HEADS))
def sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value)


@operation("sdpa_causal", normal(*HEADS), normal(*HEADS), normal(*HEADS))
def sdpa_causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


@operation("sdpa_float_mask", normal(*HEADS), normal(*HEADS), normal(*HEADS), normal(1, 2, 8, 8))
def sdpa_float_mask(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


@operation("sdpa_bool_mask", normal(*HEADS), normal(*HEADS), normal(*HEADS), booleans(1, 1, 8, 8))
def sdpa_bool_mask(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    # The diagonal stays visible: a row that sees nothing has no defined answer.
    diagonal = torch.eye(8, dtype=torch.bool, device=mask.device)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask | diagonal)


@operation("sdpa_gqa", normal(2, 8, 6, 16), normal(2, 2, 6, 16), normal(2, 2, 6, 16))
def sdpa_gqa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


@operation("sdpa_scale", normal(2, 3, 5, 12), normal(2, 3, 7, 12), normal(2, 3, 7, 12))
def sdpa_scale(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, scale=0.125)


@operation("sdpa_f16", *[normal(*HEADS, dtype=torch.float16)] * 3)
def sdpa_f16(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


@operation("sdpa_bf16", *[normal(*HEADS, dtype=torch.bfloat16)] * 3)
def sdpa_bf16(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


@operation("attention_by_hand", normal(*HEADS), normal(*HEADS), normal(*HEADS))
def attention_by_hand(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    future = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).triu(1)
    return torch.softmax(scores.masked_fill(future, -math.inf), dim=-1) @ value


class SelfAttention(nn.Module):
    """x (batch, length, width) → the attended x and the attention weights averaged over the heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.attention(x, x, x, need_weights=True)


@model("multihead_attention", normal(2, 6, 32))
def multihead_attention() -> nn.Module:
    return SelfAttention(32, 4)
