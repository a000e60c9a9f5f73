"""Normalizations of ATen by their definitions: layer, RMS and group norm, and batch norm by running statistics.

Half precision is computed in float32 and rounded once, variances by two passes, as eager's kernels do.  Torch's own
decompositions go by what their eager kernel does on a CPU, strides included, and leave copies and gathers behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import extend
from mlirstack.frontend.half import HALF, accumulation

aten = torch.ops.aten

_BATCH_NORMS = (
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
    aten.native_batch_norm.default,
)


def add_norm_decompositions(table: dict[Any, Callable[..., Any]]) -> None:
    """Add them to a decomposition table."""
    table.update(
        {
            aten.layer_norm.default: _layer_norm,
            aten.native_layer_norm.default: _native_layer_norm,
            aten.native_group_norm.default: _native_group_norm,
            aten.rms_norm.default: _rms_norm,
            aten._native_batch_norm_legit_no_training.default: _batch_norm_no_training,
        }
    )
    extend(table, aten.linalg_vector_norm.default, _norm_of_one)
    for op in _BATCH_NORMS:
        table[op] = _with_rounded_statistics(table.get(op))


def _norm_of_one(
    x: Tensor, ord: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """The norm of single numbers is their magnitude, as in eager: their squares may be infinite, or zero."""
    axes = list(dim) if dim and x.dim() else list(range(x.dim()))
    if ord == 0 or dtype is not None or any(not isinstance(x.shape[axis], int) or x.shape[axis] != 1 for axis in axes):
        return NotImplemented
    return x.abs() if keepdim or not axes else x.abs().squeeze(axes)


def _layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    del cudnn_enable
    return _native_layer_norm(x, normalized_shape, weight, bias, eps)[0]


def _native_layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last dimensions; also mean and 1/deviation, kept dims."""
    wide = x.to(accumulation(x.dtype))
    axes = list(range(x.dim() - len(normalized_shape), x.dim()))
    mean = wide.mean(axes, keepdim=True)
    centered = wide - mean
    inverse = torch.rsqrt((centered * centered).mean(axes, keepdim=True) + eps)
    y = centered * inverse
    if weight is not None:
        y = y * weight.to(wide.dtype)
    if bias is not None:
        y = y + bias.to(wide.dtype)
    statistics = x.dtype if weight is None else weight.dtype
    return y.to(x.dtype), mean.to(statistics), inverse.to(statistics)


def _native_group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """``(x - mean) / sqrt(var + eps) * weight + bias``, with statistics of groups of channels and weights of each channel;
    also mean and 1/deviation, ``[batch, groups]``."""
    wide = x.to(accumulation(x.dtype)).reshape(batch, groups, channels // groups, pixels)
    mean = wide.mean([2, 3], keepdim=True)
    centered = wide - mean
    inverse = torch.rsqrt((centered * centered).mean([2, 3], keepdim=True) + eps)
    y = centered * inverse
    if weight is not None:
        y = y * weight.reshape(1, groups, channels // groups, 1).to(wide.dtype)
    if bias is not None:
        y = y + bias.reshape(1, groups, channels // groups, 1).to(wide.dtype)
    statistics = (mean.to(x.dtype).reshape(batch, groups), inverse.to(x.dtype).reshape(batch, groups))
    return y.to(x.dtype).reshape(x.shape), *statistics


def _rms_norm(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """``x / sqrt(mean(x²) + eps) * weight`` over the last dimensions; ``eps`` defaults to the spacing of the dtype."""
    wide = x.to(accumulation(x.dtype))
    axes = list(range(x.dim() - len(normalized_shape), x.dim()))
    epsilon = torch.finfo(wide.dtype).eps if eps is None else eps
    y = wide * torch.rsqrt((wide * wide).mean(axes, keepdim=True) + epsilon)
    return (y if weight is None else y * weight.to(wide.dtype)).to(x.dtype)


def _batch_norm_no_training(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """``x * scale + shift`` a channel, with scale and shift computed from the running statistics."""
    del momentum
    compute = accumulation(x.dtype)
    scale = torch.rsqrt(running_var.to(compute) + eps)
    if weight is not None:
        scale = scale * weight.to(compute)
    shift = -running_mean.to(compute) * scale
    if bias is not None:
        shift = shift + bias.to(compute)
    channel = [-1, *([1] * (x.dim() - 2))]
    y = x.to(compute) * scale.reshape(channel) + shift.reshape(channel)
    none = x.new_empty((0,))
    return y.to(x.dtype), none, none


def _with_rounded_statistics(otherwise: Callable[..., Any] | None) -> Callable[..., Any]:
    """Batch norm of half precision by the statistics of the batch: eager's kernel keeps mean and 1/deviation in the dtype of
    the weights, and computes with what is left of them."""

    def decomposition(x: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any) -> Any:
        results = otherwise(x, weight, bias, *rest) if otherwise else NotImplemented
        training = next(value for value in rest if isinstance(value, bool))
        if results is NotImplemented or not training or x.dtype not in HALF:
            return results
        wide, channel = x.float(), [-1, *([1] * (x.dim() - 2))]
        axes = [axis for axis in range(x.dim()) if axis != 1]
        exact = wide.mean(axes, keepdim=True)
        variance = ((wide - exact) * (wide - exact)).mean(axes)
        kept = x.dtype if weight is None else weight.dtype
        mean, inverse = exact.flatten().to(kept), torch.rsqrt(variance + rest[-1]).to(kept)
        y = (wide - mean.float().reshape(channel)) * inverse.float().reshape(channel)
        if weight is not None:
            y = y * weight.float().reshape(channel)
        if bias is not None:
            y = y + bias.float().reshape(channel)
        return y.to(x.dtype), mean, inverse, *results[3:]

    return decomposition
