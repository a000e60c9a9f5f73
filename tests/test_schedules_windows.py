"""Poolings and convolutions that are no contraction over many channels: vectors along the result, windows stepped by one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mlirstack as ms

pytestmark = pytest.mark.target


class Windows(nn.Module):
    """Every kind of window over one image (2, 6, 19, 37): along rows, along channels, with strides, grouped, of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(6, 6, (3, 5), groups=6)
        self.strided = nn.Conv2d(6, 12, 3, stride=2, dilation=2, padding=1, groups=6)
        self.few = nn.Conv2d(6, 4, 3, groups=2)
        self.line = nn.Conv1d(6, 6, 4, groups=6)

    def forward(self, x: Tensor, codes: Tensor) -> list[Tensor]:
        rows = x.flatten(2)
        return [
            self.depthwise(x),
            self.strided(x),
            self.few(x),
            self.line(rows),
            F.max_pool1d(rows, 8, stride=1, padding=4, dilation=3),
            F.max_pool2d(x, 3, stride=2, padding=1),
            F.avg_pool1d(rows, 5, stride=1),
            F.avg_pool2d(F.relu(x), (2, 3), stride=1) * 2,
            F.avg_pool3d(x.unsqueeze(0), 3, stride=2, padding=1),
            F.max_pool2d(codes, 2, stride=1),
        ]


@pytest.fixture(scope="module")
def windows() -> tuple[ms.api.CompiledFunction, list[Tensor], list[Tensor]]:
    torch.manual_seed(0)
    model = Windows().eval()
    inputs = [torch.randn(2, 6, 19, 37), torch.randint(-9, 9, (1, 3, 5, 23))]
    with torch.no_grad():
        return ms.compile(model, tuple(inputs), target="cpu"), inputs, model(*inputs)


def test_answers_are_those_of_eager(windows: tuple[ms.api.CompiledFunction, list[Tensor], list[Tensor]]) -> None:
    function, inputs, expected = windows
    for found, wanted in zip(function(*inputs), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_windows_compute_on_vectors(windows: tuple[ms.api.CompiledFunction, list[Tensor], list[Tensor]]) -> None:
    """All kernels with a window but the two whose rows are read with a stride, which no vector load does."""
    text = windows[0].lowering["loops"].text
    kernels = [
        part for part in text.split("func.func ")[1:] if 'kernel = "pooling"' in part or 'kernel = "convolution"' in part
    ]
    assert len(kernels) >= 8
    assert sum(any(_is_scalar_sum(line) for line in kernel.splitlines()) for kernel in kernels) == 2


def _is_scalar_sum(line: str) -> bool:
    operation, _, kind = line.strip().rpartition(" : ")
    return ("= arith.addf" in operation or "= arith.maximumf" in operation) and not kind.startswith("vector")
