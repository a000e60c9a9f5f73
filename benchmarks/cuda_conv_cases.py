"""Convolutions: the layers of ResNet-50 and of diffusion models, channels last, and what follows them."""

from __future__ import annotations

import torch
from cuda_case import Case, Made
from torch import Tensor, nn

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class ChannelsLast(nn.Module):
    """A convolution on images whose memory is (n, h, w, c), as cuDNN's tensor-core kernels want it, then batch norm and ReLU
    if wanted, and a residual if there is one."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, *, normed: bool) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=not normed)
        self.norm = nn.BatchNorm2d(outputs) if normed else None

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """(n, h, w, inputs) → (n, h / stride, w / stride, outputs)."""
        y = self.convolution(x.permute(0, 3, 1, 2))
        if self.norm is not None:
            y = torch.relu(self.norm(y) if residual is None else self.norm(y) + residual.permute(0, 3, 1, 2))
        return y.permute(0, 2, 3, 1).contiguous()


def _conv(
    batch: int,
    image: int,
    channels: tuple[int, int],
    size: int,
    dtype: str = "f16",
    *,
    stride: int = 1,
    normed: bool = False,
    residual: bool = False,
) -> Case:
    inputs, outputs = channels
    out = -(-image // stride)

    def make() -> Made:
        torch.manual_seed(batch + image + inputs)
        kind = _DTYPES[dtype]
        module = ChannelsLast(inputs, outputs, size, stride, normed=normed).eval().to(kind)
        weight = module.convolution.weight
        weight.data = weight.data.contiguous(memory_format=torch.channels_last)
        tensors = [torch.randn(batch, image, image, inputs).to(kind)]
        if residual:
            tensors.append(torch.randn(batch, out, out, outputs).to(kind))
        return module, tuple(tensors)

    width = 4 if dtype == "f32" else 2
    written = batch * out * out * outputs
    moved = batch * image * image * inputs + inputs * outputs * size * size + written * (2 if residual else 1)
    flops = 2 * written * inputs * size * size
    tail = f"{'_bn_relu' if normed else ''}{'_residual' if residual else ''}"
    name = f"conv{size}x{size}_s{stride}_{batch}x{image}x{image}x{inputs}_{outputs}{tail}_{dtype}"
    return Case(name, "conv" if dtype != "f32" else "conv_f32", make, moved * width, flops, dtype)


_RESNET_3X3 = ((56, 64), (28, 128), (14, 256), (7, 512))
_RESNET_1X1 = ((56, 64, 256), (56, 256, 64), (28, 512, 128), (14, 1024, 256), (7, 512, 2048))

CASES: tuple[Case, ...] = (
    *(_conv(64, image, (channels, channels), 3) for image, channels in _RESNET_3X3),
    *(_conv(64, image, (inputs, outputs), 1) for image, inputs, outputs in _RESNET_1X1),
    *(_conv(8, image, (channels, channels), 3, "bf16") for image, channels in ((64, 320), (32, 640), (16, 1280))),
    _conv(64, 56, (128, 128), 3, stride=2),
    _conv(64, 56, (256, 512), 1, stride=2),
    _conv(32, 224, (3, 64), 7, stride=2),
    *(_conv(64, image, (channels, channels), 3, normed=True) for image, channels in _RESNET_3X3[1:3]),
    _conv(64, 28, (128, 128), 3, normed=True, residual=True),
    *(_conv(32, image, (channels, channels), 3, "f32") for image, channels in _RESNET_3X3[1:3]),
)
