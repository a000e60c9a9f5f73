"""Operations at the edge of what they are made for: padding that crops, patches put together again, real functions of whole
numbers, norms of one number, memory seen through a view of nothing.  Each on every route that takes it, against eager."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import mlirstack as ms

IMAGE = torch.randn(2, 3, 9, 10)


class Crop(nn.Module):
    def forward(self, x):
        fewer, both = functional.pad(x, (-1, -2, -3, 0)), functional.pad(x.abs(), (-1, 2, 3, -2), value=2.0)
        return fewer, both.exp(), functional.pad(x, (-1, 2, 1, -3), mode="reflect")


class Fold(nn.Module):
    def forward(self, x):
        patches = functional.unfold(x, 3, padding=1, stride=2, dilation=2)
        return functional.fold(patches, x.shape[2:], 3, padding=1, stride=2, dilation=2)


class RealFunctions(nn.Module):
    def forward(self, number, flag):
        return torch.expm1(number), torch.log1p(number), torch.expm1(flag), torch.log1p(flag)


class NormOfOne(nn.Module):
    def forward(self, x):
        norm = torch.ops.aten.linalg_vector_norm
        return norm(x, ord=3.0, dim=[-1]), norm(x, ord=3.0, dim=[0], keepdim=True)


class PastNothing(nn.Module):
    def forward(self, x):
        nothing = torch.as_strided(x, (4,), (1,), 0).expand(1, 4)[1:1]
        return torch.ops.aten.as_strided(nothing, size=(1,), stride=(1,))


CASES = {
    "crop": (Crop(), (IMAGE,)),
    "fold": (Fold(), (IMAGE,)),
    "real functions": (RealFunctions(), (torch.arange(7, dtype=torch.int32), torch.tensor([True, False]))),
    "norm of one": (NormOfOne(), (torch.tensor(-0.3),)),
    "past nothing": (PastNothing(), (torch.arange(8.0),)),
}

NO_TOSA = ("past nothing", "tosa")  # it has no tensors without elements


@pytest.mark.parametrize(("name", "route"), [(n, r) for n in CASES for r in ("linalg", "tosa") if (n, r) != NO_TOSA])
def test_edge_is_as_in_eager(name: str, route: str) -> None:
    module, inputs = CASES[name]
    torch.testing.assert_close(ms.compile(module, inputs, route=route)(*inputs), module(*inputs), rtol=1e-6, atol=1e-6)
