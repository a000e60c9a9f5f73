"""Attention on target cpu: its two products stay products of two tensors."""

from __future__ import annotations

import pytest
import torch
from several import Several, assert_as_eager
from torch.nn.functional import scaled_dot_product_attention

import mlirstack as ms

pytestmark = pytest.mark.target


def _heads(*sizes: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(*sizes, generator=generator).to(dtype) for _ in range(3))
    return q, k, v


@pytest.mark.parametrize("route", ["tosa", "linalg"])
def test_weights_are_normalized_once(route: str) -> None:
    """They were normalized for each column of the result, by a nest of loops that is no product any more."""
    model = Several({"attention": scaled_dot_product_attention})
    function = ms.compile(model, _heads(2, 3, 16, 8), target="cpu", route=route)
    kernels = function.lowering["kernels"].text.split("func.func ")
    products = [kernel for kernel in kernels if 'kernel = "contraction"' in kernel]
    assert len(products) == 2, "sixteen rows are whole tiles"
    for kernel in products:
        assert kernel.count("arith.mulf") == 1 and "arith.select" not in kernel


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_numbers(dtype: torch.dtype) -> None:
    q, k, v = _heads(2, 3, 19, 10, dtype=dtype)
    k[0, 1, 3], v[1, 2, 5, 4] = 30, float("inf")
    programs = {
        "all": scaled_dot_product_attention,
        "causal": lambda q, k, v: scaled_dot_product_attention(q[:, :, :7], k, v, is_causal=True),
        "one row": lambda q, k, v: scaled_dot_product_attention(q[:, :, 3:4], k, v, scale=0.3),
    }
    assert_as_eager(programs, q, k, v)
