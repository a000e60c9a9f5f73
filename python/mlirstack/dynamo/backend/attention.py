"""Attention in a graph that is being traced for ``torch.compile``: as one product of products, in training as well.

torch would trace it as matrix products around a softmax whose weights the backward graph reads, so that a kernel would have
to write them to memory.  Here the forward graph keeps the log-sum-exp of each row instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from mlirstack.frontend.decompositions import attention

_CALLS = (scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default)


class TracedAttention(TorchFunctionMode):
    """While active, ``scaled_dot_product_attention`` is our decomposition, with gradients that compute weights again."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return (_attention if func in _CALLS else func)(*args, **(kwargs or {}))


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """As ``torch.nn.functional.scaled_dot_product_attention``.

    Dropout is left to torch, and gradients of the mask to autograd.
    """
    if dropout_p > 0.0:
        return scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        key, value = attention.repeat_heads(key, query), attention.repeat_heads(value, query)
    with_gradients = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
    if with_gradients and (attn_mask is None or not attn_mask.requires_grad):
        return _with_gradients(query, key, value, attn_mask, is_causal, scale)
    return attention.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale=scale)


class _Attention(torch.autograd.Function):
    """Attention that keeps its operands, its result and the log-sum-exp of each row for its gradients."""

    @staticmethod
    def forward(
        context: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
    ) -> Tensor:
        output, logsumexp = attention.attention_and_logsumexp(query, key, value, mask, is_causal, scale)
        context.save_for_backward(query, key, value, output, logsumexp, mask)
        context.is_causal, context.scale = is_causal, scale
        return output

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, logsumexp, mask = context.saved_tensors
        found = attention.attention_gradients(
            gradients[0], query, key, value, output, logsumexp, mask, context.is_causal, context.scale
        )
        return *found, None, None, None


_with_gradients: Callable[..., Tensor] = _Attention.apply
