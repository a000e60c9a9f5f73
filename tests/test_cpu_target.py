"""Target cpu from a Torch function to numbers: values against eager, and everything that crosses the border of the call."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mlirstack import api
from mlirstack.errors import BundleError, RuntimeCheckError, TargetUnavailableError
from mlirstack.frontend.mlir_source import load_mlir
from mlirstack.lowering import LowerOptions, build_program, program_of
from mlirstack.targets.base import Artifact
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.cpu.executable import CpuExecutable
from mlirstack.targets.cpu.target import CpuTarget, missing_features
from mlirstack.zoo.recipe import Operation

pytestmark = pytest.mark.portable


def compiled(function: Callable[..., Any], *inputs: Any, **keywords: Any) -> CompiledFunction:
    return api.compile(Operation(function), inputs, target="cpu", **keywords)


def executable(function: CompiledFunction) -> CpuExecutable:
    assert isinstance(function.executable, CpuExecutable)
    return function.executable


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0, 100, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(dtype)


# ---------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
    ],
    ids=str,
)
def test_dtypes_keep_their_arithmetic(dtype: torch.dtype) -> None:
    x, y = draw(3, 5, dtype=dtype), draw(3, 5, dtype=dtype, seed=1)

    def function(x: Tensor, y: Tensor) -> Tensor:
        return x * y + x

    result = compiled(function, x, y)(x, y)
    # A half-precision product is rounded once by eager and kept in f32 here, or the other way round.
    torch.testing.assert_close(
        result, function(x, y), rtol=2e-2 if dtype.itemsize == 2 else None, atol=None if dtype.itemsize != 2 else 2e-2
    )


def test_booleans_and_complex_numbers() -> None:
    a, b, c = draw(7, dtype=torch.bool), draw(7, dtype=torch.bool, seed=1), draw(7, dtype=torch.complex64)
    assert torch.equal(compiled(lambda a, b: a & ~b, a, b)(a, b), a & ~b)
    torch.testing.assert_close(compiled(lambda c: c * c, c)(c), c * c)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 17, 33), (9, 64, 31)])
def test_ragged_shapes(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, w = draw(m, k), draw(k, n, seed=1)

    def function(x: Tensor, w: Tensor) -> Tensor:
        return torch.softmax(torch.relu(x @ w) - 0.5, dim=-1)

    torch.testing.assert_close(compiled(function, x, w)(x, w), function(x, w))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -2, 11])
def test_integer_powers(exponent: int) -> None:
    x = draw(3, 16).abs() + 0.5
    torch.testing.assert_close(compiled(lambda x: x**exponent, x)(x), x**exponent)


def test_integer_powers_of_tensors() -> None:
    x, n = draw(3, 16), torch.arange(48).reshape(3, 16) % 5 - 2
    torch.testing.assert_close(compiled(torch.float_power, x, n)(x, n), torch.float_power(x, n))


def test_empty_tensors() -> None:
    x = draw(0, 3)
    result = compiled(lambda x: (x + 1, x.sum(0)), x)(x)
    assert result[0].shape == (0, 3)
    assert torch.equal(result[1], torch.zeros(3))


def test_a_row_of_minus_infinity_is_eager_s() -> None:
    x = torch.full((2, 4), -torch.inf)
    x[1, 2] = 1.0
    function = torch.amax
    assert torch.equal(compiled(lambda x: function(x, dim=1), x, route="tosa")(x), function(x, dim=1))


def test_relu_of_infinity_is_infinity() -> None:
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 1.0])
    torch.testing.assert_close(compiled(torch.relu, x, route="tosa")(x), torch.relu(x), equal_nan=True)


# ----------------------------------------------------------------------------------------------------------------- inputs


def test_contiguous_inputs_are_not_copied_others_are_counted() -> None:
    x = draw(6, 4)
    function = compiled(lambda x: x * 2, x)
    assert torch.equal(function(x), x * 2)
    assert executable(function).copies == 0
    wide = draw(4, 6)
    assert torch.equal(function(wide.t()), wide.t() * 2)
    assert executable(function).copies == 1


def test_a_view_into_the_middle_of_a_buffer_is_read_in_place() -> None:
    base = draw(10, 4)
    function = compiled(lambda x: x + 1, draw(6, 4))
    assert torch.equal(function(base[3:9]), base[3:9] + 1)
    assert executable(function).copies == 0


def test_lazy_conjugation_and_negation_are_resolved() -> None:
    c = draw(5, dtype=torch.complex64)
    function = compiled(lambda c: c * c, c)
    torch.testing.assert_close(function(c.conj()), (c * c).conj())
    part = compiled(lambda x: x + 1, draw(5))
    torch.testing.assert_close(part(c.conj().imag), c.conj().imag + 1)


def test_inputs_are_never_written() -> None:
    x = draw(4, 4)
    before = x.clone()
    function = compiled(lambda x: torch.index_put(x, (torch.tensor([0, 1]),), torch.zeros(2, 4)), x)
    result = function(x)
    assert torch.equal(x, before)
    assert result[0].abs().sum() == 0


def test_scalar_inputs_and_results() -> None:
    x = draw(3)
    low = torch.export.Dim("n", min=2, max=9)
    function = compiled(lambda x: x.sum() / x.shape[0], x, dynamic_shapes=(({0: low},),))
    longer = draw(8)
    torch.testing.assert_close(function(longer), longer.mean())


# ----------------------------------------------------------------------------------------------------------------- results


def test_results_are_the_caller_s_own() -> None:
    x = draw(4)
    function = compiled(lambda x: (x + 1, x + 1, x.view(2, 2) * 1), x)
    first = function(x)
    kept = [t.clone() for t in first]
    second = function(x * 2)
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))
    assert len({t.data_ptr() for t in (*first, *second)}) >= 4


def test_dynamic_shapes_return_buffers_that_live_as_long_as_their_views() -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    x = draw(4, 8)
    function = compiled(lambda x: torch.exp(x) @ x.t(), x, dynamic_shapes=(({0: batch},),))
    for size in (1, 3, 64):
        given = draw(size, 8)
        view = function(given)[-1]
        gc.collect()
        torch.testing.assert_close(view, (torch.exp(given) @ given.t())[-1])


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4, 2).t())  # not contiguous

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x + self.count


def test_buffers_are_updated_in_the_model_itself() -> None:
    model = Counter()
    x = draw(2, 4)
    function = api.compile(model, (x,), target="cpu")
    start = model.count.clone()
    for step in (1, 2, 3):
        torch.testing.assert_close(function(x), x + start + step)
    assert torch.equal(function.parameters["count"], start + 3)


def test_prepared_weights_follow_the_parameters_given_at_load() -> None:
    model = nn.Linear(8, 8).eval()
    x = draw(2, 8)
    lowering, artifact, _ = build_program(program_of(model, (x,)), LowerOptions("cpu"))
    signature = lowering.program.signature
    doubled = {name: value * 2 for name, value in lowering.program.parameters.items()}
    with torch.no_grad():
        expected = nn.functional.linear(x, model.weight * 2, model.bias * 2)
    result = lowering.target.load(artifact, signature, doubled).run([x])
    torch.testing.assert_close(result[0], expected)


# --------------------------------------------------------------------------------------------------- checks and failures


@pytest.mark.parametrize("route", ["tosa", "linalg"])
def test_an_index_out_of_range_is_an_exception(route: str) -> None:
    table, good = draw(10, 4), torch.tensor([1, 9, 0])
    function = compiled(nn.functional.embedding, good, table, route=route)
    for bad in (torch.tensor([1, 10, 0]), torch.tensor([-1, 0, 0])):
        with pytest.raises(RuntimeCheckError, match="index"):
            function(bad, table)
        torch.testing.assert_close(function(good, table), table[good])


def test_damaged_and_foreign_artifacts_are_refused() -> None:
    x = draw(3)
    lowering, artifact, _ = build_program(program_of(Operation(torch.exp), (x,)), LowerOptions("cpu"))
    signature = lowering.program.signature
    with pytest.raises(BundleError):
        CpuTarget().load(Artifact("cpu", {"main.o": artifact.files["main.o"][:100]}, {}), signature, {})
    other = Artifact("cpu", artifact.files, {**artifact.metadata, "features": "+avx2,+flying"})
    with pytest.raises(TargetUnavailableError, match="flying"):
        CpuTarget().load(other, signature, {})


def test_features_that_are_absent_everywhere_do_not_matter() -> None:
    assert missing_features("-flying") is None
    assert missing_features("") is None


# ------------------------------------------------------------------------------------------------------ how it is compiled


def test_objects_are_deterministic_and_say_what_they_need() -> None:
    x = draw(4, 8)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)).eval()
    artifacts = [build_program(program_of(model, (x,)), LowerOptions("cpu"))[1] for _ in range(2)]
    assert artifacts[0].files == artifacts[1].files
    assert "main(" in artifacts[0].metadata["abi"]
    assert "libc.so.6" in artifacts[0].metadata["libraries"]


def test_sources_of_late_stages() -> None:
    x = draw(16)
    function = compiled(torch.exp, x)
    assert "define void @mlirstack_main(ptr %0)" in function.source("llvmir")
    assert "mlirstack_main:" in function.source("asm")
    assert "mlirstack_main:" in executable(function).source("asm")
    with pytest.raises(KeyError):
        executable(function).source("ptx")


def test_each_stage_holds_what_its_name_says() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()).eval()
    lowering = api.lower(model, (draw(1, 3, 16, 16),), target="cpu")
    assert "func.func @prepare" in lowering["prepared"].text
    assert 'mlirstack.kernel = "convolution"' in lowering["kernels"].text
    assert not any(op.startswith("tensor.") for op in lowering["bufferized"].ops)
    assert not any(op.startswith("linalg.") for op in lowering["loops"].ops)
    assert all(op.startswith("llvm.") for op in lowering["llvm"].ops)
    assert lowering["object"].data.startswith(b"\x7fELF")  # type: ignore[arg-type]


def test_repeated_layers_are_compiled_once() -> None:
    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x

    text = api.lower(Repeated().eval(), (draw(16, 32),), target="cpu", to="kernels")["kernels"].text
    assert text.count('mlirstack.kernel = "contraction"') == 1
    assert text.count("call @kernel_contraction") == 6


# -------------------------------------------------------------------------------------------------------------- the call


def test_calls_from_several_threads_at_once() -> None:
    x = [draw(64, 64, seed=s) for s in range(4)]
    function = compiled(lambda x: torch.tanh(x @ x), x[0])
    expected = [torch.tanh(t @ t) for t in x]
    wrong: list[int] = []

    def work(which: int) -> None:
        for _ in range(20):
            if not torch.allclose(function(x[which]), expected[which], atol=1e-4, rtol=1e-4):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_call_costs_as_much_as_a_few_of_eagers() -> None:
    """5 µs on an idle machine, three of eager's; measured in turns, so that a slow or busy machine slows both."""
    x = draw(4)
    run = compiled(lambda x: x + 1, x).executable.run
    ours, eager = float("inf"), float("inf")
    for _ in range(20):
        ours = min(ours, seconds_of_a_call(lambda: run([x])))
        eager = min(eager, seconds_of_a_call(lambda: x + 1))
    assert ours < 5 * eager


def seconds_of_a_call(call: Callable[[], Any], calls: int = 500) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls


def test_threads_share_large_kernels_and_give_the_same_numbers() -> None:
    x, w = draw(256, 256), draw(256, 256, seed=1)

    def function(x: Tensor, w: Tensor) -> Tensor:
        return torch.softmax(torch.tanh(x @ w), dim=-1)

    single, shared = (compiled(function, x, w, threads=threads) for threads in (1, 2))
    assert shared.lowering is not None and single.lowering is not None
    assert "scf.forall" in shared.source("parallel")
    assert shared.lowering["llvm"].ops["omp.parallel"] >= 2
    assert "omp.parallel" not in single.lowering["llvm"].ops
    torch.testing.assert_close(shared(x, w), single(x, w))
    torch.testing.assert_close(shared(x, w), function(x, w))


def test_small_kernels_are_not_shared() -> None:
    x = draw(8, 8)
    function = compiled(torch.exp, x, threads=2)
    assert function.lowering is not None
    assert "omp.parallel" not in function.lowering["llvm"].ops


SCALE_IN_LOOPS = """
func.func @main(%a: memref<4xf32>, %b: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %x = memref.load %a[%i] : memref<4xf32>
    %y = arith.addf %x, %x : f32
    memref.store %y, %b[%i] : memref<4xf32>
  }
  return
}
"""
SCALE_ON_TENSORS = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %r = arith.addf %a, %a : tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


def test_mlir_files_begin_where_they_stand(tmp_path: Path) -> None:
    x, y = draw(4), torch.zeros(4)
    (tmp_path / "loops.mlir").write_text(SCALE_IN_LOOPS)
    (tmp_path / "tensors.mlir").write_text(SCALE_ON_TENSORS)
    low = api.compile(load_mlir(tmp_path / "loops.mlir"), target="cpu")
    low(x, y)
    assert torch.equal(y, x + x)
    assert low.lowering is not None and low.lowering.stages[0].name == "loops"
    assert torch.equal(api.compile(load_mlir(tmp_path / "tensors.mlir"), target="cpu")(x), x + x)
