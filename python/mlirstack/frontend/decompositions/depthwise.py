"""Decomposition of the depthwise convolution in three dimensions, which torch-mlir lowers in one and two dimensions only.

It is the sum over the kernel's planes of depthwise convolutions of images: as many products, by a kernel that is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.half import accumulation

aten = torch.ops.aten


def add_depthwise_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for all other convolutions."""
    extend(table, aten.convolution.default, _depthwise)


def _depthwise(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """``x`` ``[N, C, D, H, W]``, ``weight`` ``[C, 1, *kernel]`` → ``[N, C, *out]``, where ``groups`` is ``C``."""
    if x.dim() != 5 or transposed or groups == 1 or weight.shape[:2] != (groups, 1):
        return NotImplemented
    step, before, apart = (values[0] for values in (stride, padding, dilation))
    planes = weight.shape[2]
    # The depth goes to the images, of which a plane of the kernel meets every ``step``-th.
    deep = aten.constant_pad_nd(x.to(accumulation(x.dtype)), [0, 0, 0, 0, before, before]).transpose(1, 2)
    reach = (deep.shape[1] - (planes - 1) * apart - 1) // step * step + 1
    filters = weight.to(deep.dtype)
    total: Tensor | None = None
    for plane in range(planes):
        images = deep[:, plane * apart : plane * apart + reach : step]
        options = (stride[1:], padding[1:], dilation[1:], False, output_padding[1:], groups)
        product = aten.convolution(images.flatten(0, 1), filters[:, :, plane], None, *options)
        total = product if total is None else total + product
    if total is None:
        return NotImplemented  # a kernel without elements
    result = aten.unflatten(total, 0, (x.shape[0], total.shape[0] // x.shape[0])).transpose(1, 2)
    return (result if bias is None else result + bias.reshape(-1, 1, 1, 1)).to(x.dtype)
