"""Functions of two numbers as eager has them next to NaN and infinities: torch-mlir loses them in bounds that are tensors,
and takes the logarithm of a sum of exponentials (torch-mlir 20261001).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.complex_numbers import sides
from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.decompositions.unsigned import common_dtype
from mlirstack.frontend.half import accumulation

aten = torch.ops.aten


def add_pair_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for integers and complex numbers."""
    extend(table, aten.clamp.Tensor, _clamp)
    extend(table, aten.logaddexp.default, functools.partial(_logarithm_of_sum, torch.exp, 1.0))
    extend(table, aten.logaddexp2.default, functools.partial(_logarithm_of_sum, torch.exp2, math.log(2.0)))
    extend(table, aten.hypot.default, _hypot)
    extend(table, aten.pow.Tensor_Scalar, _root)


def _clamp(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Any:
    common = common_dtype([value for value in (x, low, high) if value is not None])
    if not common.is_floating_point:
        return NotImplemented
    result = x.to(common)
    if low is not None:
        result = torch.maximum(result, low.to(common))
    return result if high is None else torch.minimum(result, high.to(common))


def _logarithm_of_sum(power: Callable[[Tensor], Tensor], unit: float, x: Tensor, y: Tensor) -> Any:
    """Of powers of the number whose logarithm is ``unit``; equal infinities have no distance."""
    common = common_dtype((x, y))
    if not common.is_floating_point:
        return NotImplemented
    x, y = x.to(accumulation(common)), y.to(accumulation(common))
    distance = torch.where(x == y, 0.0, (x - y).abs())
    rest = torch.log1p(power(-distance))
    return (torch.maximum(x, y) + (rest if unit == 1.0 else rest / unit)).to(common)


def _hypot(x: Tensor, y: Tensor) -> Any:
    """The larger times the root of a number between 1 and 2, so that no square overflows; infinite beside NaN as well."""
    common = common_dtype((x, y))
    if not common.is_floating_point:
        return NotImplemented
    x, y = x.to(accumulation(common)), y.to(accumulation(common))
    large, _, ratio = sides(x, y)
    length = large * torch.sqrt(ratio * ratio + 1.0)
    infinite = torch.logical_or(x.abs() == math.inf, y.abs() == math.inf)
    return torch.where(infinite, math.inf, length).to(common)


def _root(x: Tensor, exponent: float) -> Any:
    """Powers 0.5 and -0.5 of single and double precision are roots, which are NaN at minus infinity, as eager has them."""
    if x.dtype not in (torch.float32, torch.float64) or abs(exponent) != 0.5:
        return NotImplemented
    return torch.sqrt(x) if exponent > 0 else torch.rsqrt(x)
