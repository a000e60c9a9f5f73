"""Graphs of a GPU, traced with tensors that have a device and no data: they lower as graphs of the CPU do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from mlirstack.dynamo.backend import mlirstack
from mlirstack.dynamo.backend.compile_graph import _device_of
from mlirstack.dynamo.backend.graph_program import graph_program
from mlirstack.frontend.decompositions.table import decomposition_table
from mlirstack.lowering import LowerOptions, lower_program

pytestmark = pytest.mark.portable
aten = torch.ops.aten


def traced(function: Callable[..., Any], *devices: str, shape: tuple[int, ...] = (4, 6)) -> fx.GraphModule:
    """The decomposed graph of ``function`` of one float32 tensor on each of ``devices``."""
    with FakeTensorMode():
        inputs = [torch.empty(shape, device=device) for device in devices]
        return make_fx(lambda *given: pytree.tree_leaves(function(*given)), decomposition_table=decomposition_table())(
            *inputs
        )


MADE = {
    "scalar_tensor": lambda x: torch.where(x > 0, x, aten.scalar_tensor(-1.0, device=x.device)),
    "empty": lambda x: aten.fill(aten.empty.memory_format([4, 6], device=x.device), 1) + x,
    "empty_strided": lambda x: aten.fill(aten.empty_strided([4, 6], [6, 1], device=x.device), 1) + x,
    "arange": lambda x: x + torch.arange(6, device=x.device),
    "filled_like": lambda x: torch.full_like(x, 2) * x + x.new_ones(6),
    "from_the_host": lambda x: x + torch.arange(6).to(x.device),
}


@pytest.mark.parametrize("route", ["tosa", "linalg"])
@pytest.mark.parametrize("name", MADE)
def test_tensors_that_a_graph_makes_on_the_gpu(name: str, route: str) -> None:
    graph = traced(MADE[name], "cuda")
    assert _device_of(graph) == "cuda"
    program = graph_program(graph, name).program
    lowering = lower_program(program, LowerOptions("cuda:sm_90a", route, to="linalg"))
    assert lowering.route == route
    assert "linalg.generic" in lowering["linalg"].text


DECOMPOSED = {
    "clamp": lambda x: aten.clamp(x, -1, 1),
    "reciprocal": aten.reciprocal,
    "max_pool": lambda x: aten.max_pool2d_with_indices_backward(
        aten.view(x, [1, 4, 2, 3]), aten.new_zeros(x, [1, 4, 4, 6]), [2, 2], [2, 2], [0, 0], [1, 1], False,
        aten.new_zeros(x, [1, 4, 2, 3], dtype=torch.int64),
    ),
    "argmax": lambda x: aten.argmax(x, 1),
    "index_put": lambda x: aten.index_put(x, [aten.new_zeros(x, [4], dtype=torch.int64)], x),
}  # fmt: skip


@pytest.mark.parametrize("name", DECOMPOSED)
def test_decompositions_make_their_constants_on_the_gpu(name: str) -> None:
    graph = traced(DECOMPOSED[name], "cuda")
    devices = {node.meta["val"].device.type for node in graph.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)}
    assert devices == {"cuda"}


def test_a_number_on_the_host_beside_tensors_on_the_gpu() -> None:
    graph = traced(lambda x, y: (x * y.sum(), y.sum().cpu()), "cuda", "cpu")
    assert _device_of(graph) == "cuda"
    described = graph_program(graph, "mixed")
    assert [str(device) for device in described.given_on] == ["cuda:0", "cpu"]
    assert [str(device) for device in described.wanted_on] == ["cuda:0", "cpu"]
    lower_program(described.program, LowerOptions("cuda:sm_90a", to="linalg"))


def test_results_are_where_eager_has_them() -> None:
    compiled = torch.compile(
        lambda x: ((x + 1).to("meta"), x * 2), backend=mlirstack, options={"target": "cpu", "fallback": "error"}
    )
    away, here = compiled(torch.ones(3))
    assert away.device.type == "meta" and away.shape == (3,)
    assert torch.equal(here, torch.full((3,), 2.0))
