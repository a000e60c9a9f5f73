"""bf16 values become integers in the LLVM dialect; what computes with one keeps it between bitcasts."""

from __future__ import annotations

import pytest
import torch

import mlirstack as ms
from mlirstack.bindings import new_context
from mlirstack.ir.ops import walk
from mlirstack.ir.text import parse_module
from mlirstack.passes.bfloat_bits import BfloatBits
from mlirstack.pipeline.runner import run_steps

pytestmark = pytest.mark.portable


def types_of(text: str) -> dict[str, list[str]]:
    """``{op: types of its results}`` of a module after the pass."""
    module = parse_module(text, new_context())
    run_steps((BfloatBits(),), module)
    found: dict[str, list[str]] = {}
    for op in walk(module):
        if len(op.results):
            found.setdefault(op.name, []).extend(str(r.type) for r in op.results)
    return found


def test_moves_and_constants_are_integers() -> None:
    found = types_of("""
    llvm.func @f(%p: !llvm.ptr, %i: i32) {
      %c = llvm.mlir.constant(1.5 : bf16) : bf16
      %v = llvm.mlir.constant(dense<-2.0> : vector<4xbf16>) : vector<4xbf16>
      %w = llvm.insertelement %c, %v[%i : i32] : vector<4xbf16>
      llvm.store %w, %p : vector<4xbf16>, !llvm.ptr
      %x = llvm.load %p : !llvm.ptr -> bf16
      llvm.store %x, %p : bf16, !llvm.ptr
      llvm.return
    }""")
    assert found["llvm.mlir.constant"] == ["i16", "vector<4xi16>"]
    assert found["llvm.insertelement"] == ["vector<4xi16>"]
    assert found["llvm.load"] == ["i16"]


def test_constants_keep_their_bits() -> None:
    module = parse_module("llvm.func @f() -> i16 { %c = llvm.mlir.constant(-1.5 : bf16) : bf16\n"
                          "%b = llvm.bitcast %c : bf16 to i16\nllvm.return %b : i16 }", new_context())  # fmt: skip
    run_steps((BfloatBits(),), module)
    bits = torch.tensor(-1.5, dtype=torch.bfloat16).view(torch.int16).item()
    assert f"llvm.mlir.constant({bits} : i16)" in str(module)


def test_arithmetic_keeps_its_type_between_bitcasts() -> None:
    found = types_of("""
    llvm.func @f(%p: !llvm.ptr) {
      %x = llvm.load %p : !llvm.ptr -> bf16
      %y = llvm.fadd %x, %x : bf16
      llvm.store %y, %p : bf16, !llvm.ptr
      llvm.return
    }""")
    assert found["llvm.load"] == ["i16"]
    assert found["llvm.fadd"] == ["bf16"]


@pytest.mark.parametrize("shape", [(7, 33), (33, 130)])
def test_select_between_broadcast_scalars_compiles_and_is_right(shape: tuple[int, int]) -> None:
    class Leaky(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(x > 0.125, x, x * 0.25)

    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    result = ms.compile(Leaky(), (x,), target="cpu")(x)
    assert torch.equal(result, Leaky()(x))
