"""Decompositions of ``torch.ops.quantized_decomposed``, which PT2E quantisation writes into a graph.

They are eager's formulas for scales that are chosen in each call: a factor is the reciprocal of the scale, taken in float64
and rounded to float32, ties go to even, and per-token codes are computed in float64.  Groups of a channel are here because
torch-mlir gives them wrong scales (20261001).  Operators of other scales lower as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mlirstack.errors import UnsupportedError

Decomposition = Callable[..., Any]

_EAGER_MODULES = "torch.ao.nn."  # quantized, quantized.dynamic, intrinsic.quantized, …


def quantized_decompositions() -> dict[Any, Decomposition]:
    """Operator overload → decomposition; empty where no quantisation library has defined the operators."""
    found: dict[Any, Decomposition] = {}
    for name, rule in _RULES.items():
        packet, _, overload = name.partition(".")
        if hasattr(torch.ops.quantized_decomposed, packet):
            found[getattr(getattr(torch.ops.quantized_decomposed, packet), overload)] = rule
    return found


def refuse_packed_modules(model: nn.Module) -> None:
    """Raise :class:`UnsupportedError` for modules of eager-mode quantisation: their weights are opaque to torch.export."""
    for name, module in model.named_modules():
        kind = type(module)
        if kind.__module__.startswith(_EAGER_MODULES) and ".quantized" in kind.__module__:
            raise UnsupportedError(
                f"'{name or 'the model'}' is a {kind.__module__}.{kind.__qualname__}, whose weights torch.export cannot see",
                hint="quantise the exported program (PT2E), or write quantized_decomposed operators into the model",
            )


def _quantize_tensor(x: Tensor, scale: Tensor, zero_point: Tensor, low: Any, high: Any, dtype: torch.dtype) -> Tensor:
    inverse = (1.0 / scale.reshape(()).to(torch.float64)).to(torch.float32)
    shift = zero_point.reshape(()).to(torch.float32)
    return torch.clamp(torch.round(x.to(torch.float32) * inverse) + shift, low, high).to(dtype)


def _dequantize_tensor(x: Tensor, scale: Tensor, zero_point: Tensor, *bounds: Any, **options: Any) -> Tensor:
    wide = options.get("out_dtype") or torch.float32
    return (x.to(wide) - zero_point.reshape(()).to(wide)) * scale.reshape(()).to(wide)


def _choose(x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scale and zero point for all of ``x``, of shape [1]."""
    del dtype
    least, most = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = ((most - least) / float(high - low)).to(torch.float32).clamp(min=eps)
    zero_point = torch.clamp(low - torch.round(least / scale).to(torch.int32), low, high)
    return scale.to(torch.float64).reshape(1), zero_point.to(torch.int64).reshape(1)


def _choose_symmetric(x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    most = torch.maximum(-x.amin().clamp(max=0), x.amax().clamp(min=0))
    scale = (most / (float(high - low) / 2)).to(torch.float32).clamp(min=eps)
    middle = 128 if dtype == torch.uint8 else 0
    return scale.to(torch.float64).reshape(1), torch.full((1,), middle, dtype=torch.int64, device=x.device)


def _choose_tokens(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scale and zero point for each row of the last dimension, which is kept with size 1."""
    del dtype
    low, high = -128, 127
    least, most = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = ((most - least) / float(high - low)).clamp(min=torch.finfo(torch.float32).eps)
    below, above = least / scale, most / scale
    zero_point = torch.where((low + below) + (high + above) > 0, low - below, high - above)
    return scale.to(torch.float64), torch.clamp(zero_point, low, high).round().to(torch.int64)


def _choose_tokens_symmetric(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    largest = x.abs().amax(-1, keepdim=True)
    scale = (largest.float() if x.dtype == torch.float16 else largest).clamp(min=1e-5) / torch.iinfo(dtype).max
    return scale, torch.zeros_like(scale)


def _quantize_tokens(x: Tensor, scales: Tensor, zero_points: Tensor, low: int, high: int, dtype: torch.dtype) -> Tensor:
    return x.mul(1.0 / scales).add(zero_points).round().clamp(low, high).to(dtype)


def _dequantize_tokens(
    x: Tensor, scales: Tensor, zero_points: Tensor, low: int, high: int, dtype: torch.dtype, output_dtype: torch.dtype
) -> Tensor:
    del low, high, dtype
    return ((x - zero_points) * scales).to(output_dtype)


def _quantize_groups(
    x: Tensor, scales: Tensor, zero_points: Tensor, low: int, high: int, dtype: torch.dtype, group_size: int = 128
) -> Tensor:
    rows = x.reshape(-1, min(group_size, x.shape[-1]))
    codes = rows.mul(1.0 / scales.reshape(-1, 1)).add(zero_points.reshape(-1, 1)).round().clamp(low, high)
    return codes.to(dtype).reshape(x.shape)


def _dequantize_groups(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    low: int,
    high: int,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    del low, high, dtype
    rows = x.reshape(-1, min(group_size, x.shape[-1]))
    shifted = rows if zero_points is None else rows - zero_points.reshape(-1, 1)
    return (shifted * scales.reshape(-1, 1)).reshape(x.shape).to(output_dtype)


_RULES: dict[str, Decomposition] = {
    "quantize_per_tensor.tensor": _quantize_tensor,
    "dequantize_per_tensor.tensor": _dequantize_tensor,
    "quantize_per_token.default": _quantize_tokens,
    "dequantize_per_token.default": _dequantize_tokens,
    "quantize_per_channel_group.default": _quantize_groups,
    "dequantize_per_channel_group.default": _dequantize_groups,
    "choose_qparams_per_token.default": _choose_tokens_symmetric,
    "choose_qparams_per_token_asymmetric.default": _choose_tokens,
    "choose_qparams.tensor": _choose,
    "choose_qparams_symmetric.tensor": _choose_symmetric,
}
