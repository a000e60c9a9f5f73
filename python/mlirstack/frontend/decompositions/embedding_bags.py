"""Bags of embeddings: torch-mlir's conversion has their sums only, and leaves out the weights of their members."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.half import accumulation

aten = torch.ops.aten

_SUM, _MEAN, _MAX = range(3)


def add_embedding_bag_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``: means, maxima and weighted sums are scattered to their bags."""
    extend(table, aten._embedding_bag.default, functools.partial(_embedding_bag, keeps_plain_sums=True))
    extend(table, aten._embedding_bag_forward_only.default, _embedding_bag)


def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
    *,
    keeps_plain_sums: bool = False,
) -> Any:
    """Rows of ``weight`` ``[n, d]`` at ``indices`` ``[k]``, reduced over bags that begin at ``offsets``: ``[bags, d]``.

    Also gives the bag of each index, and how many count in each bag (those of ``padding_idx`` do not).  Empty ones are zero.
    ``keeps_plain_sums``: torch-mlir's conversion is right for sums of whole bags.
    """
    is_plain = mode == _SUM and per_sample_weights is None and padding_idx < 0 and not include_last_offset
    if keeps_plain_sums and is_plain:
        return NotImplemented
    wide = accumulation(weight.dtype)
    rows = aten.embedding.default(weight, indices).to(wide)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(wide).unsqueeze(1)
    starts = offsets[:-1] if include_last_offset else offsets
    places = torch.arange(indices.shape[0], device=indices.device)
    bag = (places.unsqueeze(1) >= starts).sum(1) - 1
    counts = torch.ones_like(indices) if padding_idx < 0 else (indices != padding_idx).to(indices.dtype)
    sizes = torch.zeros_like(starts).index_add(0, bag, counts.to(starts.dtype))
    left_out = counts.unsqueeze(1) == 0
    shape = (starts.shape[0], weight.shape[1])
    if mode == _MAX:
        rows = rows.masked_fill(left_out, -math.inf)
        lowest = rows.new_full(shape, -math.inf)
        result = lowest.scatter_reduce(0, bag.unsqueeze(1).expand_as(rows), rows, "amax")
        result = torch.where(sizes.unsqueeze(1) > 0, result, 0)
    else:
        result = rows.new_zeros(shape).index_add(0, bag, rows.masked_fill(left_out, 0))
    if mode == _MEAN:
        result = result / sizes.clamp(min=1).unsqueeze(1)
    return result.to(weight.dtype), bag, sizes, sizes
