"""Decompositions of the attention operations that ``scaled_dot_product_attention`` chooses from, and of their gradients.

Each gives the attention and the log-sum-exp of every row of scores, in the shape that this operation gives; they reach the
front end where a program calls them itself, to have the log-sum-exp.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mlirstack.frontend.decompositions.attention import attention_and_logsumexp, attention_gradients, repeat_heads
from mlirstack.frontend.decompositions.extend import Decomposition

aten = torch.ops.aten

_ALIGNMENT = 32  # rows that the memory-efficient kernel rounds its log-sum-exp up to
_INFINITY = float("inf")


def add_fused_attention_decompositions(table: dict[Any, Decomposition]) -> None:
    """Add the decompositions of this module to ``table``; with dropout, or a mask for debugging, operations stay."""
    table[aten._scaled_dot_product_flash_attention_for_cpu.default] = _on_cpu
    table[aten._scaled_dot_product_flash_attention_for_cpu_backward.default] = _on_cpu_backward
    table[aten._scaled_dot_product_flash_attention.default] = _flash
    table[aten._scaled_dot_product_flash_attention_backward.default] = _flash_backward
    table[aten._scaled_dot_product_efficient_attention.default] = _efficient
    table[aten._scaled_dot_product_efficient_attention_backward.default] = _efficient_backward
    table[aten._scaled_dot_product_cudnn_attention.default] = _cudnn


def _on_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """The log-sum-exp ``[batch, heads, queries]`` of a row that sees no key is 0."""
    if dropout_p > 0.0:
        return NotImplemented
    output, logsumexp = _grouped(query, key, value, attn_mask, is_causal, scale)
    logsumexp = torch.where(logsumexp <= torch.finfo(logsumexp.dtype).min, 0.0, logsumexp)
    return output, logsumexp.transpose(1, 2).contiguous().transpose(1, 2)


def _on_cpu_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    if dropout_p > 0.0:
        return NotImplemented
    return _grouped_gradients(gradient, query, key, value, out, logsumexp, attn_mask, is_causal, scale)


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """The log-sum-exp is ``[batch, heads, queries]``."""
    if dropout_p > 0.0 or return_debug_mask:
        return NotImplemented
    output, logsumexp = _grouped(query, key, value, None, is_causal, scale)
    state = query.new_zeros(2, dtype=torch.uint64)
    lengths = query.size(-2), key.size(-2)
    return output, logsumexp, None, None, *lengths, state, state.new_zeros(()), query.new_zeros(0)


def _flash_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> Any:
    if dropout_p > 0.0:
        return NotImplemented
    return _grouped_gradients(gradient, query, key, value, out, logsumexp, None, is_causal, scale)


def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """The log-sum-exp is ``[batch, heads, queries]``, infinity beyond the queries up to a multiple of 32; or empty."""
    if dropout_p > 0.0:
        return NotImplemented
    output, logsumexp = _grouped(query, key, value, attn_bias, is_causal, scale)
    padded = functional.pad(logsumexp, (0, -query.size(-2) % _ALIGNMENT), value=_INFINITY)
    state = query.new_zeros((), dtype=torch.int64)
    return output, padded if compute_log_sumexp else padded[..., :0], state, state


def _efficient_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """A gradient of the bias is not computed here: the operation stays where one is asked for."""
    if dropout_p > 0.0 or grad_input_mask[3]:
        return NotImplemented
    rows = logsumexp[..., : query.size(-2)]
    return *_grouped_gradients(gradient, query, key, value, out, rows, attn_bias, is_causal, scale), None


def _cudnn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """The log-sum-exp is ``[batch, heads, queries, 1]``, or empty."""
    if dropout_p > 0.0 or return_debug_mask:
        return NotImplemented
    output, logsumexp = _grouped(query, key, value, attn_bias, is_causal, scale)
    rows = logsumexp.unsqueeze(-1) if compute_log_sumexp else logsumexp.new_zeros(0)
    state = query.new_zeros((), dtype=torch.int64)
    return output, rows, None, None, query.size(-2), key.size(-2), state, state, None


def _grouped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Attention and log-sum-exp; heads of ``key`` and ``value`` may be fewer."""
    return attention_and_logsumexp(query, repeat_heads(key, query), repeat_heads(value, query), mask, is_causal, scale)


def _grouped_gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value; those of a head that several heads of ``query`` share are added up."""
    repeated = repeat_heads(key, query), repeat_heads(value, query)
    for_query, for_key, for_value = attention_gradients(
        gradient, query, *repeated, output, logsumexp, mask, is_causal, scale
    )
    return for_query, _added_heads(for_key, key), _added_heads(for_value, value)


def _added_heads(gradient: Tensor, operand: Tensor) -> Tensor:
    few = operand.size(-3)
    return (
        gradient
        if gradient.size(-3) == few
        else gradient.reshape(*gradient.shape[:-3], few, -1, *gradient.shape[-2:]).sum(-3)
    )
