"""Decompositions of ATen's backward operations, which reach the front end from AOTAutograd only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def add_gradient_decompositions(table: dict[Any, Callable[..., Any]]) -> None:
    """Add the decompositions of this module to ``table``."""
    table[aten.embedding_dense_backward.default] = _embedding_dense_backward


def _embedding_dense_backward(
    gradient: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """Rows of ``gradient`` ``[..., features]`` added to the rows ``indices`` of zeros ``[num_weights, features]``.

    The indices are flattened first: torch-mlir gives a scatter over indices of dynamic shape and higher rank a wrong shape.
    """
    if scale_grad_by_freq:
        return NotImplemented
    rows = gradient.reshape(-1, gradient.shape[-1]).to(_accumulation(gradient.dtype))
    flat = indices.reshape(-1)
    if padding_idx >= 0:
        rows = torch.where((flat == padding_idx).unsqueeze(-1), 0.0, rows)
    zeros = rows.new_zeros(num_weights, gradient.shape[-1])
    return zeros.index_put((flat,), rows, accumulate=True).to(gradient.dtype)


def _accumulation(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
