"""Lookups, gathers, scatters, sorting and scans."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlirstack.zoo.recipe import distinct_indices, integers, model, normal, operation


@model("embedding", integers(0, 50, 3, 7))
def embedding() -> nn.Module:
    return nn.Embedding(50, 12, padding_idx=0)


@operation("gather", normal(4, 64), integers(0, 64, 4, 5))
def gather(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index)


@operation("index_select", normal(4, 64), integers(0, 64, 5))
def index_select(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(1, index)


@operation("index_tensor", normal(4, 64), integers(0, 4, 5), integers(0, 64, 5))
def index_tensor(x: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    return x[rows], x[rows, columns]


@operation("scatter", normal(4, 64), distinct_indices(4, 5, 64), normal(4, 5))
def scatter(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return x.scatter(1, index, source)


@operation("scatter_add", normal(4, 16), integers(0, 16, 4, 24), normal(4, 24))
def scatter_add(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return x.scatter_add(1, index, source)


@operation("index_put", normal(6, 8), distinct_indices(1, 3, 6), normal(3, 8))
def index_put(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return torch.index_put(x, (index[0],), source)


@operation("argmax", normal(4, 64))
def argmax(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.argmax(-1), x.argmin(0)


@operation("topk", normal(4, 64))
def topk(x: Tensor) -> tuple[Tensor, Tensor]:
    values, indices = torch.topk(x, 3, dim=-1)
    return values, indices


@operation("sort", normal(4, 32))
def sort(x: Tensor) -> tuple[Tensor, Tensor]:
    values, indices = torch.sort(x, dim=-1, descending=True)
    return values, indices


@operation("cumsum", normal(4, 32))
def cumsum(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.cumsum(-1), x.cumsum(0)


@operation("one_hot", integers(0, 9, 6))
def one_hot(classes: Tensor) -> Tensor:
    return F.one_hot(classes, 9).float()
