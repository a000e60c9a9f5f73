"""Bilinear resizing by eager's formula: each row and each column is a weighted sum of two.

torch-mlir's conversions add a weighted difference to one of the two, which is NaN between equal infinities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.half import accumulation

aten = torch.ops.aten


def add_bilinear_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for dynamic sizes and for integers."""
    extend(table, aten.upsample_bilinear2d.vec, _by_sizes_or_factors)
    extend(table, aten.upsample_bilinear2d.default, _by_sizes)


def _by_sizes_or_factors(
    x: Tensor, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None
) -> Any:
    if output_size is not None:
        return _by_sizes(x, output_size, align_corners)
    assert scale_factors is not None
    sizes = [int(size * factor) for size, factor in zip(x.shape[2:], scale_factors, strict=True)]
    return _by_sizes(x, sizes, align_corners, *scale_factors)


def _by_sizes(
    x: Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Any:
    """``x`` ``[N, C, H, W]`` → ``[N, C, *output_size]``, computed in float32 where it is of half precision."""
    if not x.is_floating_point() or not all(isinstance(size, int) for size in (*x.shape[2:], *output_size)):
        return NotImplemented
    result = x.to(accumulation(x.dtype))
    for dim, out, factor in ((2, output_size[0], scales_h), (3, output_size[1], scales_w)):
        result = _along(result, dim, out, align_corners, factor)
    return result.to(x.dtype)


def _along(x: Tensor, dim: int, out: int, align_corners: bool, factor: float | None) -> Tensor:
    """``x`` with ``out`` positions in ``dim``; ``factor`` is how many times as many they are, if the caller gave that."""
    size = x.shape[dim]
    places = torch.arange(out, dtype=x.dtype)
    if size == out:
        source = places
    elif align_corners:
        source = places * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        step = 1.0 / factor if factor is not None and factor > 0 else size / out
        source = torch.clamp((places + 0.5) * step - 0.5, min=0.0)
    first = torch.clamp(source.to(torch.int64), max=size - 1)
    # Where nothing lies between, the second is the first itself.
    second = first if size == out else torch.clamp(first + 1, max=size - 1)
    weight = torch.clamp(source - first.to(x.dtype), 0.0, 1.0).reshape([-1 if axis == dim else 1 for axis in range(4)])
    return x.index_select(dim, first) * (1.0 - weight) + x.index_select(dim, second) * weight
