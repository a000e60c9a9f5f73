"""Normalization layers, with weights and running statistics away from 0 and 1."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlirstack.zoo.recipe import model, normal, operation


@model("layer_norm", normal(4, 64))
def layer_norm() -> nn.Module:
    return nn.LayerNorm(64)


@model("layer_norm_2d", normal(3, 5, 9))
def layer_norm_2d() -> nn.Module:
    return nn.LayerNorm((5, 9), elementwise_affine=False)


@model("layer_norm_f16", normal(4, 64, dtype=torch.float16))
def layer_norm_f16() -> nn.Module:
    return nn.LayerNorm(64).half()


@model("group_norm", normal(2, 8, 6, 6))
def group_norm() -> nn.Module:
    return nn.GroupNorm(2, 8)


@model("batch_norm1d", normal(8, 16))
def batch_norm1d() -> nn.Module:
    return nn.BatchNorm1d(16)


@model("batch_norm2d", normal(2, 6, 7, 7))
def batch_norm2d() -> nn.Module:
    return nn.BatchNorm2d(6)


@model("instance_norm", normal(2, 6, 8, 8))
def instance_norm() -> nn.Module:
    return nn.InstanceNorm2d(6, affine=True)


@model("rms_norm", normal(4, 48))
def rms_norm() -> nn.Module:
    return nn.RMSNorm(48, eps=1e-5)


@model("local_response_norm", normal(1, 8, 5, 5))
def local_response_norm() -> nn.Module:
    return nn.LocalResponseNorm(3)


@operation("l2_normalize", normal(4, 48))
def l2_normalize(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)
