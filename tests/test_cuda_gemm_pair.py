"""Two products of one left factor as one kernel: which ops are taken, machine code, answers in the emulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from simt.models import run_model
from torch import Tensor, nn
from torch.nn import functional as F

import mlirstack as ms
from mlirstack.bindings import ir
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import functions
from mlirstack.schedules.cuda.emitter import choice_of

TARGET = "cuda:sm_90a"


class Gated(nn.Module):
    """``meet(x · G, x · U)``, with weights of shape (n, k), or (k, n) where ``rows_contiguous``."""

    def __init__(
        self, k: int, n: int, meet: Callable[[Tensor, Tensor], Tensor], *, bias: bool = False, rows_contiguous: bool = False
    ) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(k, n, bias=bias) for _ in range(2))
        self.meet, self.rows_contiguous = meet, rows_contiguous
        if rows_contiguous:
            for layer in (self.gate, self.up):
                layer.weight = nn.Parameter(layer.weight.detach().t().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """(m, k) → (m, n)."""
        if self.rows_contiguous:
            return self.meet(x @ self.gate.weight, x @ self.up.weight)
        return self.meet(self.gate(x), self.up(x))


def silu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def gelu_and_more(gate: Tensor, up: Tensor) -> Tensor:
    return (F.gelu(gate) * up + 1) * gate


def schedules(module: nn.Module, *inputs: Tensor) -> list[str]:
    """The schedule of each kernel."""
    payload = ms.lower(module.eval(), inputs, target=TARGET, to="dispatches").payload
    with payload.context, ir.Location.unknown():
        return [choice_of(f).name for f in functions(payload) if KERNEL_ATTRIBUTE in f.attributes]


@pytest.mark.portable
def test_two_products_that_meet_are_one_kernel() -> None:
    assert schedules(Gated(64, 96, silu).bfloat16(), torch.randn(70, 64).bfloat16()) == ["gemm_pair"]
    assert schedules(Gated(64, 96, gelu_and_more, bias=True).half(), torch.randn(9, 64).half()) == ["gemm_pair"]


class Apart(nn.Module):
    """Products that meet, of two left factors, or of one that somebody else reads, too."""

    def __init__(self, *, shares_left: bool) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(64, 96, bias=False), nn.Linear(64, 96, bias=False)
        self.shares_left = shares_left

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """(m, k), (m, k) → (m, n), (m, n)."""
        gate, up = self.gate(x), self.up(x if self.shares_left else y)
        return F.silu(gate) * up, torch.softmax(gate, dim=-1) if self.shares_left else y


@pytest.mark.portable
@pytest.mark.parametrize("shares_left", [False, True])
def test_others_stay_apart(shares_left: bool) -> None:
    inputs = [torch.randn(70, 64).bfloat16() for _ in range(2)]
    assert "gemm_pair" not in schedules(Apart(shares_left=shares_left).bfloat16(), *inputs)


@pytest.mark.portable
@pytest.mark.parametrize(
    ("rows", "module", "dtype"),
    [
        (70, Gated(72, 104, silu), torch.bfloat16),
        (130, Gated(72, 120, gelu_and_more, bias=True), torch.float16),
        (9, Gated(72, 200, silu, bias=True), torch.bfloat16),
        (1, Gated(136, 72, silu), torch.float16),
        (70, Gated(72, 136, silu, rows_contiguous=True), torch.bfloat16),
        (9, Gated(72, 136, silu, rows_contiguous=True), torch.bfloat16),
    ],
    ids=str,
)
def test_answers(rows: int, module: Gated, dtype: torch.dtype) -> None:
    torch.manual_seed(rows)
    module, x = module.eval().to(dtype), torch.randn(rows, module.gate.in_features).to(dtype)
    with torch.no_grad():
        (got,) = run_model(ms.lower(module, (x,), target=TARGET, to="mapped"), [x])
        wanted = module.double()(x.double())
    assert float((got.double() - wanted).norm() / wanted.norm()) < {torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]


@pytest.mark.target
@pytest.mark.parametrize("rows", [16, 512])
def test_no_spills_and_no_serial_wgmmas(rows: int) -> None:
    plan = ms.lower(Gated(512, 1024, silu).bfloat16().eval(), (torch.randn(rows, 512).bfloat16(),), target=TARGET).payload
    (kernel,) = plan.plan.kernels
    assert (kernel.schedule, kernel.spill_bytes, kernel.stack_bytes, kernel.warning) == ("gemm_pair", 0, 0, None)
