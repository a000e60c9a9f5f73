"""The fused operations that torch's transformer layers use for inference, by their definitions.

torch.compile meets them where a model in eval mode is called without gradients; torch.export takes the other path.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mlirstack.frontend.half import accumulation

aten = torch.ops.aten


def add_encoder_decompositions(table: dict[Any, Callable[..., Any]]) -> None:
    """Add the decompositions of this module to ``table``."""
    table[aten._native_multi_head_attention.default] = _multi_head_attention
    table[aten._transformer_encoder_layer_fwd.default] = _encoder_layer


def _multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attention of ``[batch, length, embed_dim]`` with packed weights ``[3 * embed_dim, embed_dim]``; and its weights.

    ``mask`` is true where nothing is attended to: ``[length, length]`` (``mask_type`` 0), ``[batch, length]`` (1) or
    ``[batch, num_head, length, length]`` (2).  A query whose keys are all masked gives NaN, as eager does.
    """
    given = (query, key, value)
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    heads = [_heads(functional.linear(x, w, b), num_head) for x, w, b in zip(given, weights, biases, strict=True)]
    compute = accumulation(query.dtype)
    q, k, v = (head.to(compute) for head in heads)
    scores = torch.matmul(q / math.sqrt(embed_dim // num_head), k.transpose(-2, -1))
    if mask is not None:
        scores = torch.where(_broadcast(mask.to(torch.bool), mask_type), -math.inf, scores)
    attention = torch.softmax(scores, dim=-1)
    joined = torch.matmul(attention, v).to(query.dtype).transpose(1, 2).flatten(2)
    result = functional.linear(joined, proj_weight, proj_bias)
    if not need_weights:
        return result, None
    return result, (attention.mean(1) if average_attn_weights else attention).to(query.dtype)


def _encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """``nn.TransformerEncoderLayer`` over ``[batch, length, embed_dim]``, norms before or behind its two parts."""

    def attended(x: Tensor) -> Tensor:
        packed = (embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _multi_head_attention(x, x, x, *packed, mask, need_weights=False, mask_type=mask_type)[0]

    def feed_forward(x: Tensor) -> Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        return functional.linear(functional.gelu(inner) if use_gelu else inner.relu(), ffn_weight_2, ffn_bias_2)

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    if norm_first:
        x = src + attended(norm(src, norm_weight_1, norm_bias_1))
        return x + feed_forward(norm(x, norm_weight_2, norm_bias_2))
    x = norm(src + attended(src), norm_weight_1, norm_bias_1)
    return norm(x + feed_forward(x), norm_weight_2, norm_bias_2)


def _heads(x: Tensor, count: int) -> Tensor:
    """``[batch, length, count * size]`` to ``[batch, count, length, size]``."""
    return x.reshape(*x.shape[:-1], count, x.shape[-1] // count).transpose(1, 2)


def _broadcast(mask: Tensor, kind: int | None) -> Tensor:
    """The mask as one of ``[batch, heads, length, length]``."""
    return mask[:, None, None, :] if kind == 1 else mask
