"""Operations at the edge of what they are made for: padding that crops, patches put together again, real functions of whole
numbers, norms of one number, memory seen through a view of nothing, booleans in order, complex numbers made real.

Each on every route that takes it, against eager.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import mlirstack as ms
from mlirstack.compare.keywords import bound
from mlirstack.errors import UnsupportedError

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


class Truths(nn.Module):
    def forward(self, a, b):
        compared = a < b, a <= b, a > b, a >= b, torch.maximum(a, b), torch.minimum(a, b), torch.fmax(a, b)
        return *compared, a.amax(), b.amin(), a.view(2, 2).max(1), torch.maximum(a, b.int()), a > 0, a <= 0.5


class SortedTruths(nn.Module):
    def forward(self, a, b):
        first = torch.zeros(4, dtype=torch.bool).scatter_reduce(0, torch.tensor([0, 0, 1, 1]), a, "amax")
        return a.sort(stable=True), b.sort(descending=True, stable=True)[0], first


class Remainder(nn.Module):
    def forward(self, x, y):
        return torch.remainder(x, y.abs() + 0.5), torch.fmod(x, y.abs() + 0.5)


class RealPart(nn.Module):
    def forward(self, x):
        return x.to(torch.float64), x.bool(), x.to(torch.int8), x.to(torch.bfloat16), x[0, 0].bool()


LARGE = torch.tensor([2**31 - 1, -(2**31), 123456789, -7, 0], dtype=torch.int32)
CASES = {
    "crop": (Crop(), (IMAGE,)),
    "fold": (Fold(), (IMAGE,)),
    "real functions": (RealFunctions(), (torch.arange(7, dtype=torch.int32), torch.tensor([True, False]))),
    "norm of one": (NormOfOne(), (torch.tensor(-0.3),)),
    "truths": (Truths(), (torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False]))),
    "past nothing": (PastNothing(), (torch.arange(8.0),)),
    "sorted truths": (SortedTruths(), (torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False]))),
    "large remainder": (Remainder(), (LARGE, torch.tensor(3, dtype=torch.int32))),
    "real part": (RealPart(), (torch.tensor([[0, 1.5j], [-2.7 + 1j, 3]], dtype=torch.complex64),)),
}
NO_TOSA = ("past nothing", "sorted truths", "large remainder", "real part")


@pytest.mark.parametrize(
    ("name", "route"), [(n, r) for n in CASES for r in ("linalg", "tosa") if r != "tosa" or n not in NO_TOSA]
)
def test_edge_is_as_in_eager(name: str, route: str) -> None:
    module, inputs = CASES[name]
    torch.testing.assert_close(ms.compile(module, inputs, route=route)(*inputs), module(*inputs), rtol=1e-6, atol=1e-6)


def test_a_remainder_of_real_numbers_is_refused_by_the_tosa_route() -> None:
    with pytest.raises(UnsupportedError, match="cannot go through TOSA") as caught:
        ms.lower(*CASES["large remainder"], route="tosa")
    assert {op.op for op in caught.value.ops} == {
        "aten.remainder.Tensor(int32, float32)",
        "aten.remainder.Tensor(float32, float32)",
    }


def test_what_was_compiled_with_keywords_is_compared_as_a_function_of_positional_inputs() -> None:
    class Scaled(nn.Module):
        def forward(self, x, *, scale):
            return x * scale

    x, scale = torch.randn(3), torch.tensor(2.0)
    compiled = ms.compile(Scaled(), (x,), kwargs={"scale": scale})
    torch.testing.assert_close(bound(compiled, {"scale": scale}, "cpu")(x), x * 2)
