"""Activation functions and bounds by formulas that keep eager's accuracy in every dtype, and NaN where eager has it.

torch-mlir's conversion to linalg loses NaN in maxima, minima and clamps; its conversion to TOSA takes a missing bound of a
clamp for the largest finite number, so that infinities are lost.  A number less a float64 is rounded to float32 on the way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.decompositions.unsigned import common_dtype
from mlirstack.frontend.half import accumulation
from mlirstack.frontend.literals import constant

aten = torch.ops.aten

_CUBE = 0.044715  # of Hendrycks and Gimpel's approximation, 2016


def add_activation_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for what is not approximated."""
    extend(table, aten.gelu.default, _gelu)
    extend(table, aten.elu.default, _elu)
    for op, beyond in ((aten.maximum.default, torch.gt), (aten.minimum.default, torch.lt)):
        extend(table, op, functools.partial(_extremum, op, beyond))
    extend(table, aten.clamp.default, _clamp)
    table[aten.clamp_min.default] = lambda x, bound: torch.clamp(x, min=bound)
    table[aten.clamp_max.default] = lambda x, bound: torch.clamp(x, max=bound)
    table[aten.hardtanh.default] = _hardtanh
    extend(table, aten.threshold.default, _integer_threshold)
    table[aten.hardsigmoid.default] = _hardsigmoid
    table[aten.log_sigmoid_forward.default] = _log_sigmoid
    table[aten.rrelu_with_noise_functional.default] = _rrelu_that_draws_nothing
    table[aten.native_dropout.default] = _dropout_that_draws_nothing
    extend(table, aten.rsub.Scalar, _number_minus)


def _hardtanh(x: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Of integers the bounds are cut off to whole numbers, and the result is of their dtype."""
    return torch.clamp(x, low, high) if x.is_floating_point() else torch.clamp(x, int(low), int(high))


def _integer_threshold(x: Tensor, threshold: float, value: float) -> Any:
    """The numbers are cut off to whole ones; a comparison with a real number would round large integers."""
    if x.is_floating_point():
        return NotImplemented
    below = int(value) % 256 if x.dtype == torch.uint8 else int(value)
    return torch.where(x <= int(threshold), torch.full((), below, dtype=x.dtype, device=x.device), x)


def _rrelu_that_draws_nothing(
    x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: object = None
) -> Any:
    """Outside of training the slope is the mean of its bounds."""
    return NotImplemented if training else (torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise)


def _dropout_that_draws_nothing(x: Tensor, p: float, train: bool | None) -> Any:
    return (x.clone(), torch.ones_like(x, dtype=torch.bool)) if train is False or p == 0 else NotImplemented


def _number_minus(x: Tensor, number: float, alpha: float = 1) -> Any:
    if x.dtype != torch.float64:
        return NotImplemented
    return torch.sub(torch.full((), number, dtype=x.dtype, device=x.device), x, alpha=alpha)


def _gelu(x: Tensor, approximate: str = "none") -> Any:
    if approximate != "tanh":
        return NotImplemented
    wide = x.to(accumulation(x.dtype))
    # (1 + tanh u) / 2 is the logistic function of 2u, which has no difference of nearly equal numbers where u < 0.
    inner = 2.0 * math.sqrt(2.0 / math.pi) * (wide + _CUBE * wide * wide * wide)
    return (wide * torch.sigmoid(inner)).to(x.dtype)


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    """eʸ - 1 as 2t / (1 - t) of t = tanh(y / 2), which has no difference of nearly equal numbers where y is small."""
    if not x.is_floating_point() or input_scale <= 0:
        return NotImplemented
    wide = x.to(accumulation(x.dtype))
    half = torch.tanh(torch.clamp(wide, max=0.0) * (input_scale / 2.0))
    return torch.where(wide > 0, wide * scale, half / (1.0 - half) * (2.0 * alpha * scale)).to(x.dtype)


def _extremum(op: Any, beyond: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Any:
    dtype = common_dtype((x, y))
    if not dtype.is_floating_point and x.dtype == y.dtype:
        return NotImplemented
    x, y = x.to(dtype), y.to(dtype)
    if not dtype.is_floating_point:
        return op(x, y)
    return torch.where(torch.logical_or(beyond(x, y), x != x), x, y)  # noqa: PLR0124  (NaN)


def _clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Any:
    """Bounds by comparisons, which are false for NaN."""
    if not x.is_floating_point():
        return NotImplemented
    result = x
    for bound, beyond in ((low, torch.lt), (high, torch.gt)):
        if bound is not None and math.isnan(bound):
            return torch.full_like(x, math.nan)
        if bound is not None:
            limit = constant(bound, x.dtype)
            result = torch.where(beyond(result, limit), limit, result)
    return result


def _log_sigmoid(x: Tensor) -> Any:
    """The logarithm of the logistic function, and what its gradient reads; 1 + e⁻ˣ would round to 1 where x is large."""
    wide = x.to(accumulation(x.dtype))
    small = torch.exp(-wide.abs())
    return (torch.clamp(wide, max=0.0) - torch.log1p(small)).to(x.dtype), small.to(x.dtype)


def _hardsigmoid(x: Tensor) -> Any:
    wide = x.to(accumulation(x.dtype))
    return (torch.clamp(wide + 3.0, 0.0, 6.0) / 6.0).to(x.dtype)
