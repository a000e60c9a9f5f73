"""torch.compile(backend="mlirstack", options={"target": "cuda"}) on a real GPU: forward, backward, training, aliasing.

Compiling needs torch-mlir and llvmlite on the machine with the GPU, ptxas and libdevice (of pip's wheels or a CUDA toolkit).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from backend_models import CASES, TRAINED, Call, check_against_eager, linear, losses_of_training, rows
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
