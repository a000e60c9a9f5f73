"""What is known of operations that add up: how many terms each sum has, and where the sign of a zero is nobody's rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

Terms = Callable[[Sequence[Tensor], Tensor, Mapping[str, Any]], int]
"""The number of terms of one sum, from operands, result and options."""


def _reduced(operands: Sequence[Tensor], result: Tensor, options: Mapping[str, Any]) -> int:
    return operands[0].numel() // max(result.numel(), 1)


def _scanned(operands: Sequence[Tensor], result: Tensor, options: Mapping[str, Any]) -> int:
    return int(operands[0].shape[options["dim"]])


def _inner(operands: Sequence[Tensor], result: Tensor, options: Mapping[str, Any]) -> int:
    """Of a product of matrices, and of a number that is added to it."""
    return operands[0].shape[-1] + (len(operands) == 3)


def _window(operands: Sequence[Tensor], result: Tensor, options: Mapping[str, Any]) -> int:
    """Of a convolution with weights ``[outputs, inputs of a group, …]``, and of its bias."""
    weight = operands[1]
    return weight.numel() // max(weight.shape[0], 1) + 1


TERMS: Mapping[str, Terms] = {
    **dict.fromkeys(("sum", "sum_all", "mean"), _reduced),
    "cumsum": _scanned,
    **dict.fromkeys(("matmul", "batched_matmul", "linear", "gram", "einsum"), _inner),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _window),
}
"""Operations that are sums of their operands, or of products of two of them."""

# Where a sum of products begins, at zero or at its first term, decides whether negative zeros stay negative: eager's matrix
# kernels do it one way in some shapes, the other in others.
_PRODUCTS = (
    *("matmul", "batched_matmul", "linear", "gram", "einsum", "attention", "conv1d", "conv2d", "conv3d"),
    *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
)
# A formula in one order or another.
_FORMULAS = ("layer_norm", "rms_norm", "group_norm", "batch_norm", "lerp", "upsample_bilinear")
# Zeros of both signs are equal, and either is the larger: eager's vectors, and what is left over after them, differ.
_EXTREMA = (
    *("maximum", "minimum", "relu", "relu6", "hardtanh", "hardswish", "clamp_min", "clamp_max", "threshold", "amax", "amin"),
    *("max_value", "min_value", "top", "sorted", "max_pool1d", "max_pool2d", "max_pool3d"),
)
ZEROS_OF_EITHER_SIGN = frozenset((*_PRODUCTS, *_FORMULAS, *_EXTREMA))
"""Operations whose result, where it is zero, may be a zero of either sign."""
