"""Modules that are called as on a GPU, on IREE's processor device, which computes: results and temporaries in memory of the
caller's, and calls that return early."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from mlirstack.bindings import new_context
from mlirstack.errors import RuntimeCheckError
from mlirstack.frontend.mlir_source import program_of_module
from mlirstack.frontend.program import Program
from mlirstack.ir.ops import function
from mlirstack.ir.text import parse_module
from mlirstack.lowering import LowerOptions, build_program, program_of
from mlirstack.passes.iree.results import RESULT_SIZES, ResultSizes
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.iree.gpu import IreeCudaExecutable
from mlirstack.targets.iree.session import processor
from mlirstack.targets.iree.target import IreeCpuTarget

pytestmark = pytest.mark.target

REPEATED = """
func.func @main(%count: tensor<i64>, %value: tensor<f32>) -> (tensor<?xf32>, tensor<f32>) {
  %n = tensor.extract %count[] : tensor<i64>
  %size = arith.index_cast %n : i64 to index
  %most = arith.constant 64 : i64
  %fits = arith.cmpi sle, %n, %most : i64
  cf.assert %fits, "too many"
  %v = tensor.extract %value[] : tensor<f32>
  %empty = tensor.empty(%size) : tensor<?xf32>
  %filled = linalg.fill ins(%v : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  return %filled, %value : tensor<?xf32>, tensor<f32>
}
"""


class Net(nn.Module):
    """Results of every kind: dynamic, of another size, boolean, a scalar, an input's values."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.softmax(self.layer(torch.relu(x @ w)), -1)
        return y, y.reshape(-1, 6), y > 0.05, x.square().sum(), x.view(-1)


def fenced(program: Program) -> tuple[CompiledFunction, IreeCudaExecutable]:
    """Compile ``program`` for this processor, to be called as on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IreeCpuTarget, "fenced", True)
        _, artifact, _ = build_program(program, LowerOptions("iree-cpu"))
    executable = IreeCudaExecutable(
        artifact.files["module.vmfb"],
        program.signature,
        program.parameters,
        place=torch.device("cpu"),
        device_of_iree=processor(2),
    )
    return CompiledFunction(executable, program.signature, program.parameters), executable


@pytest.fixture(scope="module")
def built() -> tuple[CompiledFunction, IreeCudaExecutable]:
    example = (torch.randn(4, 8), torch.randn(8, 8))
    return fenced(program_of(Net(), example, dynamic_shapes=({0: torch.export.Dim("rows", min=1, max=64)}, None)))


def right(found: Any, x: torch.Tensor, w: torch.Tensor) -> None:
    with torch.no_grad():
        expected = Net()(x, w)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_results_lie_in_memory_of_the_caller_s(built: tuple[CompiledFunction, IreeCudaExecutable]) -> None:
    call, executable = built
    w = torch.randn(8, 8)
    for rows in (1, 5, 64):
        x = torch.randn(rows, 8)
        kept = x.clone()
        found = call(x, w)
        right(found, x, w)
        for result in found:
            result.zero_()  # of the caller's own: neither inputs nor parameters change
        assert torch.equal(x, kept)
    nan = torch.randn(3, 8)
    nan[1, 2] = float("nan")
    right(call(nan, w), nan, w)
    assert (executable.copied_results, executable.copied_inputs) == (0, 0)


def test_calls_that_are_under_way_together_do_not_meet(built: tuple[CompiledFunction, IreeCudaExecutable]) -> None:
    call, _ = built
    w = torch.randn(8, 8)
    inputs = [torch.randn(1 + i % 7, 8) for i in range(24)]
    started = [call.start(x, w) for x in inputs]
    for x, finish in reversed(list(zip(inputs, started, strict=True))):
        right(finish(), x, w)


def test_a_size_that_data_decide_is_known_afterwards() -> None:
    call, executable = fenced(program_of_module(parse_module(REPEATED, new_context()), "repeated"))
    for count in (3, 0, 5):
        filled, same = call(torch.tensor(count), torch.tensor(2.5))
        assert filled.tolist() == [2.5] * count and same.item() == 2.5
    assert executable.copied_results == 3  # one a call: the other result has a size
    with pytest.raises(RuntimeCheckError, match="too many"):
        call(torch.tensor(65), torch.tensor(0.0))
    assert call(torch.tensor(1), torch.tensor(7.0))[0].tolist() == [7.0]


class Lookup(nn.Module):
    """Two checks of indices that the data give."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(11, 40)

    def forward(self, words: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.words(words), -1)[places]


def test_checks_are_told_when_the_results_are_there() -> None:
    example = (torch.tensor([3, 0, 10]), torch.tensor([2, 0]))
    call, executable = fenced(program_of(Lookup(), example))

    torch.testing.assert_close(call(*example), Lookup()(*example))
    for words, places, named in (
        ([3, 0, 11], [2, 0], "size 11"),
        ([3, 0, -12], [0, 0], "size 11"),
        ([1, 2, 3], [2, 3], "size 3"),
    ):
        finish = call.start(torch.tensor(words), torch.tensor(places))
        with pytest.raises(RuntimeCheckError, match=f"the program stopped: index out of range: .* {named}"):
            finish()
    torch.testing.assert_close(call(*example), Lookup()(*example))
    assert executable.copied_results == 0
    _, scratch = executable._session.sizes(example, lambda: pytest.fail("asked before"))
    assert scratch is not None  # a straight line: the caller passes the memory of temporaries


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("func.func @main(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {\n return %x : tensor<3x4xf32>\n}", [[3, 4]]),
        (
            "func.func @main(%w: f32, %x: tensor<2x?xf32>) -> (f32, tensor<?xf32>) {\n"
            "%flat = tensor.collapse_shape %x [[0, 1]] : tensor<2x?xf32> into tensor<?xf32>\n"
            "return %w, %flat : f32, tensor<?xf32>\n}",
            [None, [["*", [1, 1], 2]]],
        ),
        (REPEATED, [None, []]),
    ],
)
def test_sizes_are_read_off_the_program(text: str, sizes: list[Any]) -> None:
    module = parse_module(text, new_context())
    with module.context:
        ResultSizes().apply(module)
    assert json.loads(function(module, "main").attributes[RESULT_SIZES].value) == sizes


def test_views_are_made_once_for_each_place(built: tuple[CompiledFunction, IreeCudaExecutable]) -> None:
    """The same memory with other values, then other memory, then the same address as another shape and dtype."""
    call, executable = built
    w, x = torch.randn(8, 8), torch.randn(6, 8)
    right(call(x, w), x, w)
    known = executable._session.views._known
    # Views of tensors that other tests had at these addresses are known as well.
    kept = {key: known[key] for key in ((x.data_ptr(), (6, 8), "float32"), (w.data_ptr(), (8, 8), "float32"))}
    x.mul_(-2.0)
    right(call(x, w), x, w)
    assert all(known[key] is view for key, view in kept.items())
    fewer = x[:3]
    assert fewer.data_ptr() == x.data_ptr()
    right(call(fewer, w), fewer, w)
    assert (x.data_ptr(), (3, 8), "float32") in known


def test_views_hold_no_memory(built: tuple[CompiledFunction, IreeCudaExecutable]) -> None:
    call, _ = built
    x, w = torch.randn(64, 8), torch.randn(8, 8)
    result = call(x, w)[0]
    memory = [StorageWeakRef(tensor.untyped_storage()) for tensor in (x, result)]
    del x, result
    assert all(reference.expired() for reference in memory)


def test_calls_that_pass_the_same_memory_are_prepared_once() -> None:
    """Whatever it holds; two calls under way at once have one each."""
    torch.manual_seed(0)
    model = nn.Linear(16, 16).eval()
    call, executable = fenced(program_of(model, (torch.randn(4, 16),)))
    session, x = executable._session, torch.randn(4, 16)
    result = call(x)
    torch.testing.assert_close(result, model(x))
    (key,) = session._prepared
    for _ in range(3):
        x.normal_()
        place, result = result.data_ptr(), None
        result = call(x)
        torch.testing.assert_close(result, model(x))
        if result.data_ptr() == place:
            assert key in session._prepared
    begun = [(y, call.start(y)) for y in (x, torch.randn(4, 16), x)]
    for y, finish in reversed(begun):
        torch.testing.assert_close(finish(), model(y))
    assert all(prepared.timeline is not None for prepared in session._prepared.values())
    assert len({id(prepared.timeline) for prepared in session._prepared.values()}) == len(session._prepared)
