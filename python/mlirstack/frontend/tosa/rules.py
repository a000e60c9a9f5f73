"""What torch-mlir has no conversion to TOSA for, in terms of what it has: the rules that only the TOSA route applies."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.half import accumulation
from mlirstack.frontend.replace_nodes import Rule
from mlirstack.frontend.tosa.scatters import scatter_rules
from mlirstack.frontend.tosa.windows import window_rules

aten = torch.ops.aten


@functools.cache
def tosa_rules() -> dict[Any, Rule]:
    """Operator overload → rule, see :mod:`mlirstack.frontend.replace_nodes`."""
    return {
        **costly_rules(),
        aten.empty.memory_format: _empty,
        aten.log1p.default: _log1p,
        aten.expm1.default: _expm1,
        aten.neg.default: _negative,
    }


@functools.cache
def costly_rules() -> dict[Any, Rule]:
    """Those for the sake of which the linalg route is tried first: it has one operation where these leave many."""
    return {**scatter_rules(), **window_rules(), aten.convolution.default: _grouped_convolution}


def _negative(used: frozenset[int], x: Tensor) -> Any:
    """A product: tosa-reduce-transposes takes zero points of tosa.negate for operands, and reads shapes they do not have."""
    return x * -1.0 if x.is_floating_point() else NotImplemented


def _empty(used: frozenset[int], size: list[int], *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """Values that nobody may rely on."""
    return torch.zeros(size, dtype=dtype)


def _log1p(used: frozenset[int], x: Tensor) -> Tensor:
    """Of 1 + x and what its rounding left of x (Kahan, in Higham's "Accuracy and Stability", 2002, 1.14.1)."""
    wide = _real(x)
    total = wide + 1.0
    left = total - 1.0
    # Beyond 1 / eps nothing was left over, and the quotient of large numbers, by a reciprocal here, may be 0.
    ratio = torch.where(wide < 2.0**60, wide / left, 1.0)
    return torch.where(left == 0, wide, torch.log(total) * ratio).to(_result(x))


def _expm1(used: frozenset[int], x: Tensor) -> Tensor:
    """Of eˣ and its own logarithm, which has the same error (Kahan, as above)."""
    wide = _real(x)
    power = torch.exp(wide)
    usual = (power - 1.0) * (wide / torch.log(power))
    small = torch.where(power == 1, wide, usual)
    return torch.where(torch.logical_and(power < math.inf, power - 1.0 != -1.0), small, power - 1.0).to(_result(x))


def _real(x: Tensor) -> Tensor:
    """In the dtype that eager computes functions of real numbers in; integers are made real first."""
    return x.to(accumulation(_result(x)))


def _result(x: Tensor) -> torch.dtype:
    """The dtype of such a function."""
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


def _grouped_convolution(
    used: frozenset[int],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    """A convolution of each group, where TOSA has none of groups: in three dimensions, and transposed."""
    if groups == 1 or (len(stride) < 3 and not transposed):
        return NotImplemented
    biases = bias.chunk(groups) if bias is not None else [None] * groups
    parts = zip(x.chunk(groups, 1), weight.chunk(groups, 0), biases, strict=True)
    options = (stride, padding, dilation, transposed, output_padding, 1)
    return torch.cat([aten.convolution(part, kernel, offset, *options) for part, kernel, offset in parts], 1)
