"""Image models: the blocks that ResNet, MobileNet, ConvNeXt and U-Net are made of, and a whole ResNet-18."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlirstack.zoo.recipe import model, normal


def conv_norm(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution with 'half' padding and without bias, then batch norm."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """ResNet's basic block (He et al., 2015): two 3x3 convolutions and a shortcut, projected where shapes change."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = conv_norm(inputs, outputs, stride=stride)
        self.second = conv_norm(outputs, outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv_norm(inputs, outputs, kernel=1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class ResNet18(nn.Module):
    """(N, 3, H, W) → (N, classes)."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 64, kernel=7, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        widths = [64, 64, 128, 256, 512]
        self.stages = nn.Sequential(
            *(
                nn.Sequential(BasicBlock(narrow, wide, 1 if index == 0 else 2), BasicBlock(wide, wide))
                for index, (narrow, wide) in enumerate(pairwise(widths))
            )
        )
        self.classifier = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class SqueezeExcitation(nn.Module):
    """Channels scaled by a gate computed from their means (Hu et al., 2017)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.expand(F.relu(self.reduce(F.adaptive_avg_pool2d(x, 1))))
        return x * F.hardsigmoid(gate)


class InvertedResidual(nn.Module):
    """MobileNetV3's block (Howard et al., 2019): expand, depthwise 5x5, squeeze-and-excitation, project, add."""

    def __init__(self, channels: int, expanded: int) -> None:
        super().__init__()
        self.expand = conv_norm(channels, expanded, kernel=1)
        self.depthwise = conv_norm(expanded, expanded, kernel=5, groups=expanded)
        self.excitation = SqueezeExcitation(expanded, expanded // 4)
        self.project = conv_norm(expanded, channels, kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        h = F.hardswish(self.expand(x))
        h = F.hardswish(self.excitation(self.depthwise(h)))
        return x + self.project(h)


class ConvNextBlock(nn.Module):
    """ConvNeXt's block (Liu et al., 2022)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)
        self.layer_scale = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        h = self.layer_scale * self.down(F.gelu(self.up(h)))
        return x + h.permute(0, 3, 1, 2)


class UNet(nn.Module):
    """(N, 3, H, W) → (N, 4, H, W), H and W even (Ronneberger et al., 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = conv_norm(3, 8)
        self.down2 = conv_norm(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.merge = conv_norm(16, 8)
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = F.relu(self.down1(x))
        coarse = F.relu(self.down2(F.max_pool2d(fine, 2)))
        merged = torch.cat([self.up(coarse), fine], dim=1)
        return self.head(F.relu(self.merge(merged)))


@model("cnn_classifier", normal(2, 3, 32, 32))
def cnn_classifier() -> nn.Module:
    features = nn.Sequential(conv_norm(3, 8, stride=2), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(features, nn.Flatten(), nn.Linear(8 * 8 * 8, 10))


@model("residual_block", normal(1, 8, 16, 16))
def residual_block() -> nn.Module:
    return BasicBlock(8, 12, stride=2)


@model("resnet18_64", normal(1, 3, 64, 64))
def resnet18_64() -> nn.Module:
    return ResNet18()


@model("mobilenet_block", normal(1, 8, 14, 14))
def mobilenet_block() -> nn.Module:
    return InvertedResidual(8, 24)


@model("convnext_block", normal(1, 12, 14, 14))
def convnext_block() -> nn.Module:
    return ConvNextBlock(12)


@model("unet", normal(1, 3, 16, 16))
def unet() -> nn.Module:
    return UNet()


@model("pixel_shuffle", normal(1, 4, 8, 8))
def pixel_shuffle() -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 12, 3, padding=1), nn.PixelShuffle(2))
