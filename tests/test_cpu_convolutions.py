"""Convolutions with channels before rows and columns, as the linalg route has them, on target cpu: vectors and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from several import assert_as_eager
from torch import Tensor, nn
from torch.nn import functional as F

import mlirstack as ms

pytestmark = pytest.mark.target

_PLAIN: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "3d, grouped": lambda x, w: F.conv3d(x, w[:, :3], groups=2),
    "3d, one channel a group": lambda x, w: F.conv3d(x, w[:, :1], stride=(1, 2, 1), groups=6),
    "2d, of every other row": lambda x, w: F.conv2d(x[:, :, 1, ::2], w[:, :, 1], stride=(1, 2)),
    "1d": lambda x, w: F.conv1d(x[:, :, 2, 3], w[:, :, 0, 0], stride=3),
}
_PADDED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "3d": lambda x, w: F.conv3d(x, w, stride=(2, 1, 3), padding=(1, 0, 2)),
    "3d, grouped and dilated": lambda x, w: F.conv3d(x, w[:9, :2], padding=2, dilation=(1, 2, 2), groups=3),
    "2d, transposed": lambda x, w: F.conv_transpose2d(
        x[:, :, 1], w[:6, :4, 1], stride=2, padding=(2, 1), output_padding=(0, 1), groups=2
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_of_odd_sizes(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 6, 5, 9, 17, generator=generator).to(dtype)
    weight = torch.randn(12, 6, 3, 2, 3, generator=generator).to(dtype)
    programs = {**_PLAIN, **_PADDED} if dtype == torch.float32 else {k: p for k, p in _PADDED.items() if k != "3d"}
    assert_as_eager(programs, x, weight, route="linalg")


def test_infinities_of_weights_reach_what_eager_has_them_reach() -> None:
    """Without padding: beside that, an infinity of a weight meets zeros that eager may leave out."""
    generator = torch.Generator().manual_seed(1)
    x, weight = torch.randn(2, 6, 5, 9, 17, generator=generator), torch.randn(12, 6, 3, 2, 3, generator=generator)
    weight[1, 0, 1, 1, 2], weight[2, 0, 1, 0, 0], weight[7, 0, 0, 0, 1] = float("inf"), float("nan"), float("-inf")
    x[1, 3, 2, 3, 5] = 0
    assert_as_eager(_PLAIN, x, weight, route="linalg")


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_on_vectors(groups: int, stride: int) -> None:
    """The last summation, along the width, slides together with the rows of a register tile: it was kept, and nothing
    became a vector.  Rows that lie apart were collected into one in a loop."""
    model = nn.Conv3d(8, 8, 3, stride=stride, groups=groups, bias=False).eval()
    function = ms.compile(model, (torch.randn(1, 8, 5, 6, 15),), target="cpu", route="linalg")
    kernels = function.lowering["loops"].text.split("func.func ")
    found = [kernel for kernel in kernels if 'kernel = "convolution"' in kernel]
    assert found
    for kernel in found:
        assert "vector.fma" in kernel and "arith.mulf" not in kernel and "vector.insert" not in kernel
