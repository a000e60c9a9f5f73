"""Distances between the rows of matrices, which torch-mlir does not know: norms of differences, as eager sums them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition

aten = torch.ops.aten


def add_distance_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``."""
    table[aten._cdist_forward.default] = _cdist
    table[aten._euclidean_dist.default] = lambda x, y: _cdist(x, y, 2.0)
    table[aten._pdist_forward.default] = _pdist
    table[aten.dist.default] = lambda x, y, p=2: torch.linalg.vector_norm(x - y, p)


def _cdist(x: Tensor, y: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    """Of ``[..., P, M]`` and ``[..., R, M]`` the norm p of each difference of rows, ``[..., P, R]``.

    Never by way of a product, which eager takes for 26 rows and more: of close points little would be left.
    """
    return _norm(x.unsqueeze(-2) - y.unsqueeze(-3), p)


def _pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """Of ``[N, M]`` the norm p of the difference of each row and each later one, ``[N * (N - 1) / 2]``."""
    first, second = torch.triu_indices(x.size(0), x.size(0), 1, device=x.device)
    return _norm(x[first] - x[second], p)


def _norm(difference: Tensor, p: float) -> Tensor:
    if isinstance(difference.size(-1), int) and not difference.size(-1):
        return difference.sum(-1)  # no largest of nothing
    return torch.linalg.vector_norm(difference, p, -1)
