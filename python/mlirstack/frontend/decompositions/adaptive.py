"""Adaptive average pooling of images whose size varies: torch decides by the size which windows there are, torch-mlir leaves
out those of unequal sizes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.half import accumulation

aten = torch.ops.aten


def add_adaptive_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``, for dynamic sizes."""
    for rank, op in ((2, aten._adaptive_avg_pool2d.default), (3, aten._adaptive_avg_pool3d.default)):
        extend(table, op, functools.partial(_adaptive_avg_pool, rank))


def _adaptive_avg_pool(rank: int, x: Tensor, output_size: Sequence[int]) -> Any:
    """Means of ``x`` ``[..., *sizes]`` over windows from ``i * size // wanted`` up to the next: ``[..., *wanted]``."""
    sizes = x.shape[-rank:]
    if all(isinstance(size, int) for size in (*sizes, *output_size)):
        return NotImplemented
    result = x.to(accumulation(x.dtype))
    for axis, (size, wanted) in enumerate(zip(sizes, output_size, strict=True), x.dim() - rank):
        if statically_known_true(size == wanted):
            continue
        window = torch.arange(wanted, device=x.device)
        first = torch.div(window * size, wanted, rounding_mode="floor")
        after = torch.div((window + 1) * size + (wanted - 1), wanted, rounding_mode="floor")
        places = torch.arange(size, device=x.device)
        inside = (places >= first.unsqueeze(1)) & (places < after.unsqueeze(1))
        # Chosen, not multiplied by 0: infinities of other windows would give NaN.
        rows = torch.where(inside, result.movedim(axis, -1).unsqueeze(-2), 0)
        result = (rows.sum(-1) / (after - first)).movedim(-1, axis)
    return result.to(x.dtype)
