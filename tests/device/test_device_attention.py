"""Attention on a real GPU with its log-sum-exp: against torch's own fused operation, and in training by torch.compile."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import mlirstack as ms
from mlirstack.errors import MissingDependencyError
from mlirstack.passes.cuda.toolkit import libdevice, program
from mlirstack.targets.cuda.driver import Driver

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
TOLERANCE = {F32: 2e-6, F16: 1e-3, BF16: 6e-3}  # relative L2


@pytest.fixture(autouse=True)
def _can_compile(driver: Driver, without_tf32: None) -> None:
    try:
        from mlirstack.bindings import ir  # noqa: F401

        program("ptxas"), program("nvdisasm"), libdevice()
    except MissingDependencyError as error:
        pytest.skip(error.message)
    torch.manual_seed(0)


class Flash(nn.Module):
    """The operation that ``scaled_dot_product_attention`` chooses for half precision, with both of its results."""

    def __init__(self, *, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        results = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, self.is_causal)
        return results[0], results[1]


class Beside(nn.Module):
    """``softmax`` and ``logsumexp`` of the same scores, in float32."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        scores = query @ key.mT / 8
        return scores.softmax(-1) @ value, torch.logsumexp(scores, -1)


@pytest.mark.parametrize(
    ("module", "queries", "keys", "size", "dtype"),
    [
        (Flash(is_causal=True), 1000, 1000, 128, BF16),
        (Flash(is_causal=True), 640, 640, 64, F16),
        (Flash(is_causal=False), 300, 2048, 64, BF16),
        (Flash(is_causal=False), 4, 4096, 128, F16),
        (Flash(is_causal=False), 512, 512, 256, BF16),
        (Beside(), 300, 257, 64, F32),
    ],
    ids=["causal_128", "causal_64", "full_64", "few_rows", "wide", "float32"],
)
def test_both_results(module: nn.Module, queries: int, keys: int, size: int, dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(2, 8, length, size, device="cuda", dtype=dtype) for length in (queries, keys, keys))
    compiled = ms.compile(module, (q, k, v), target="cuda")
    exact = Beside()(q.double() * (8 / size**0.5), k.double(), v.double())
    if getattr(module, "is_causal", False):
        scores = q.double() @ k.double().mT / size**0.5
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        exact = scores.softmax(-1) @ v.double(), torch.logsumexp(scores, -1)
    found, eager = compiled(q, k, v), module(q, k, v)
    assert [got.dtype for got in found] == [dtype, F32]
    for got, wanted, of_eager, rounding in zip(found, exact, eager, (TOLERANCE[dtype], 1e-5), strict=True):
        assert got.shape == of_eager.shape
        assert (got - wanted).norm() < rounding * wanted.norm()
        assert (of_eager - wanted).norm() < rounding * wanted.norm()


@pytest.mark.parametrize(("dtype", "rounding"), [(BF16, 1e-2), (F32, 2e-6)])
def test_gradients(dtype: torch.dtype, rounding: float) -> None:
    """Four heads of K and V for eight of Q; nothing of the size of the scores lies in memory between both passes."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    compiled = torch.compile(attend, backend="mlirstack", options={"target": "cuda", "fallback": "error"}, fullgraph=True)
    inputs = [torch.randn(2, heads, 1024, 64, device="cuda", dtype=dtype) for heads in (8, 4, 4)]
    weights = torch.randn(2, 8, 1024, 64, device="cuda", dtype=dtype)

    def results(function: object, kind: torch.dtype) -> list[Tensor]:
        given = [x.to(kind, copy=True).requires_grad_() for x in inputs]
        assert callable(function)
        before = torch.cuda.memory_allocated()
        result = function(*given)
        kept = torch.cuda.memory_allocated() - before
        (result * weights.to(kind)).sum().backward()
        if function is compiled:
            assert kept < 2 * 8 * 1024 * 1024 * dtype.itemsize
        return [result.detach(), *(x.grad for x in given if x.grad is not None)]

    for got, wanted in zip(results(compiled, dtype), results(attend, torch.float64), strict=True):
        assert (got - wanted).norm() < rounding * wanted.norm()
