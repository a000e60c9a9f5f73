"""Decompositions of ATen's backward operations, which reach the front end from AOTAutograd only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.half import HALF, accumulation

aten = torch.ops.aten


def add_gradient_decompositions(table: dict[Any, Callable[..., Any]]) -> None:
    """Add the decompositions of this module to ``table``."""
    table[aten.embedding_dense_backward.default] = _embedding_dense_backward
    table[aten.convolution_backward.default] = _convolution_backward
    table[aten.diagonal_scatter.default] = _diagonal_scatter
    table[aten._softmax_backward_data.default] = _softmax_backward
    table[aten._log_softmax_backward_data.default] = _log_softmax_backward


def _embedding_dense_backward(
    gradient: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """Rows of ``gradient`` ``[..., features]`` added to the rows ``indices`` of zeros ``[num_weights, features]``.

    The indices are flattened first: torch-mlir gives a scatter over indices of dynamic shape and higher rank a wrong shape.
    """
    if scale_grad_by_freq:
        return NotImplemented
    rows = gradient.reshape(-1, gradient.shape[-1]).to(accumulation(gradient.dtype))
    flat = indices.reshape(-1)
    if padding_idx >= 0:
        rows = torch.where((flat == padding_idx).unsqueeze(-1), 0.0, rows)
    zeros = rows.new_zeros(num_weights, gradient.shape[-1])
    return zeros.index_put((flat,), rows, accumulate=True).to(gradient.dtype)


def _softmax_backward(gradient: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Any:
    """In half precision: a difference of nearly equal numbers, which eager rounds once; the rest is torch-mlir's."""
    if output.dtype not in HALF:
        return NotImplemented
    wide = output.to(accumulation(output.dtype))
    weighted = gradient.to(wide.dtype) * wide
    return (weighted - wide * weighted.sum(dim, keepdim=True)).to(input_dtype)


def _log_softmax_backward(gradient: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Any:
    """As :func:`_softmax_backward`."""
    if output.dtype not in HALF:
        return NotImplemented
    wide = gradient.to(accumulation(output.dtype))
    return (wide - output.to(wide.dtype).exp() * wide.sum(dim, keepdim=True)).to(input_dtype)


def _diagonal_scatter(x: Tensor, diagonal: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """``x`` with ``diagonal`` ``[..., elements]`` in the place of its own, as the gradient of a diagonal needs it."""
    matrix = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = matrix.shape[-2:]
    row, column = torch.arange(rows, device=x.device).unsqueeze(1), torch.arange(columns, device=x.device)
    length = diagonal.shape[-1]
    if offset >= 0:  # its element k is in row k
        spread = torch.nn.functional.pad(diagonal, (0, rows - length)).unsqueeze(-1)
    else:
        spread = torch.nn.functional.pad(diagonal, (0, columns - length)).unsqueeze(-2)
    return torch.where(column - row == offset, spread, matrix).movedim((-2, -1), (dim1, dim2))


def _convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """Gradients of input, weight and bias of grouped and of transposed convolutions, by convolutions.

    The plain ones are torch-mlir's.  The gradient of a convolution's input is the transposed convolution and the other way
    round; that of the weight convolves the two outer tensors, with batch and channels in each other's place.
    """
    if groups == 1 and not transposed:
        return NotImplemented
    spatial = range(2, x.dim())
    for_input = for_weight = for_bias = None
    if output_mask[0]:
        extra = [0] * len(stride)
        if not transposed:  # what the stride left over at the end of the input
            reached = [
                (gradient.shape[d] - 1) * s - 2 * p + w * (weight.shape[d] - 1) + 1
                for d, s, p, w in zip(spatial, stride, padding, dilation, strict=True)
            ]
            extra = [x.shape[d] - size for d, size in zip(spatial, reached, strict=True)]
        for_input = aten.convolution(gradient, weight, None, stride, padding, dilation, not transposed, extra, groups)
    if output_mask[1]:
        inner, outer = (gradient, x) if transposed else (x, gradient)
        for_weight = _weight_gradient(inner, outer, weight, stride, padding, dilation, groups)
    if output_mask[2]:
        for_bias = gradient.sum([0, *spatial])
    return for_input, for_weight, for_bias


def _weight_gradient(
    x: Tensor,
    gradient: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Of the convolution from ``x`` ``[N, groups * I, ...]`` to ``gradient`` ``[N, groups * O, ...]``, as ``weight`` is."""
    batch, channels = x.shape[:2]
    spatial = list(range(2, x.dim()))
    grouped = x.reshape(batch, groups, channels // groups, *x.shape[2:]).transpose(0, 2)  # [I, groups, N, ...]
    images = grouped.reshape(channels // groups, groups * batch, *x.shape[2:])
    kernels = gradient.transpose(0, 1)  # [groups * O, N, ...]
    zero = [0] * len(spatial)
    found = aten.convolution(images, kernels, None, dilation, padding, stride, False, zero, groups)  # [I, groups * O, ...]
    for axis in spatial:  # positions that the stride never reached
        found = found.narrow(axis, 0, weight.shape[axis])
    return found.transpose(0, 1)
