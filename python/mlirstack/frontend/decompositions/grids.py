"""Sampling at the places of a grid that are infinite or NaN, as eager's kernel for CPUs does it.

Torch's decomposition is kept for what is computed at a place.  Where there is none, eager's clipping takes NaN for the
first element, and its reflection infinities as well; between zeros a weight is the distance from the next whole place,
which is NaN.  Clipped as NaN, places would be converted to whole numbers that lie outside of the image.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition

aten = torch.ops.aten

_BILINEAR, _CUBIC = 0, 2
_ZEROS, _BORDER = 0, 1


def add_grid_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``, in two dimensions."""
    op = aten.grid_sampler_2d.default
    table[op] = functools.partial(_grid_sampler, table[op])


def _grid_sampler(
    sampled: Decomposition, x: Tensor, grid: Tensor, mode: int = 0, padding: int = 0, align_corners: bool = False
) -> Any:
    """``x`` ``[N, C, H, W]`` at ``grid`` ``[N, h, w, 2]``, where -1 and 1 are the edges: ``[N, C, h, w]``."""
    if mode == _CUBIC or (mode != _BILINEAR and padding == _ZEROS):
        return sampled(x, grid, mode, padding, align_corners)
    if padding == _BORDER:
        return sampled(x, torch.where(grid.isnan(), -math.inf, grid), mode, padding, align_corners)
    height, width = x.shape[2:]
    across, down = (grid.select(-1, axis) for axis in (0, 1))
    # Not the places in the grid, but in the image: large ones may overflow.
    exists = torch.isfinite((across + 1) * width), torch.isfinite((down + 1) * height)
    if padding == _ZEROS:
        found = sampled(x, grid, mode, padding, align_corners)
        return torch.where(torch.logical_and(*exists).unsqueeze(1), found, math.nan)
    kept = [torch.where(ok, place, -1.0) for ok, place in zip(exists, (across, down), strict=True)]
    return sampled(x, torch.stack(kept, -1), mode, padding, align_corners)
