"""Convolutions of one, two and three dimensions: every form of padding, strides, dilation, groups, transposed."""

from __future__ import annotations

from torch import float16, nn

from mlirstack.zoo.recipe import channels_last, model, normal


@model("conv1d", normal(2, 8, 32))
def conv1d() -> nn.Module:
    return nn.Conv1d(8, 16, 3, padding=1)


@model("conv2d_valid", normal(2, 5, 17, 15))
def conv2d_valid() -> nn.Module:
    return nn.Conv2d(5, 7, 3, stride=2)


@model("conv2d_same", normal(1, 4, 12, 12))
def conv2d_same() -> nn.Module:
    return nn.Conv2d(4, 8, (4, 3), padding="same")


@model("conv2d_dilated", normal(1, 4, 16, 20))
def conv2d_dilated() -> nn.Module:
    return nn.Conv2d(4, 8, 3, dilation=2, padding=(1, 3), bias=False)


@model("conv2d_reflect", normal(1, 4, 10, 10))
def conv2d_reflect() -> nn.Module:
    return nn.Conv2d(4, 8, 3, padding=2, padding_mode="reflect")


@model("conv2d_replicate", normal(1, 4, 10, 10))
def conv2d_replicate() -> nn.Module:
    return nn.Conv2d(4, 8, 3, padding=2, padding_mode="replicate")


@model("conv2d_circular", normal(1, 4, 10, 10))
def conv2d_circular() -> nn.Module:
    return nn.Conv2d(4, 8, 3, padding=2, padding_mode="circular")


@model("conv2d_f16", normal(1, 8, 12, 12, dtype=float16))
def conv2d_f16() -> nn.Module:
    return nn.Conv2d(8, 8, 3, padding=1).half()


@model("conv2d_channels_last", channels_last(2, 8, 12, 12))
def conv2d_channels_last() -> nn.Module:
    return nn.Conv2d(8, 16, 3, padding=1)


@model("conv_depthwise", normal(1, 8, 16, 16))
def conv_depthwise() -> nn.Module:
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 1), nn.Hardswish())


@model("conv_grouped", normal(1, 8, 16, 16))
def conv_grouped() -> nn.Module:
    return nn.Conv2d(8, 16, 3, padding=1, groups=4)


@model("conv3d", normal(1, 2, 7, 7, 7))
def conv3d() -> nn.Module:
    return nn.Conv3d(2, 4, 3, stride=2, padding=1)


@model("conv_transpose1d", normal(1, 6, 11))
def conv_transpose1d() -> nn.Module:
    return nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1)


@model("conv_transpose2d", normal(1, 6, 7, 9))
def conv_transpose2d() -> nn.Module:
    return nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1)


@model("conv_transpose2d_grouped", normal(1, 6, 7, 7))
def conv_transpose2d_grouped() -> nn.Module:
    return nn.ConvTranspose2d(6, 8, 2, stride=2, groups=2)
