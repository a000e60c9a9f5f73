"""The log-sum-exp of attention's scores as a second result of its kernels, on a SIMT emulator against float64."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from simt.models import run_model
from torch import Tensor, nn

import mlirstack as ms

BF16, F32 = torch.bfloat16, torch.float32
flash_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class Call(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, compute: Callable[..., tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.compute(*inputs)


def heads(count: int, length: int, width: int, dtype: torch.dtype = F32) -> Tensor:
    return torch.randn(1, count, length, width, dtype=dtype)


def beside(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """``softmax`` and ``logsumexp`` of the same scores."""
    scores = (q @ k.mT * 0.3).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v, torch.logsumexp(scores, -1)


def shared(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Written by hand from one maximum and one sum, the result first, with its sign turned."""
    wide = torch.promote_types(q.dtype, F32)
    scores = q.to(wide) @ k.to(wide).mT
    largest = scores.amax(-1, keepdim=True)
    exponentials = (scores - largest).exp()
    total = exponentials.sum(-1, keepdim=True)
    return -(total.log() + largest).squeeze(-1), (exponentials / total).to(v.dtype) @ v


def causal(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return flash_attention(q, k, v, 0.0, True)


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    return flash_attention(q, k, v, attn_mask=mask.to(q.dtype))


@dataclass(frozen=True)
class Case:
    """Two results of one kernel; the answers are those of eager in float64."""

    arch: str
    kernel: str
    compute: Callable[..., tuple[Tensor, Tensor]]
    inputs: Callable[[], list[Tensor]]


def some_keys(rows: int, keys: int) -> Tensor:
    """A boolean mask whose row 3 sees nothing."""
    mask = torch.rand(rows, keys) > 0.5
    mask[3] = False
    return mask


def some_scores(length: int) -> Tensor:
    return torch.zeros(length, length).masked_fill(~some_keys(length, length), -torch.inf)


CASES = {
    "fma_beside": Case("sm_80", "fma", beside, lambda: [heads(2, 40, 13), *[heads(2, 33, 13)] * 2, some_keys(40, 33)]),
    "mma_by_hand": Case("sm_80", "mma", shared, lambda: [heads(2, 35, 24, BF16)] * 3),
    "mma_groups": Case("sm_80", "mma", causal, lambda: [heads(4, 70, 40, BF16), *[heads(2, 70, 40, BF16)] * 2]),
    "divided": Case("sm_80", "mma", causal, lambda: [heads(4, 3, 64, BF16), *[heads(2, 300, 64, BF16)] * 2]),
    "wgmma_causal": Case("sm_90a", "wgmma", causal, lambda: [heads(1, 150, 64, BF16)] * 3),
    "wgmma_masked": Case("sm_90a", "wgmma", masked, lambda: [*[heads(1, 70, 64, BF16)] * 3, some_scores(70)]),
}


@pytest.mark.portable
@pytest.mark.parametrize("name", CASES)
def test_one_kernel_gives_both(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]
    inputs = case.inputs()
    lowering = ms.lower(Call(case.compute), tuple(inputs), target=f"cuda:{case.arch}", to="mapped")
    assert re.findall(r'mlirstack.schedule = \{.*?kernel = "(\w+)"', str(lowering.payload)) == [case.kernel]
    expected = case.compute(*(x.double() if x.is_floating_point() else x for x in inputs))
    for got, wanted in zip(run_model(lowering, inputs), expected, strict=True):
        rounding = 6e-3 if got.dtype == BF16 else 1e-6
        assert close(as_laid_out(got, wanted), wanted, rounding)


def as_laid_out(got: Tensor, wanted: Tensor) -> Tensor:
    """A result that the program gives dense, with the axes of heads and rows as the caller sees them."""
    return got if got.shape == wanted.shape else got.transpose(1, 2)


def close(got: Tensor, wanted: Tensor, rounding: float) -> bool:
    """The same infinities and NaNs, and a relative L2 error within ``rounding`` of the other numbers."""
    finite = wanted.isfinite()
    same = torch.equal(got.double()[~finite].nan_to_num(), wanted[~finite].nan_to_num())
    return same and bool((got.double() - wanted)[finite].norm() <= rounding * wanted[finite].norm())
