"""Operations that move elements and compute nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mlirstack.zoo.recipe import normal, operation


@operation("cat_slice_pad", normal(4, 64))
def cat_slice_pad(x: Tensor) -> Tensor:
    return F.pad(torch.cat([x[:, ::2], x[:, 1:5]], dim=1), (1, 2, 0, 1), value=0.5)


@operation("roll_flip", normal(4, 16))
def roll_flip(x: Tensor) -> Tensor:
    return torch.roll(x, 3, dims=1).flip(0, 1)


@operation("stack_split", normal(6, 8), normal(6, 8))
def stack_split(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first, second = torch.stack([x, y], dim=1).unbind(1)
    narrow, wide = torch.split(first, [3, 5], dim=1)
    return narrow * 2, wide - 1, torch.cat(second.chunk(3, dim=0)[::-1])


@operation("permute_reshape", normal(2, 3, 4, 5))
def permute_reshape(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).reshape(2, 20, 1, 3).squeeze(2).unsqueeze(1).expand(2, 4, 20, 3) + 1


@operation("unfold_patches", normal(1, 3, 8, 8))
def unfold_patches(x: Tensor) -> Tensor:
    return F.unfold(x, 3, padding=1, stride=2)


@operation("repeat_tile", normal(3, 4))
def repeat_tile(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.repeat(2, 3), torch.tile(x, (2,)), x.repeat_interleave(2, dim=0)


@operation("triangles", normal(8, 8))
def triangles(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.tril(x, -1), torch.triu(x), torch.diagonal(x) * 2


@operation("meshgrid", normal(5, 7))
def meshgrid(x: Tensor) -> Tensor:
    axes = (torch.arange(count, dtype=x.dtype, device=x.device) for count in x.shape)
    rows, columns = torch.meshgrid(*axes, indexing="ij")
    return x * (rows - 2) + columns / 7
