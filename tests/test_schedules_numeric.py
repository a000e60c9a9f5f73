"""Every kernel class at even, odd and tiny sizes through the whole cpu target, against eager in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import mlirstack as ms

pytestmark = pytest.mark.portable

TOLERANCE = {torch.float64: 1e-13, torch.float32: 3e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}


class Several(nn.Module):
    """Several functions of the same inputs in one program: one compilation checks them all."""

    def __init__(self, *functions: Callable[..., Tensor]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(*inputs) for function in self.functions)


def check(model: nn.Module, inputs: tuple[Tensor, ...], tolerance: float, route: str = "auto") -> None:
    """Compile, call, compare each result with eager in float64 by relative L2 norm."""
    model = model.eval()
    with torch.no_grad():
        found = ms.compile(model, inputs, target="cpu", route=route)(*inputs)
        exact = model.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
    results, expected = (found, exact) if isinstance(found, tuple) else ((found,), (exact,))
    for position, (result, reference) in enumerate(zip(results, expected, strict=True)):
        assert result.shape == reference.shape
        error = (result.double() - reference.double()).norm() / reference.double().norm().clamp(min=1e-30)
        assert error <= tolerance, f"result {position}: relative error {error:.1e}"


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


SHAPES = [(1, 1), (7, 33), (33, 7), (5, 1025), (1025, 3), (3, 7, 33), (2, 5, 3, 9)]

ELEMENTWISE = Several(
    lambda x: torch.sigmoid(x * 2 + 1) * torch.relu(x) - x * 0.5,
    functional.gelu,
    lambda x: torch.log1p(x.abs()) + torch.sin(x) * torch.tanh(x),
    lambda x: torch.where(x > 0.125, x, x * 0.25),
    lambda x: x.transpose(0, -1) * 2,
    lambda x: x + x[..., :1] * x[:1],
)
REDUCTIONS = Several(
    lambda x: torch.softmax(x, -1),
    lambda x: torch.softmax(x, 0),
    lambda x: x.sum(-1),
    lambda x: x.sum(0),
    lambda x: (x * x).mean(),
    lambda x: x.amax(-1),
    lambda x: functional.layer_norm(x, x.shape[-1:]) if x.shape[-1] > 1 else x,
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("model", [ELEMENTWISE, REDUCTIONS], ids=["elementwise", "reductions"])
def test_ragged_sizes(model: nn.Module, shape: tuple[int, ...]) -> None:
    check(model, (random(*shape),), TOLERANCE[torch.float32])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("model", [ELEMENTWISE, REDUCTIONS], ids=["elementwise", "reductions"])
def test_dtypes(model: nn.Module, dtype: torch.dtype) -> None:
    check(model, (random(7, 130, dtype=dtype),), TOLERANCE[dtype])


def test_integers() -> None:
    x = torch.randint(-9, 9, (7, 33), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    model = Several(lambda x: x.sum(0), lambda x: x.amax(-1), lambda x: x.transpose(0, 1) * 3, lambda x: x @ x.mT)
    results = ms.compile(model, (x,), target="cpu")(x)
    for result, expected in zip(results, model(x), strict=True):
        assert torch.equal(result, expected)


MATMUL = Several(
    lambda a, b: a @ b,
    lambda a, b: torch.relu(a @ b + 1) * 0.5,
    lambda a, b: b.mT @ a.mT,
    lambda a, b: a[:, 0] @ b[: a.shape[0], :] if a.shape[0] <= b.shape[0] else a @ b[:, 0],
)


@pytest.mark.parametrize("rows, sums, columns", [(1, 1, 1), (7, 33, 1025), (33, 7, 10), (70, 300, 100), (17, 64, 64)])
def test_matmul(rows: int, sums: int, columns: int) -> None:
    check(MATMUL, (random(rows, sums), random(sums, columns)), TOLERANCE[torch.float32])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_matmul_dtypes(dtype: torch.dtype) -> None:
    check(MATMUL, (random(33, 65, dtype=dtype), random(65, 40, dtype=dtype)), TOLERANCE[dtype])


@pytest.mark.parametrize("batch, width, out", [(1, 40, 33), (33, 65, 70), (64, 128, 10)])
def test_linear_layers_with_packed_weights(batch: int, width: int, out: int) -> None:
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, out))
    check(model, (random(batch, width),), TOLERANCE[torch.float32])


def test_attention_with_batched_matmuls() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.mT * 0.25, -1) @ v

    check(Several(attention), (random(2, 3, 33, 16), random(2, 3, 50, 16), random(2, 3, 50, 16)), TOLERANCE[torch.float32])


CONVOLUTIONS = {
    "3x3": (nn.Conv2d(5, 33, 3, padding=1), (2, 5, 17, 19)),
    "strided 7x7": (nn.Conv2d(3, 16, 7, stride=2, padding=3), (1, 3, 33, 33)),
    "1x1": (nn.Conv2d(16, 24, 1), (2, 16, 7, 9)),
    "dilated": (nn.Conv2d(4, 8, 3, dilation=2), (1, 4, 13, 11)),
    "depthwise": (nn.Conv2d(9, 9, 3, stride=2, padding=1, groups=9), (1, 9, 13, 13)),
    "grouped": (nn.Conv2d(8, 16, 3, padding=1, groups=4), (1, 8, 9, 9)),
    "1d": (nn.Conv1d(6, 20, 5, padding=2), (2, 6, 31)),
    "transposed": (nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1), (1, 8, 7, 5)),
    "max pooling": (nn.MaxPool2d(3, 2, 1), (2, 9, 13, 13)),
    "average pooling": (nn.AvgPool2d(2), (2, 9, 8, 6)),
}


@pytest.mark.parametrize("route", ["tosa", "linalg"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_windows(name: str, route: str) -> None:
    layer, shape = CONVOLUTIONS[name]
    check(nn.Sequential(layer, nn.ReLU()).float(), (random(*shape),), TOLERANCE[torch.float32], route)
