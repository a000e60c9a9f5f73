"""Pooling and resampling of sequences and images."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from mlirstack.zoo.recipe import normal, operation


@operation("max_pool2d", normal(1, 4, 15, 15))
def max_pool2d(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, stride=2, padding=1)


@operation("max_pool1d_dilated", normal(1, 4, 20))
def max_pool1d_dilated(x: Tensor) -> Tensor:
    return F.max_pool1d(x, 3, stride=2, dilation=2)


@operation("avg_pool2d", normal(1, 4, 14, 14))
def avg_pool2d(x: Tensor) -> tuple[Tensor, Tensor]:
    return F.avg_pool2d(x, 3, stride=2, padding=1), F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)


@operation("adaptive_avg_pool2d", normal(2, 8, 9, 9))
def adaptive_avg_pool2d(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 1)


@operation("adaptive_avg_pool2d_3x3", normal(1, 8, 15, 15))
def adaptive_avg_pool2d_3x3(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 3)


@operation("adaptive_max_pool2d", normal(1, 8, 16, 16))
def adaptive_max_pool2d(x: Tensor) -> Tensor:
    return F.adaptive_max_pool2d(x, 4)


@operation("upsample_nearest", normal(1, 4, 8, 6))
def upsample_nearest(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="nearest")


@operation("upsample_bilinear", normal(1, 4, 8, 6))
def upsample_bilinear(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


@operation("upsample_bilinear_corners", normal(1, 4, 6, 7))
def upsample_bilinear_corners(x: Tensor) -> Tensor:
    return F.interpolate(x, size=(11, 13), mode="bilinear", align_corners=True)
