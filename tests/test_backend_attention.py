"""Attention under torch.compile(backend="mlirstack"): one kernel on CUDA, gradients from the log-sum-exp of each row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import _disable_current_modes

from mlirstack.dynamo.backend import clear_graphs, entry, graphs
from mlirstack.dynamo.backend.compile_graph import compile_graph
from mlirstack.dynamo.backend.graph_program import graph_program
from mlirstack.lowering import LowerOptions, lower_program

pytestmark = pytest.mark.portable

BF16, F32 = torch.bfloat16, torch.float32


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    clear_graphs()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``function`` by the backend, without a way out."""
    return torch.compile(function, backend="mlirstack", options={"fallback": "error"}, fullgraph=True)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Two heads of Q for each of K and V."""
    return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """What is added to the scores is learned as well."""
    return scaled_dot_product_attention(q, k, v, bias, scale=0.2)


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Query 3 sees no key."""
    seen = torch.arange(12) % 3 != 0
    return scaled_dot_product_attention(q, k, v, seen & (torch.arange(10) != 3).unsqueeze(-1))


def with_gradients(function: Callable[..., Tensor], inputs: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The result, and the gradient of each input."""
    given = [x.detach().to(dtype, copy=True).requires_grad_() for x in inputs]
    result = function(*given)
    (result * torch.linspace(-1, 1, result.numel()).view(result.shape).to(dtype)).sum().backward()
    return [result.detach(), *(x.grad for x in given if x.grad is not None)]


@pytest.mark.parametrize(
    ("function", "shapes", "dtype", "rounding"),
    [
        (causal, [(2, 4, 10, 8), (2, 2, 12, 8), (2, 2, 12, 8)], BF16, 8e-3),
        (masked, [(2, 2, 10, 8), (2, 2, 12, 8), (2, 2, 12, 8)], F32, 1e-6),
        (biased, [(2, 2, 10, 8), (2, 2, 12, 8), (2, 2, 12, 8), (1, 1, 10, 12)], F32, 1e-6),
    ],
)
def test_gradients_are_those_of_eager(
    function: Callable[..., Tensor], shapes: list[tuple[int, ...]], dtype: torch.dtype, rounding: float
) -> None:
    inputs = [torch.randn(shape).to(dtype) for shape in shapes]
    found = with_gradients(compiled(function), inputs, dtype)
    wanted = with_gradients(function, inputs, torch.float64)
    assert len(found) == 1 + len(shapes)
    for got, exact in zip(found, wanted, strict=True):
        assert (got.double() - exact).norm() < rounding * exact.norm()
    assert [graph.kind for graph in graphs()] == ["forward", "backward"]


def test_forward_is_one_kernel_that_keeps_a_number_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the size of the scores is kept, nor operands in float32; in inference there is one kernel as well."""
    seen: dict[str, fx.GraphModule] = {}

    def watched(module: fx.GraphModule, kind: str, options: Any) -> Any:
        seen[kind] = module
        return compile_graph(module, kind, options)

    monkeypatch.setattr(entry, "compile_graph", watched)
    inputs = [torch.randn(1, 2, 32, 16).to(BF16) for _ in range(3)]
    with_gradients(compiled(causal), inputs, BF16)
    torch._dynamo.reset()
    compiled(causal)(*inputs)
    kept = [node.meta["val"] for node in seen["forward"].graph.find_nodes(op="output")[0].args[0]]
    assert {(tuple(value.shape), value.dtype) for value in kept} == {((1, 2, 32, 16), BF16), ((1, 2, 32), F32)}
    for kind, kernels in (("forward", ["attention"]), ("inference", ["attention"]), ("backward", ["contraction"] * 5)):
        assert kernels_of(seen[kind])[-len(kernels) :] == kernels


def kernels_of(module: fx.GraphModule) -> list[str]:
    """The classes of the kernels that target cuda makes of a graph."""
    with _disable_current_modes():
        program = graph_program(module, "graph").program
        text = str(lower_program(program, LowerOptions("cuda:sm_90a", to="dispatches")).payload)
    return re.findall(r'mlirstack.kernel = "(\w+)"', text)
