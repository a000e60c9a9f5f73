"""torch.compile(backend="mlirstack"): forward and backward graphs against eager, aliasing, mutation, fallbacks, options."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from backend_models import CASES, TRAINED, Call, Case, Counter, check_against_eager, linear, losses_of_training, rows
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional

from mlirstack.dynamo.backend import clear_graphs, graphs, mlirstack
from mlirstack.dynamo.backend.watched import WatchedProgram
from mlirstack.errors import MlirstackError, UsageError

pytestmark = pytest.mark.portable


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    counters.clear()
    clear_graphs()
    yield
    torch._dynamo.reset()


def statuses() -> list[tuple[str, str]]:
    return [(graph.kind, graph.status) for graph in graphs()]


def test_it_is_found_by_its_name() -> None:
    assert "mlirstack" in torch._dynamo.list_backends()
    compiled = torch.compile(torch.tanh, backend="mlirstack")
    x = torch.randn(7)
    torch.testing.assert_close(compiled(x), x.tanh())
    assert statuses() == [("inference", "compiled")]


DYNAMIC = ("mlp", "mutated_argument", "one_result_twice", "integer_argument", "cross_entropy", "attention")


@pytest.mark.parametrize(("name", "dynamic"), [*((name, False) for name in CASES), *((name, True) for name in DYNAMIC)])
def test_training_step(name: str, dynamic: bool) -> None:
    case = CASES[name]
    model = case.model()
    eager = copy.deepcopy(model)
    check_against_eager(case, torch.compile(model, backend=mlirstack, dynamic=dynamic, fullgraph=True), eager)
    assert statuses() == [("forward", "compiled"), ("backward", "compiled")]


def test_recurrent_layers_arrive_as_their_cells() -> None:
    """Where Dynamo lets them through; the fused layer that eager calls on a CPU has no lowering."""
    case = Case(lambda: Call(lambda m, x: m.lstm(x)[0], lstm=nn.LSTM(8, 6)), lambda: (torch.randn(3, 2, 8),))
    model = case.model()
    with torch._dynamo.config.patch(allow_rnn=True):
        check_against_eager(case, torch.compile(model, backend=mlirstack, fullgraph=True), copy.deepcopy(model))
    assert statuses() == [("forward", "compiled"), ("backward", "compiled")]


def test_one_dynamic_compilation_serves_many_sizes() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    compiled = torch.compile(model, backend=mlirstack, dynamic=True)
    for size in (5, 2, 33, 7):
        x = rows(size)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 1
    assert [graph.kind for graph in graphs()] == ["forward", "backward"]


def test_repeated_calls_compile_once_and_a_changed_attribute_again() -> None:
    model = Call(lambda m, x: m.fc(x) * m.scale, fc=linear())
    model.scale = 2
    compiled = torch.compile(model, backend=mlirstack)
    x = rows()
    for _ in range(3):
        compiled(x)
    assert len(graphs()) == 1
    model.scale = 3
    torch.testing.assert_close(compiled(x), model.fc(x) * 3)
    assert len(graphs()) == 2


def test_threads_call_one_compiled_function() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU()).eval()
    compiled = torch.compile(model, backend=mlirstack)
    inputs = [rows() for _ in range(8)]
    with torch.no_grad():
        compiled(inputs[0])
        results: dict[int, torch.Tensor] = {}

        def call(index: int) -> None:
            with torch.no_grad():
                for _ in range(50):
                    results[index] = compiled(inputs[index])

        threads = [threading.Thread(target=call, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for index, x in enumerate(inputs):
            torch.testing.assert_close(results[index], model(x))


def test_inference_without_gradients() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16)).eval()
    compiled = torch.compile(model, backend=mlirstack, fullgraph=True)
    with torch.inference_mode():
        x = rows()
        torch.testing.assert_close(compiled(x), model(x))
    assert statuses() == [("inference", "compiled")]


def test_gradients_in_float64() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 2)).double()
    compiled = torch.compile(model, backend=mlirstack, fullgraph=True)
    assert torch.autograd.gradcheck(compiled, (torch.randn(3, 4, dtype=torch.float64, requires_grad=True),))
    assert ("backward", "compiled") in statuses()


def test_arguments_without_gradient() -> None:
    """The backward graph returns None for what needs no gradient."""
    model = Call(lambda m, x, mask, index: m.fc(x).masked_fill(mask, 0.0)[index], fc=linear())
    eager = copy.deepcopy(model)
    compiled = torch.compile(model, backend=mlirstack, fullgraph=True)
    x, mask, index = rows().requires_grad_(), rows() > 0, torch.tensor([4, 0, 0])
    other = x.detach().clone().requires_grad_()
    compiled(x, mask, index).sum().backward()
    eager(other, mask, index).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)
    torch.testing.assert_close(model.fc.weight.grad, eager.fc.weight.grad)


@pytest.mark.parametrize(("norm_first", "activation", "masked"), [(False, "relu", False), (True, "gelu", True)])
def test_the_fused_encoder_layer_of_inference(norm_first: bool, activation: str, masked: bool) -> None:
    """In eval mode without gradients the layer is one operation, which nothing lowers as it is."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, norm_first=norm_first, activation=activation, batch_first=True).eval()
    padding = torch.tensor([[0, 0, 0, 1], [0, 1, 1, 1]], dtype=torch.bool) if masked else None
    compiled = torch.compile(layer, backend=mlirstack, options={"fallback": "error"}, fullgraph=True)
    x = torch.randn(2, 4, 8)
    with torch.no_grad():
        result, expected = (called(x, src_key_padding_mask=padding) for called in (compiled, layer))
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("averaged", [True, False])
def test_the_fused_attention_of_inference(averaged: bool) -> None:
    weights = [torch.randn(24, 8), torch.randn(24), torch.randn(8, 8), torch.randn(8)]

    def attend(x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch._native_multi_head_attention(x, x, x, 8, 2, *weights, mask, average_attn_weights=averaged, mask_type=0)

    x, mask = torch.randn(2, 4, 8), torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
    compiled = torch.compile(attend, backend=mlirstack, options={"fallback": "error"}, fullgraph=True)
    torch.testing.assert_close(compiled(x, mask), attend(x, mask), rtol=1e-5, atol=1e-5)


# -------------------------------------------------------------------------------------------------------------- fallbacks


def test_random_numbers_are_eagers() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).train()
    compiled = torch.compile(model, backend=mlirstack, options={"fallback": "inductor"})
    x = rows()
    torch.manual_seed(3)
    result = compiled(x)
    torch.manual_seed(3)
    torch.testing.assert_close(result, model(x), rtol=0, atol=0)
    (graph,) = graphs()
    assert graph.status == "fallback" and graph.reason is not None and "random" in graph.reason


def _not_importable(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvalsh(x @ x.t()) + 1


@pytest.mark.parametrize("fallback", ["eager", "inductor"])
def test_a_graph_that_cannot_be_imported_runs_elsewhere(fallback: str) -> None:
    x = torch.randn(4, 4)
    compiled = torch.compile(_not_importable, backend=mlirstack, options={"fallback": fallback})
    torch.testing.assert_close(compiled(x), _not_importable(x))
    (graph,) = graphs()
    assert graph.status == "fallback" and graph.error is not None


def test_a_graph_that_cannot_be_imported_is_an_error_if_asked() -> None:
    compiled = torch.compile(_not_importable, backend=mlirstack, options={"fallback": "error"})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        compiled(torch.randn(4, 4))
    assert isinstance(caught.value.inner_exception, MlirstackError)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"targt": "cpu"}, "target"), ({"fallback": "triton"}, "inductor"), ({"route": "mhlo"}, "tosa")],
)
def test_wrong_options_are_refused(options: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        mlirstack(torch.fx.symbolic_trace(nn.ReLU()), [rows()], options=options)


def test_inductors_modes_are_refused() -> None:
    with pytest.raises(UsageError, match="max-autotune"):
        mlirstack(torch.fx.symbolic_trace(nn.ReLU()), [rows()], mode="max-autotune")


def test_each_graph_has_a_dump(tmp_path: Path) -> None:
    compiled = torch.compile(functional.gelu, backend=mlirstack, options={"dump": str(tmp_path), "target": "cpu"})
    compiled(rows())
    (graph,) = graphs()
    assert (tmp_path / graph.name / "trace.json").is_file()
    assert list((tmp_path / graph.name).glob("*-linalg.mlir"))


# -------------------------------------------------------------------------------------------------- parameters that change


@pytest.fixture
def preparations(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often parameters were prepared, in all graphs of the test."""
    made: list[WatchedProgram] = []
    start = WatchedProgram.__init__

    def record(self: WatchedProgram, *arguments: Any) -> None:
        start(self, *arguments)
        made.append(self)

    monkeypatch.setattr(WatchedProgram, "__init__", record)
    return lambda: sum(program.preparations for program in made)


def _layers() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)).eval()


def _optimizer_step(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.Adam(model.parameters(), lr=0.1).step()


def _other_memory(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter)


CHANGES: dict[str, Callable[[nn.Module], Any]] = {
    "an optimizer": _optimizer_step,
    "load_state_dict": lambda model: model.load_state_dict(_layers().state_dict()),
    "in place": lambda model: model[2].weight.mul_(3),  # type: ignore[index]
    "through detach": lambda model: model[0].bias.detach().add_(1),  # type: ignore[index]
    "other memory": _other_memory,
}


@pytest.mark.parametrize("change", CHANGES)
def test_parameters_are_prepared_once_and_again_when_they_change(change: str, preparations: Callable[[], int]) -> None:
    model, x = _layers(), torch.randn(16, 64)
    compiled = torch.compile(model, backend=mlirstack, options={"fallback": "error", "parameters": "watched"})
    with torch.no_grad():
        for round_ in (1, 2, 3):
            for _ in range(3):
                torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
            assert preparations() == round_
            CHANGES[change](model)
    assert statuses() == [("inference", "compiled")]


@pytest.mark.parametrize("options", [{}, {"parameters": "inputs"}])
def test_parameters_are_prepared_in_every_call_unless_watched(
    options: dict[str, str], preparations: Callable[[], int]
) -> None:
    model, x = _layers(), torch.randn(16, 64)
    compiled = torch.compile(model, backend=mlirstack, options=options)
    with torch.no_grad():
        compiled(x)
        model[0].weight.data.mul_(2)  # type: ignore[index]  # a write that torch does not count
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert preparations() == 0


def test_parameters_without_a_version_and_buffers_that_change() -> None:
    """Tensors made in inference mode count no writes; a buffer that the graph itself writes to is none of the parameters."""
    with torch.inference_mode():
        model = Counter().eval()
        eager = copy.deepcopy(model)
        compiled = torch.compile(model, backend=mlirstack, options={"fallback": "error", "parameters": "watched"})
        for _ in range(3):
            x = rows()
            torch.testing.assert_close(compiled(x), eager(x), rtol=1e-5, atol=1e-5)
            for changed in (model, eager):
                changed.fc.weight.mul_(1.5)
        torch.testing.assert_close(model.seen, eager.seen)


def test_threads_see_the_parameters_of_their_call() -> None:
    """One thread's models of the same class share a compilation, and not their parameters."""
    models = [_layers() for _ in range(2)]
    compiled = torch.compile(lambda m, x: m(x), backend=mlirstack, options={"parameters": "watched"})
    x = torch.randn(16, 64)
    with torch.no_grad():
        expected = [model(x) for model in models]
        for model in models:
            compiled(model, x)
        wrong: list[float] = []

        def call(index: int) -> None:
            with torch.no_grad():
                for _ in range(30):
                    error = (compiled(models[index], x) - expected[index]).abs().max().item()
                    wrong.extend([error] if error > 1e-5 else [])

        threads = [threading.Thread(target=call, args=(index % 2,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


# -------------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("build", TRAINED)
def test_twenty_steps_of_training(build: Callable[[], nn.Module]) -> None:
    """The losses stay within 1e-4 of eager's; both start at the same weights and see the same batches."""
    model = build()
    start = copy.deepcopy(model.state_dict())
    compiled = torch.compile(model, backend=mlirstack, fullgraph=True)
    for kind in (torch.optim.SGD, torch.optim.Adam):
        model.load_state_dict(start)
        losses = losses_of_training(model, compiled, kind)
        model.load_state_dict(start)
        assert losses == pytest.approx(losses_of_training(model, model, kind), rel=1e-4, abs=1e-5)
    assert statuses() == [("forward", "compiled"), ("backward", "compiled")]
