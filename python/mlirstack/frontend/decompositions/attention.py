"""Scaled dot-product attention by its definition: two matrix products around a softmax.

Half-precision operands are computed in float32 and rounded once at the end, as eager's kernels do on the CPU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mlirstack.frontend.half import accumulation

_INFINITY = float("inf")


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value`` over ``[..., heads, length, head size]``.

    ``attn_mask`` is boolean (True: attend) or added to the scores.  A query whose keys are all masked gives zeros, as in
    eager.  With ``enable_gqa`` each head of ``key`` and ``value`` serves a group of heads of ``query``.  Dropout is
    refused earlier, by :mod:`mlirstack.frontend.randomness`, unless the program may draw numbers of its own.
    """
    compute = accumulation(query.dtype)
    q, k, v = query.to(compute), key.to(compute), value.to(compute)
    if enable_gqa:
        k, v = _repeat_heads(k, q.size(-3)), _repeat_heads(v, q.size(-3))
    factor = 1.0 / math.sqrt(query.size(-1) or 1) if scale is None else scale  # heads of no size have scores of zero
    scores = torch.matmul(q * factor, k.transpose(-2, -1))
    if is_causal:
        rows = torch.arange(q.size(-2), device=q.device).unsqueeze(-1)
        columns = torch.arange(k.size(-2), device=q.device)
        scores = torch.where(columns <= rows, scores, -_INFINITY)
    if attn_mask is None:
        weights = torch.softmax(scores, dim=-1)
    else:
        masked = attn_mask.dtype == torch.bool
        scores = torch.where(attn_mask, scores, -_INFINITY) if masked else scores + attn_mask.to(compute)
        # Not "== -infinity": the maximum on the way through TOSA never falls below the lowest finite number.
        nothing = torch.amax(scores, dim=-1, keepdim=True) <= torch.finfo(compute).min
        weights = torch.where(nothing, 0.0, torch.softmax(scores, dim=-1))
    if dropout_p > 0:
        weights = torch.native_dropout(weights, dropout_p, True)[0]
    return _like_eager(torch.matmul(weights, v).to(query.dtype), query, value)


def _repeat_heads(tensor: Tensor, heads: int) -> Tensor:
    """``[..., few, length, size]`` to ``[..., heads, length, size]``, each head repeated in place."""
    few = tensor.size(-3)
    if few == heads:
        return tensor
    repeated = tensor.unsqueeze(-3).expand(*tensor.shape[:-2], heads // few, *tensor.shape[-2:])
    return repeated.reshape(*tensor.shape[:-3], heads, *tensor.shape[-2:])


def _like_eager(output: Tensor, query: Tensor, value: Tensor) -> Tensor:
    """The strides that eager's fused kernel gives: those of the query.

    Later views in the user's code rely on them; the values are the same, and the importer knows no strides.
    """
    if query.dim() != 4 or query.size(-1) != value.size(-1):
        return output
    order = sorted(range(4), key=lambda axis: -query.stride()[axis])
    if order == [0, 1, 2, 3]:
        return output
    return output.permute(order).contiguous().permute([order.index(axis) for axis in range(4)])
