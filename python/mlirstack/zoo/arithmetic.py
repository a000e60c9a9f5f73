"""Elementwise arithmetic on floats, integers and booleans, special values among them."""

from __future__ import annotations

import torch
from torch import Tensor

from mlirstack.zoo.recipe import booleans, integers, normal, operation, tensor

INFINITY, NAN = float("inf"), float("nan")


@operation("pow_sqrt", normal(4, 64))
def pow_sqrt(x: Tensor) -> Tensor:
    positive = x.abs() + 0.1
    powers = positive.pow(1.7) + x.pow(3) + positive.sqrt() + positive.rsqrt()
    return powers + positive.log1p() + x.expm1() + positive.reciprocal() + positive.log2()


@operation("trigonometry", normal(4, 64))
def trigonometry(x: Tensor) -> Tensor:
    return x.sin() * x.cos() + torch.atan2(x, x.roll(1, 1)) + x.tanh() + x.sinh() + (0.5 * x).tan() + x.atan()


@operation("rounding", normal(4, 32, scale=3.0), normal(4, 32, scale=3.0))
def rounding(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    divisor = y.abs() + 0.5
    whole = x.floor() + x.ceil() * 10 + x.round() * 100 + x.trunc() * 1000
    return whole, torch.fmod(x, divisor) + torch.remainder(x, divisor), x.sign() + x.clamp(-1.5, 2.0)


@operation("special_values", tensor([0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, 100.0]))
def special_values(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return x / 0, x.sqrt(), torch.exp(x), torch.maximum(x, torch.zeros_like(x)), torch.relu(x)


@operation("where_mask", normal(4, 64), normal(4, 64))
def where_mask(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x > y, x, y * 0.1).masked_fill((x > 1) & (y <= 0), -5.0)


@operation("boolean_logic", booleans(4, 16), booleans(4, 16), normal(4, 16))
def boolean_logic(a: Tensor, b: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (a & b) | ~a, a ^ b, torch.isnan(torch.log(x)) & (x.abs() >= 0.5)


@operation("integer_arithmetic", integers(-100, 100, 4, 32), integers(1, 9, 4, 32))
def integer_arithmetic(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x // y + x % y, (x >> 1) + (y << 2), (x & 15) ^ (y | 2)


@operation("integer_narrow", integers(-1000, 1000, 4, 16, dtype=torch.int32), integers(-100, 100, 4, 16, dtype=torch.int16))
def integer_narrow(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x * y - x.abs(), y + y, torch.minimum(x, y.to(torch.int32)).sum(-1)


@operation("int8_matmul", integers(-100, 100, 8, 16, dtype=torch.int8), integers(-100, 100, 16, 8, dtype=torch.int8))
def int8_matmul(x: Tensor, y: Tensor) -> Tensor:
    return x.to(torch.int32) @ y.to(torch.int32)


@operation("uint8_image", integers(0, 256, 1, 3, 8, 8, dtype=torch.uint8))
def uint8_image(pixels: Tensor) -> Tensor:
    return (pixels.float() / 255 - 0.45) / 0.225


@operation("type_promotion", integers(-9, 9, 4, 8), normal(4, 8, dtype=torch.float16), normal(4, 8), booleans(4, 8))
def type_promotion(integer: Tensor, half: Tensor, single: Tensor, flag: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return integer + half, half + single * integer, flag + integer
