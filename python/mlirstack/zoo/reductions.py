"""Reductions and contractions."""

from __future__ import annotations

import torch
from torch import Tensor

from mlirstack.zoo.recipe import normal, operation


@operation("std_var", normal(4, 64))
def std_var(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.std(x, -1), torch.var(x, 0, correction=0), torch.var(x)


@operation("sum_mean", normal(3, 5, 7))
def sum_mean(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.sum((0, 2)), x.mean(1, keepdim=True), x.mean()


@operation("max_prod_any", normal(4, 8))
def max_prod_any(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return x.prod(-1), x.amax(-1), (x > 1).any(-1), x.logsumexp(-1)


@operation("vector_norms", normal(4, 24))
def vector_norms(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.linalg.vector_norm(x, 1, dim=-1),
        torch.linalg.vector_norm(x, 2, dim=-1),
        torch.linalg.vector_norm(x, float("inf"), dim=-1),
    )


@operation("einsum", normal(2, 8, 16), normal(2, 4, 16))
def einsum(x: Tensor, y: Tensor) -> Tensor:
    return torch.einsum("bij,bkj->bik", x, y)


@operation("matmul_broadcast", normal(3, 1, 5, 8), normal(4, 8, 6))
def matmul_broadcast(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@operation("matmul_ragged", normal(37, 67), normal(67, 29))
def matmul_ragged(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@operation("matmul_vector", normal(9, 13), normal(13), normal(9))
def matmul_vector(matrix: Tensor, right: Tensor, left: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    product = matrix @ right
    return product, torch.outer(left, right), torch.dot(product, left)
