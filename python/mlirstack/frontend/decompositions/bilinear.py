"""Linear resizing by eager's formula, in one to three dimensions: each row and each column is a weighted sum of two.

torch-mlir's conversions add a weighted difference to one of the two, which is NaN between equal infinities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.byte_resizing import cubic, linear, resize_bytes
from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.half import accumulation

aten = torch.ops.aten


def add_bilinear_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for dynamic sizes."""
    extend(table, aten.upsample_bilinear2d.vec, _by_sizes_or_factors)
    extend(table, aten.upsample_bilinear2d.default, _by_sizes)
    extend(table, aten.upsample_bicubic2d.vec, _cubic_of_bytes)
    for op in (aten.upsample_linear1d.vec, aten.upsample_trilinear3d.vec):
        extend(table, op, _by_sizes_or_factors)
    for op in (aten.upsample_linear1d.default, aten.upsample_trilinear3d.default):
        extend(table, op, _by_sizes)


def _by_sizes_or_factors(
    x: Tensor, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None
) -> Any:
    if output_size is not None:
        return _by_sizes(x, output_size, align_corners)
    assert scale_factors is not None
    sizes = [int(size * factor) for size, factor in zip(x.shape[2:], scale_factors, strict=True)]
    return _by_sizes(x, sizes, align_corners, *scale_factors)


def _by_sizes(x: Tensor, output_size: Sequence[int], align_corners: bool, *factors: float | None) -> Any:
    """``x`` ``[N, C, *sizes]`` → ``[N, C, *output_size]``, computed in float32 where it is of half precision."""
    if not all(isinstance(size, int) for size in (*x.shape[2:], *output_size)):
        return NotImplemented
    given = factors or (None,) * len(output_size)
    if x.dtype == torch.uint8 and x.dim() == 4:
        return resize_bytes(x, output_size, align_corners, given, linear)
    if not x.is_floating_point():
        return NotImplemented
    result = x.to(accumulation(x.dtype))
    for dim, (out, factor) in enumerate(zip(output_size, given, strict=True), start=2):
        result = _along(result, dim, out, align_corners, factor)
    return result.to(x.dtype)


def _cubic_of_bytes(
    x: Tensor, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None
) -> Any:
    if x.dtype != torch.uint8 or not all(isinstance(size, int) for size in (*x.shape[2:], *(output_size or ()))):
        return NotImplemented
    factors = (None, None) if scale_factors is None else scale_factors
    if output_size is None:
        assert scale_factors is not None
        output_size = [int(size * factor) for size, factor in zip(x.shape[2:], scale_factors, strict=True)]
    return resize_bytes(x, output_size, align_corners, factors, cubic)


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
    weight = torch.clamp(source - first.to(x.dtype), 0.0, 1.0).reshape([-1 if axis == dim else 1 for axis in range(x.dim())])
    return x.index_select(dim, first) * (1.0 - weight) + x.index_select(dim, second) * weight
