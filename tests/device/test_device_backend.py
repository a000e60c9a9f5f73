"""torch.compile(backend="mlirstack", options={"target": "cuda"}) on a real GPU: forward, backward, training, aliasing.

Compiling needs torch-mlir and llvmlite on the machine with the GPU, ptxas and libdevice (of pip's wheels or a CUDA toolkit).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from backend_models import CASES, TRAINED, Call, Case, check_against_eager, linear, losses_of_training, rows
from torch import nn

from mlirstack.dynamo.backend import clear_graphs, graphs, mlirstack
from mlirstack.errors import MissingDependencyError
from mlirstack.passes.cuda.toolkit import libdevice, program
from mlirstack.targets.cuda.driver import Driver

OPTIONS = {"target": "cuda", "fallback": "error"}


@pytest.fixture(autouse=True)
def _fresh(driver: Driver, without_tf32: None) -> Iterator[None]:
    try:
        from mlirstack.bindings import ir  # noqa: F401

        program("ptxas"), program("nvdisasm"), libdevice()
    except MissingDependencyError as error:
        pytest.skip(error.message)
    torch.manual_seed(0)
    torch._dynamo.reset()
    clear_graphs()
    yield
    torch._dynamo.reset()


def statuses() -> list[tuple[str, str]]:
    assert all(graph.target == "cuda" for graph in graphs())
    return [(graph.kind, graph.status) for graph in graphs()]


DYNAMIC = ("mlp", "mutated_argument", "one_result_twice", "integer_argument", "cross_entropy", "attention")


@pytest.mark.parametrize(("name", "dynamic"), [*((name, False) for name in CASES), *((name, True) for name in DYNAMIC)])
def test_training_step(name: str, dynamic: bool) -> None:
    case = CASES[name]
    model = case.model().cuda()
    eager = copy.deepcopy(model)
    compiled = torch.compile(model, backend=mlirstack, options=OPTIONS, dynamic=dynamic, fullgraph=True)
    check_against_eager(case, compiled, eager, "cuda")
    assert statuses() == [("forward", "compiled"), ("backward", "compiled")]


@pytest.mark.parametrize("build", TRAINED)
def test_twenty_steps_of_training(build: Callable[[], nn.Module]) -> None:
    """The losses stay within 1e-4 of eager's; both start at the same weights and see the same batches."""
    model = build().cuda()
    start = copy.deepcopy(model.state_dict())
    compiled = torch.compile(model, backend=mlirstack, options=OPTIONS, fullgraph=True)
    for kind in (torch.optim.SGD, torch.optim.Adam):
        model.load_state_dict(start)
        losses = losses_of_training(model, compiled, kind, "cuda")
        model.load_state_dict(start)
        assert losses == pytest.approx(losses_of_training(model, model, kind, "cuda"), rel=1e-4, abs=1e-5)
    assert statuses() == [("forward", "compiled"), ("backward", "compiled")]


def test_one_dynamic_compilation_serves_many_sizes() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
    compiled = torch.compile(model, backend=mlirstack, options=OPTIONS, dynamic=True)
    for size in (5, 2, 33, 7):
        x = rows(size).cuda()
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert [graph.kind for graph in graphs()] == ["forward", "backward"]


def test_the_device_of_the_inputs_is_the_target() -> None:
    compiled = torch.compile(torch.tanh, backend=mlirstack, options={"fallback": "error"})
    x = rows().cuda()
    torch.testing.assert_close(compiled(x), x.tanh())
    assert statuses() == [("inference", "compiled")]


def test_tensors_on_the_host_beside_those_on_the_gpu() -> None:
    """Numbers and inputs on the host, results on both sides."""

    def function(x: torch.Tensor, number: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * number + torch.arange(8).to(x.device) + table.to(x.device)
        return y, y.sum(0).cpu(), table * 2

    compiled = torch.compile(function, backend=mlirstack, options={"fallback": "error"}, fullgraph=True)
    given = (rows().cuda(), torch.tensor(3.0), torch.randn(8))
    for result, wanted in zip(compiled(*given), function(*given), strict=True):
        assert result.device == wanted.device
        torch.testing.assert_close(result, wanted)
    assert statuses() == [("inference", "compiled")]


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_recurrent_cells(kind: type[nn.LSTMCell] | type[nn.GRUCell]) -> None:
    """Torch calls fused cells on a GPU; three steps, and the gradients of all parameters."""
    case = Case(lambda: Call(_three_steps, cell=kind(8, 6)), lambda: (torch.randn(3, 5, 8),))
    model = case.model().cuda()
    compiled = torch.compile(model, backend=mlirstack, options=OPTIONS, fullgraph=True)
    check_against_eager(case, compiled, copy.deepcopy(model), "cuda")
    assert statuses() == [("forward", "compiled"), ("backward", "compiled")]


def _three_steps(module: nn.Module, steps: torch.Tensor) -> torch.Tensor:
    state = None
    for x in steps:
        state = module.cell(x, state)
    return state[0] if isinstance(state, tuple) else state


def test_the_current_stream_is_used() -> None:
    model = Call(lambda m, x: m.fc(x).relu(), fc=linear()).cuda()
    compiled = torch.compile(model, backend=mlirstack, options=OPTIONS)
    with torch.no_grad():
        compiled(rows().cuda())
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            x = torch.ones(5, 8, device="cuda")
            result = compiled(x)
        stream.synchronize()
        torch.testing.assert_close(result, model(x))
