"""Scaled dot-product attention by its definition, two matrix products around a softmax, and its gradients.

Half-precision operands are computed in float32 and rounded once at the end, as eager's kernels do on the CPU.  The gradients
need nothing of the size of the scores: weights are computed again from the log-sum-exp of the scores of each row.
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

    ``attn_mask`` is boolean (True: attend) or added to the scores.  A query whose scores are all -infinity, by the mask or
    by the numbers themselves, gives zeros, as in eager.  With ``enable_gqa`` each head of ``key`` and ``value`` serves a
    group of heads of ``query``.  Dropout is refused earlier, by :mod:`mlirstack.frontend.randomness`, unless the program may
    draw numbers of its own.
    """
    if enable_gqa:
        key, value = repeat_heads(key, query), repeat_heads(value, query)
    scores = _scores(query, key, attn_mask, is_causal, scale)
    weights = torch.softmax(scores, dim=-1)
    if key.size(-2) != 0:
        weights = torch.where(_is_nothing(torch.amax(scores, dim=-1, keepdim=True)), 0.0, weights)
    if dropout_p > 0:
        weights = torch.native_dropout(weights, dropout_p, True)[0]
    return _product(weights, query, value)


def attention_and_logsumexp(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention, and per query ``[..., heads, length]`` the logarithm of the sum of the exponentials of its scores.

    The latter is -inf where all keys are masked; it is of the dtype that sums are kept in, float32 for half precision.
    """
    scores = _scores(query, key, attn_mask, is_causal, scale)
    largest = torch.amax(scores, dim=-1, keepdim=True)
    shift = torch.where(_is_nothing(largest), 0.0, largest)
    exponentials = torch.exp(scores - shift)
    total = exponentials.sum(dim=-1, keepdim=True)
    weights = torch.where(_is_nothing(largest), 0.0, exponentials / total)
    return _product(weights, query, value), (torch.log(total) + shift).squeeze(-1)


def attention_gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, given that of ``output``.

    Everything of the size of the scores is ``[..., heads, keys, queries]``, the other way round than in the forward pass:
    two of the four products read it so, and a common graph of both passes has no reason to keep the scores.
    Method: Dao et al., "FlashAttention", algorithm 4.
    """
    compute = accumulation(query.dtype)
    scores = _scores(query, key, attn_mask, is_causal, scale, keys_first=True)
    subtracted = torch.where(_is_nothing(logsumexp), _INFINITY, logsumexp).unsqueeze(-2)
    weights = torch.exp(scores - subtracted).to(query.dtype)
    for_value = torch.matmul(weights, gradient)
    along = torch.matmul(value.to(compute), gradient.to(compute).transpose(-2, -1))
    mean = (gradient.to(compute) * output.to(compute)).sum(dim=-1).unsqueeze(-2)
    for_scores = (weights.to(compute) * (along - mean) * _factor(query, scale)).to(query.dtype)
    return torch.matmul(for_scores.transpose(-2, -1), key), torch.matmul(for_scores, query), for_value


def repeat_heads(tensor: Tensor, query: Tensor) -> Tensor:
    """``[..., few, length, size]`` to ``[..., heads, length, size]``, as many as ``query`` has, each repeated in place."""
    few, heads = tensor.size(-3), query.size(-3)
    if few == heads:
        return tensor
    repeated = tensor.unsqueeze(-3).expand(*tensor.shape[:-2], heads // few, *tensor.shape[-2:])
    return repeated.reshape(*tensor.shape[:-3], heads, *tensor.shape[-2:])


def _factor(query: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.size(-1) or 1) if scale is None else scale  # heads of no size have scores of zero


def _scores(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None, *, keys_first: bool = False
) -> Tensor:
    """Scores ``[..., queries, keys]``, -inf where a key is not seen; ``keys_first``: ``[..., keys, queries]``."""
    compute = accumulation(query.dtype)
    q, k = query.to(compute) * _factor(query, scale), key.to(compute)
    scores = torch.matmul(k, q.transpose(-2, -1)) if keys_first else torch.matmul(q, k.transpose(-2, -1))
    if is_causal:
        rows = torch.arange(q.size(-2), device=q.device)
        columns = torch.arange(k.size(-2), device=q.device)
        seen = columns.unsqueeze(-1) <= rows if keys_first else columns <= rows.unsqueeze(-1)
        scores = torch.where(seen, scores, -_INFINITY)
    if mask is None:
        return scores
    turned = mask.transpose(-2, -1) if keys_first else mask
    return torch.where(turned, scores, -_INFINITY) if mask.dtype == torch.bool else scores + turned.to(compute)


def _is_nothing(largest: Tensor) -> Tensor:
    """Not ``== -infinity``: the maximum on the way through TOSA never falls below the lowest finite number."""
    return largest <= torch.finfo(largest.dtype).min


def _product(weights: Tensor, query: Tensor, value: Tensor) -> Tensor:
    """``weights @ value``, rounded once, as eager lays it out."""
    return _like_eager(torch.matmul(weights, value.to(weights.dtype)).to(query.dtype), query, value)


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
