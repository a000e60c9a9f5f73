"""Target iree-cpu end to end: answers of eager, memory shared where it may be, refusals where it may not."""

from __future__ import annotations

import dataclasses
import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mlirstack as ms
from mlirstack.bindings import ir
from mlirstack.compare.timing import Effort, measure
from mlirstack.errors import BundleError, RuntimeCheckError, SignatureError, TargetUnavailableError, UsageError
from mlirstack.frontend.export import export
from mlirstack.frontend.program import Program
from mlirstack.lowering import LowerOptions, build_program, lower_program
from mlirstack.passes.iree.phase import VMFB, IreePhase
from mlirstack.targets.base import Artifact
from mlirstack.targets.iree.runtime import IreeExecutable
from mlirstack.targets.registry import create_target

pytestmark = pytest.mark.target


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


class TinyMlp(nn.Module):
    def __init__(self, width: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, width, dtype=dtype)
        self.fc2 = nn.Linear(width, width, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc1(x)
        return self.fc2(torch.relu(y) * torch.sigmoid(y)).sum()


def built(model: nn.Module, *inputs: Any, route: str = "auto") -> tuple[Program, Artifact]:
    program = export(model.eval(), inputs)
    _, artifact, _ = build_program(program, LowerOptions("iree-cpu", route=route))
    return program, artifact


def loaded(model: nn.Module, *inputs: Any, route: str = "auto") -> IreeExecutable:
    program, artifact = built(model, *inputs, route=route)
    executable = create_target("iree-cpu").load(artifact, program.signature, program.parameters)
    assert isinstance(executable, IreeExecutable)
    return executable


def relative(value: torch.Tensor, reference: torch.Tensor) -> float:
    return float(((value.double() - reference.double()).norm() / reference.double().norm()).detach())


@pytest.mark.parametrize("route", ["tosa", "linalg"])
def test_tiny_mlp_is_right(route: str) -> None:
    torch.manual_seed(0)
    model, x = TinyMlp(64).eval(), torch.randn(8, 64)
    compiled = ms.compile(model, (x,), target="iree-cpu", route=route)
    reference = TinyMlp(64, torch.float64)
    reference.load_state_dict(model.state_dict())
    # The sum cancels: measured against the magnitude of what is summed.
    y = reference.fc1(x.double())
    scale = float(reference.fc2(torch.relu(y) * torch.sigmoid(y)).detach().abs().sum())
    assert abs(float(compiled(x)) - float(reference(x.double()).detach())) / scale < 1e-6


def test_dtypes_come_back_as_they_are_in_eager() -> None:
    """One program over many dtypes, so that one compilation serves."""

    def compute(*args: torch.Tensor) -> list[torch.Tensor]:
        b, i8, u8, i16, i32, i64, f16, bf16, f32, f64 = args
        ints = [i8 + i8, torch.bitwise_and(u8, u8), i16 + i16, i32 * 3, i64 * 2**40]
        return [~b, *ints, f16 * 2, bf16 + 1, f32.sqrt(), f64 * (1 + 2**-40)]

    values = torch.tensor([1, 2, 3])
    dtypes = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
    dtypes += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    inputs = [torch.tensor([True, False, True]), *(values.to(d) for d in dtypes)]
    inputs[2] = torch.tensor([1, 128, 255], dtype=torch.uint8)
    results = loaded(Function(compute), *inputs, route="linalg").run(inputs)
    for result, expected in zip(results, compute(*inputs), strict=True):
        assert result.dtype is expected.dtype
        assert torch.equal(result, expected), expected.dtype


def test_sums_of_float16_do_not_overflow_or_stall() -> None:
    x = torch.full((4096, 4), 1.0, dtype=torch.float16)  # adding ones in float16 stalls at 2048
    executable = loaded(Function(lambda a: a.sum(0)), x)
    assert executable.run([x])[0].tolist() == [4096.0] * 4


@pytest.mark.parametrize(
    ("model", "sizes", "dtype"),
    [
        (lambda x, y: torch.softmax(x, -1) + y, [(1023, 1021), (1021,)], torch.float32),
        (torch.mm, [(65, 257), (257, 129)], torch.float64),
    ],
    ids=["rows", "float64"],
)
def test_iree_s_own_code_for_odd_sizes_is_vector_code(
    model: Callable[..., Any], sizes: list[tuple[int, ...]], dtype: torch.dtype
) -> None:
    """Scalar code for rows of an odd length takes 80 times as long as eager; tiles of float64 are compiled as well."""
    inputs = [torch.randn(*size, dtype=dtype) for size in sizes]
    program = export(Function(model), tuple(inputs))
    lowering = lower_program(program, LowerOptions("iree-cpu", to="prepared"))
    assert isinstance(lowering.payload, ir.Module)
    artifact = lowering.target.build(program, IreePhase(VMFB).vmfb_of(lowering.payload))
    executable = lowering.target.load(artifact, program.signature, {})
    (found,) = executable.run(inputs)
    assert relative(found, model(*(x.double() for x in inputs))) < (1e-6 if dtype is torch.float32 else 1e-14)
    timed = measure({"iree": lambda: executable.run(inputs), "eager": lambda: model(*inputs)}, Effort(seconds=0.1))
    assert timed["iree"].min_s < 20 * timed["eager"].min_s


def test_products_of_bfloat16_take_about_as_long_as_those_of_f32() -> None:
    """On a processor that cannot multiply them; IREE's own code for such products took 250 times as long."""

    def call(dtype: torch.dtype) -> Callable[[], torch.Tensor]:
        inputs = [torch.randn(128, 384, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (0, 1)]
        program = export(Function(nn.functional.linear), tuple(inputs))
        lowering = lower_program(program, LowerOptions("iree-cpu:x86-64-v3", to="prepared"))
        artifact = lowering.target.build(program, IreePhase(VMFB, arch="x86-64-v3").vmfb_of(lowering.payload))
        executable = lowering.target.load(artifact, program.signature, {})
        assert relative(executable.run(inputs)[0], nn.functional.linear(*(x.double() for x in inputs))) < 4e-3
        return lambda: executable.run(inputs)[0]

    timed = measure({"bf16": call(torch.bfloat16), "f32": call(torch.float32)}, Effort(seconds=0.05))
    assert timed["bf16"].min_s < 5 * timed["f32"].min_s


def test_bfloat16_constants_keep_their_values() -> None:
    class Constant(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.tensor([1.5, -2.25, 0.125, 96.0], dtype=torch.bfloat16)

    x = torch.ones(4, dtype=torch.bfloat16)
    assert loaded(Constant(), x).run([x])[0].tolist() == [1.5, -2.25, 0.125, 96.0]


def test_scalars_in_and_out() -> None:
    x = torch.tensor(3.0)
    assert loaded(Function(lambda a: a * 2 + 1), x).run([x])[0].item() == 7.0
    y = torch.arange(4.0)
    total, any_big = loaded(Function(lambda a: (a.sum().item(), a.max() > 2)), y).run([y])
    assert (total, bool(any_big)) == (6.0, True)


def test_empty_tensors() -> None:
    x = torch.empty(0, 4)
    doubled, total = loaded(Function(lambda a: (a * 2, a.sum(0))), x).run([x])
    assert doubled.shape == (0, 4)
    assert total.tolist() == [0.0] * 4
    turned = torch.empty(2, 0, 3).permute(2, 1, 0)  # its strides are those of no dense tensor
    assert loaded(Function(lambda a: a + 1), turned).run([turned])[0].shape == (3, 0, 2)


def test_inputs_in_any_layout_and_their_copies_are_counted() -> None:
    aligned = torch.randn(4, 8)
    executable = loaded(Function(lambda a: a + 1), aligned)
    unaligned = torch.randn(33)[1:].view(4, 8)
    strided = torch.randn(8, 4).t()
    expanded = torch.randn(1, 8).expand(4, 8)
    assert torch.equal(executable.run([aligned])[0], aligned + 1)
    assert executable.copied_inputs == 0
    for tensor in (unaligned, strided, expanded):
        assert torch.equal(executable.run([tensor])[0], tensor + 1)
    assert executable.copied_inputs == 3
    gradient = aligned.clone().requires_grad_()
    assert torch.equal(executable.run([gradient])[0], aligned + 1)


def test_dynamic_batch_and_wrong_shapes() -> None:
    model = nn.Linear(16, 8).eval()
    compiled = ms.compile(
        model, (torch.randn(4, 16),), target="iree-cpu", dynamic_shapes=({0: torch.export.Dim("b", min=1, max=64)},)
    )
    for batch in (1, 4, 33):
        x = torch.randn(batch, 16)
        assert relative(compiled(x), model(x)) < 1e-6
    with pytest.raises(SignatureError):
        compiled(torch.randn(4, 15))


def test_results_own_their_memory() -> None:
    """Results outlive everything they came from, and never alias inputs, parameters or each other."""
    weight = torch.randn(4, 4)

    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(weight)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.reshape(16), self.weight.reshape(16), (x @ self.weight), (x @ self.weight).reshape(16)

    x = torch.randn(4, 4)
    executable = loaded(Views(), x)
    results = executable.run([x])
    expected = [r.clone() for r in results]
    assert torch.equal(results[0], x.reshape(16))
    assert torch.equal(results[1], weight.reshape(16))
    for i, result in enumerate(results):
        result.zero_()
        assert all(torch.equal(results[j], expected[j]) for j in range(i + 1, 4))
    assert not torch.equal(x.reshape(16), results[0])
    again = executable.run([x])
    assert all(torch.equal(a, b) for a, b in zip(again, expected, strict=True))
    del executable
    gc.collect()
    _ = [torch.randn(4, 4) for _ in range(100)]
    assert all(torch.equal(a, b) for a, b in zip(again, expected, strict=True))


def test_arguments_and_parameters_are_never_written_to() -> None:
    """IREE computes in place where it may; what the caller gave is the caller's."""

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8))

        def forward(
            self, x: torch.Tensor, flag: torch.Tensor, y: torch.Tensor, z: torch.Tensor, i: torch.Tensor, s: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            a = x.scatter_add(0, i, s)
            b = y.clone()
            b[2:4] = s[:2]
            c = torch.addmm(z, s.view(3, 1), s.view(1, 3))
            d = self.weight.scatter_add(0, i, s)
            e = flag.clone()
            e[0] = True
            return a, b, c, d, e

    model = Writes()
    inputs = (torch.randn(8), torch.zeros(4, dtype=torch.bool), torch.randn(8), torch.randn(3, 3))
    inputs = (*inputs, torch.tensor([1, 1, 5]), torch.randn(3))
    before, weight = [t.clone() for t in inputs], model.weight.detach().clone()
    executable = loaded(model, *inputs, route="linalg")
    for _ in range(2):
        results = executable.run(inputs)
        assert len(results) == 5
        for result, expected in zip(results, model(*before), strict=True):
            assert torch.allclose(result, expected)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))
    assert torch.equal(model.weight, weight)


def test_parameters_of_every_kind() -> None:
    class Parameters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unaligned = nn.Parameter(torch.randn(17)[1:].view(4, 4))
            self.strided = nn.Parameter(torch.randn(4, 4).t())
            self.scale = nn.Parameter(torch.tensor(2.0))
            self.single = nn.Parameter(torch.randn(8)[::4][:1])
            self.empty = nn.Parameter(torch.empty(0, 4))
            self.register_buffer("mask", torch.eye(4) > 0)
            self.register_buffer("index", torch.tensor([2, 0, 1, 3]))
            self.tied = self.unaligned

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x @ self.unaligned @ self.strided * self.scale * self.single + self.tied[0]
            return torch.cat([torch.where(self.mask, y, x)[self.index], self.empty * 2])

    model, x = Parameters(), torch.randn(4, 4)
    assert relative(loaded(model, x).run([x])[0], model(x)) < 1e-6


def test_a_buffer_that_the_model_updates_is_updated() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(x)
            return self.count * 10

    compiled = ms.compile(Counter(), (torch.ones(2),), target="iree-cpu")
    assert compiled(torch.ones(2)).tolist() == [10.0, 10.0]
    assert compiled(torch.tensor([1.0, 2.0])).tolist() == [20.0, 30.0]


@pytest.mark.parametrize("route", ["tosa", "linalg"])
def test_an_index_out_of_range_is_an_error_and_touches_nothing(route: str) -> None:
    """Embedding, gather and indexing in one program, each with good and bad positions; bad ones are far away."""

    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 4)

        def forward(self, e: torch.Tensor, x: torch.Tensor, g: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self.table(e), torch.gather(x, 1, g), x[i]

    model, x = Lookup().eval(), torch.randn(3, 5)
    good = (torch.tensor([[0, 9], [3, 3]]), x, torch.tensor([[0, 4], [1, 1], [2, 3]]), torch.tensor([2, 0]))
    executable = loaded(model, *good, route=route)
    for result, expected in zip(executable.run(good), model(*good), strict=True):
        assert torch.equal(result, expected)
    far = 2**30
    cases = [(0, far), (0, -1), (0, 10), (2, far), (3, far), (3, 3)]
    if route == "linalg":  # TOSA gathers from a flattened tensor: what leaves a row there need not leave the tensor
        cases.append((2, -1))
    for position, index in cases:
        bad = list(good)
        bad[position] = good[position].clone()
        bad[position].view(-1)[-1] = index
        with pytest.raises(RuntimeCheckError, match="index out of range"):
            executable.run(bad)


def test_what_the_runtime_refuses_is_an_error() -> None:
    x = torch.randn(3, 4)
    executable = loaded(Function(lambda a: a * 3), x)
    # Past the signature, which a caller checks first, IREE's own check stands.
    with pytest.raises(RuntimeCheckError, match="the program stopped: input0 shape dimension 0 mismatch; expected 3 but"):
        executable.run([torch.randn(2, 4)])


def test_damaged_files_are_refused() -> None:
    x = torch.randn(4, 4)
    program, artifact = built(Function(lambda a: a * 3), x)
    vmfb = bytearray(artifact.files["module.vmfb"])
    vmfb[len(vmfb) // 2] ^= 1
    damaged = dataclasses.replace(artifact, files={"module.vmfb": bytes(vmfb)})
    target = create_target("iree-cpu")
    with pytest.raises(BundleError, match="checksum"):
        target.load(damaged, program.signature, program.parameters)
    with pytest.raises(BundleError, match=r"holds no module\.vmfb"):
        target.load(dataclasses.replace(artifact, files={}), program.signature, program.parameters)
    with pytest.raises(TargetUnavailableError, match="refuses this module"):
        IreeExecutable(b"no flatbuffer at all", program.signature, program.parameters)


def test_threads_and_processors() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(128, 64), nn.ReLU()).eval(), torch.randn(32, 128)
    program = export(model, (x,))
    _, artifact, _ = build_program(program, LowerOptions("iree-cpu:x86-64-v3", threads=2))
    assert artifact.metadata["arch"] == "x86-64-v3"
    for threads in (1, 2, 3):
        executable = create_target("iree-cpu", threads=threads).load(artifact, program.signature, program.parameters)
        assert relative(executable.run([x])[0], model(x)) < 1e-6
    with pytest.raises(UsageError, match="0 threads"):
        create_target("iree-cpu", threads=0)


LOAD_ONLY = """
import pickle, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch_mlir" or name.startswith("iree.compiler"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
import torch
from mlirstack.targets.registry import create_target
artifact, signature, parameters, x = pickle.load(open(sys.argv[1], "rb"))
print(create_target("iree-cpu").load(artifact, signature, parameters).run([x])[0].tolist())
"""


def test_loading_needs_neither_torch_mlir_nor_the_compiler(tmp_path: Path) -> None:
    import pickle

    x = torch.arange(4.0)
    program, artifact = built(Function(lambda a: a * 3), x)
    (tmp_path / "case").write_bytes(pickle.dumps((artifact, program.signature, program.parameters, x)))
    command = [sys.executable, "-c", LOAD_ONLY, str(tmp_path / "case")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0.0, 3.0, 6.0, 9.0]"


def test_available_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    target = create_target("iree-cpu")
    assert target.available() is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert target.available() == "IREE's runtime is not installed (pip install iree-base-runtime)"
