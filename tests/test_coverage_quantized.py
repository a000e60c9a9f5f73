"""Quantised models as PT2E writes them (``quantized_decomposed``): integers, scales and zero points are eager's."""

from __future__ import annotations

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
from torch import nn
from torch.nn import functional

import mlirstack as ms
from mlirstack.errors import UnsupportedError

ops = torch.ops.quantized_decomposed
I8, U8, I4 = (-128, 127, torch.int8), (0, 255, torch.uint8), (-8, 7, torch.int8)


class Static(nn.Module):
    """A convolution and a linear layer: activations of one scale, weights of a scale for each output channel."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name, shape in {"conv": (4, 3, 3, 3), "linear": (5, 4)}.items():
            weight = torch.randn(shape, generator=generator)
            scales = weight.flatten(1).abs().amax(1) / 127
            zeros = torch.zeros(shape[0], dtype=torch.int64)
            self.register_buffer(name, ops.quantize_per_channel(weight, scales, zeros, 0, -127, 127, torch.int8))
            self.register_buffer(f"{name}_scales", scales)
            self.register_buffer(f"{name}_zeros", zeros)
        self.bias = nn.Parameter(torch.randn(5, generator=generator))

    def weight(self, name):
        scales, zeros = getattr(self, f"{name}_scales"), getattr(self, f"{name}_zeros")
        return ops.dequantize_per_channel(getattr(self, name), scales, zeros, 0, -127, 127, torch.int8)

    def forward(self, x):
        code = ops.quantize_per_tensor(x, 0.031, 5, *I8)
        y = functional.relu(functional.conv2d(ops.dequantize_per_tensor(code, 0.031, 5, *I8), self.weight("conv")))
        pooled = ops.quantize_per_tensor(y.mean((2, 3)), 0.017, 0, *U8)
        values = ops.dequantize_per_tensor(pooled, 0.017, 0, *U8)
        return code, pooled, functional.linear(values, self.weight("linear"), self.bias)


class Dynamic(nn.Module):
    """Scales and zero points of the activations are chosen in each call."""

    def forward(self, x, weight):
        found = []
        for choose, bounds in ((ops.choose_qparams, I8), (ops.choose_qparams, U8), (ops.choose_qparams_symmetric, I8)):
            scale, zero = choose(x, *bounds[:2], 1e-5, bounds[2])
            code = ops.quantize_per_tensor(x, scale, zero, *bounds)
            values = ops.dequantize_per_tensor(code, scale, zero, *bounds)
            found += [scale, zero, code, values, values @ weight]
        for choose in (ops.choose_qparams_per_token, ops.choose_qparams_per_token_asymmetric):
            scales, zeros = choose(x, torch.int8)
            code = ops.quantize_per_token(x, scales, zeros, *I8)
            found += [scales, zeros, code, ops.dequantize_per_token(code, scales, zeros, *I8, torch.float32) @ weight]
        return tuple(found)


class Codes(nn.Module):
    """What is rounded: ties of a scale that is no power of two, what lies outside of the range, zero points of channels."""

    def forward(self, x, scales, zeros):
        whole = ops.quantize_per_tensor(x, 0.1, -3, *I8)
        channels = ops.quantize_per_channel(x, scales, zeros, 1, *U8)
        half = ops.dequantize_per_tensor(whole, 0.1, -3, *I8, out_dtype=torch.float16)
        group_scales, group_zeros = scales[:2].repeat(len(x), 1), zeros[:2].repeat(len(x), 1) % 3
        groups = ops.quantize_per_channel_group(x, group_scales, group_zeros, *I4, 2)
        restored = ops.dequantize_per_channel_group(groups, group_scales, group_zeros, *I4, 2, torch.float32)
        return whole, channels, ops.dequantize_per_channel(channels, scales, zeros, 1, *U8), half, groups, restored


class Signed(nn.Module):
    """Codes of eight bits with a sign only, which go through TOSA."""

    def forward(self, x):
        code = ops.quantize_per_tensor(x, 0.1, -3, *I8)
        values = ops.dequantize_per_tensor(code, 0.1, -3, *I8)
        return code, values, ops.quantize_per_tensor(values * 2, 0.05, 4, *I8)


TIES = torch.arange(-160, 160).reshape(-1, 4) * 0.05
CASES = {
    "static": (Static(), (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)),)),
    "dynamic": (Dynamic(), (TIES, torch.linspace(-1, 1, 12).reshape(4, 3))),
    "dynamic, all positive": (Dynamic(), (TIES.abs() + 0.3, torch.linspace(-1, 1, 12).reshape(4, 3))),
    "signed": (Signed(), (TIES,)),
    "codes": (Codes(), (TIES * 2, torch.tensor([0.1, 0.05, 0.3, 0.7]), torch.tensor([0, 128, 7, 255]))),
}


@pytest.mark.parametrize("name", CASES)
def test_quantised_models_round_as_eager(name):
    model, inputs = CASES[name]
    with torch.no_grad():
        wanted = model(*inputs)
    for a, b in zip(ms.compile(model, inputs)(*inputs), wanted, strict=True):
        exact = not b.is_floating_point() or b.dtype == torch.float64  # codes, scales
        torch.testing.assert_close(a, b, **({"rtol": 0, "atol": 0} if exact else {}))


def test_packed_modules_are_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"'0' is a torch\.ao\.nn\.quantized\.dynamic"):
        ms.compile(nn.Sequential(torch.ao.nn.quantized.dynamic.Linear(4, 3)), (torch.randn(2, 4),))
