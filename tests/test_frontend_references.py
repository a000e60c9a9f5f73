"""Model references: every form that the command line takes, and what is said about those it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mlirstack import zoo
from mlirstack.bindings import ir, new_context
from mlirstack.errors import UsageError
from mlirstack.frontend.program import Program
from mlirstack.frontend.references import ModelSource, load, load_program
from mlirstack.ir.detect import detect_level
from mlirstack.ir.text import module_bytecode, parse_module

MODELS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.drop = nn.Dropout()

    def forward(self, x):
        return self.drop(self.fc(x))

    @staticmethod
    def example_inputs():
        return torch.randn(3, 4)


class Bare(nn.Module):
    pass


def make():
    return Net(), (torch.randn(2, 4),)


def make_dynamic():
    return Net().eval(), (torch.randn(2, 4),), {"x": {0: torch.export.Dim("batch", max=8)}}


def not_a_model():
    return 3


def boom():
    raise ValueError("no such weights")


setting = 3
linear = nn.Linear(4, 4)
net = Net().eval()
"""
KERNELBENCH = """
import torch


class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = torch.nn.Linear(size, 2)

    def forward(self, x):
        return self.fc(x)


def get_inputs():
    return [torch.rand(3, 4)]


def get_init_inputs():
    return [4]
"""
LINALG = """
func.func @{name}(%a: tensor<4x?xf32>, %n: i64) -> (tensor<4x?xf32>, i1) {{
  %t = arith.constant true
  return %a, %t : tensor<4x?xf32>, i1
}}
func.func private @helper()
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    file = tmp_path / "models.py"
    file.write_text(MODELS)
    return file


def source(reference: str, **options) -> ModelSource:
    found = load(reference, **options)
    assert isinstance(found, ModelSource)
    return found


def test_a_name_of_the_zoo():
    found = source("zoo:tiny_mlp_small")
    assert found.name == "tiny_mlp_small"
    torch.testing.assert_close(found.eager(*found.inputs), found.eager(*zoo.get("tiny_mlp_small").inputs))


def test_a_function_in_a_file(models: Path):
    found = source(f"{models}:make")
    assert found.name == "make" and [tuple(x.shape) for x in found.inputs] == [(2, 4)]
    assert found.model.training, "a function's model is taken as it comes"


def test_a_class_in_a_file_is_built_and_put_in_eval_mode(models: Path):
    found = source(f"{models}:Net")
    assert not found.model.training
    assert found.eager(*found.inputs).shape == (3, 4)


def test_a_module_in_a_file_is_taken_with_its_own_inputs(models: Path):
    found = source(f"{models}:net")
    assert found.eager(*found.inputs).shape == (3, 4)


def test_a_function_may_give_dynamic_shapes(models: Path):
    assert load_program(f"{models}:make_dynamic").signature.dynamic == {"batch": (0, 8)}


def test_an_attribute_of_a_module(models: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(models.parent))
    assert source("models:make").name == "make"


def test_a_kernelbench_file(tmp_path: Path):
    file = tmp_path / "1_linear.py"
    file.write_text(KERNELBENCH)
    found = source(str(file))
    assert found.name == "1_linear"
    assert found.eager(*found.inputs).shape == (3, 2)


def test_seeds_set_weights_and_inputs_and_leave_the_global_state(models: Path):
    state = torch.random.get_rng_state()
    first, again, other = (source(f"{models}:make", seed=s) for s in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first.model.fc.weight, again.model.fc.weight) and torch.equal(first.inputs[0], again.inputs[0])
    assert not torch.equal(first.model.fc.weight, other.model.fc.weight)


def test_a_dtype_converts_weights_and_inputs(models: Path):
    found = source(f"{models}:Net", dtype="bf16")
    assert found.model.fc.weight.dtype == found.inputs[0].dtype == torch.bfloat16


def test_a_dynamic_dimension(models: Path):
    program = load_program(f"{models}:Net", dynamic={"x:0": "1..64"})
    assert program.signature.arguments[-1].shape == ("x_0", 4)
    assert program.signature.dynamic == {"x_0": (1, 64)}


def test_an_export_archive(tmp_path: Path):
    model, x = torch.nn.Linear(4, 2), torch.randn(3, 4)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "net.pt2")
    found = source(str(tmp_path / "net.pt2"))
    torch.testing.assert_close(found.eager(*found.inputs), model(x))
    assert [a.name for a in found.program().signature.arguments] == ["weight", "bias", "input"]


@pytest.mark.parametrize("suffix", ["mlir", "mlirbc"])
@pytest.mark.parametrize("name", ["main", "forward"])
def test_an_mlir_file(tmp_path: Path, name: str, suffix: str):
    file = tmp_path / f"net.{suffix}"
    text = LINALG.format(name=name)
    file.write_bytes(module_bytecode(parse_module(text, new_context())) if suffix == "mlirbc" else text.encode())
    program = load(str(file))
    assert isinstance(program, Program) and program.level == "linalg" and program.parameters == {}
    assert [(a.shape, a.dtype) for a in program.signature.arguments] == [((4, "arg0_1"), "float32"), (None, "int64")]
    assert [(r.dtype, r.shape is None) for r in program.signature.results] == [("float32", False), ("bool", True)]
    assert "@main(" in str(program.payload), "the only public function becomes the entry"


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("func.func @main(%a: !torch.vtensor<[4],ui8>) { return }", "torch"),
        ("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }", "linalg"),
        ("func.func @main(%a: memref<4xf32>) { return }", "scf"),
        ("func.func @main(%a: memref<f32>, %v: f32) { linalg.fill ins(%v: f32) outs(%a: memref<f32>) return }", "buffer"),
        ("llvm.func @main(%a: i64) { llvm.return }", "llvm"),
        (
            "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
            "%0 = tosa.exp %a : (tensor<4xf32>) -> tensor<4xf32> return %0 : tensor<4xf32> }",
            "tosa",
        ),
        (
            "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
            "%0 = stablehlo.exponential %a : tensor<4xf32> return %0 : tensor<4xf32> }",
            "stablehlo",
        ),
        (
            "func.func @main(%a: tensor<4xf32>, %v: f32) -> vector<4xf32> {\n"
            "%i = arith.constant 0 : index\n"
            "%0 = vector.transfer_read %a[%i], %v : tensor<4xf32>, vector<4xf32> return %0 : vector<4xf32> }",
            "vector",
        ),
        (
            "gpu.module @kernels { gpu.func @f(%a: memref<4xf32>) kernel { gpu.return } }\n"
            "func.func @main(%a: memref<4xf32>) { return }",
            "gpu",
        ),
        (
            "gpu.module @kernels { llvm.func @f(%a: !llvm.ptr) { llvm.return } }\n"
            "func.func @main(%a: memref<4xf32>) { return }",
            "nvvm",
        ),
    ],
)
def test_levels_are_told_from_dialects(text: str, level: str):
    module = parse_module(text, new_context())
    assert isinstance(module, ir.Module)
    assert detect_level(module) == level


def test_a_module_of_mixed_levels_is_refused_with_the_op():
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = tosa.exp %a : (tensor<4xf32>) -> tensor<4xf32>
      %1 = linalg.copy ins(%a : tensor<4xf32>) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
      return %1 : tensor<4xf32>
    }"""
    with pytest.raises(UsageError, match=r"'linalg\.copy' .* 'tosa'"):
        detect_level(parse_module(text, new_context()))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("{}:mak", "has no 'mak'; nearest: make"),
        ("{}:not_a_model", "returned a int"),
        ("{}:setting", "is a int"),
        ("{}:linear", "is a Linear"),
        ("{}:Bare", r"no example_inputs\(\)"),
        ("{}:boom", r"ValueError: no such weights at .*models\.py:37"),
        ("{}", "has no Model, get_inputs, get_init_inputs"),
        ("model.py:make", "no file model.py"),
        ("no_such_package.models:make", "no module 'no_such_package.models'"),
        ("zoo:tiny_mpl", "no model 'tiny_mpl'; nearest: tiny_mlp"),
        ("tiny_mlp", "no model reference"),
        ("missing.pt2", "no file missing.pt2"),
        ("missing.mlir", "no file missing.mlir"),
    ],
)
def test_what_is_said_about_wrong_references(models: Path, reference: str, message: str):
    with pytest.raises(UsageError, match=message) as refused:
        load(reference.format(models))
    assert refused.value.exit_status == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "fp16"}, "unknown dtype 'fp16'; nearest: f16"),
        ({"dynamic": {"y:0": "1..2"}}, "no input 'y'"),
        ({"dynamic": {"x:7": "1..2"}}, "no dimension 7"),
        ({"dynamic": {"x": "1..2"}}, "not of the form"),
    ],
)
def test_what_is_said_about_wrong_options(models: Path, options: dict, message: str):
    with pytest.raises(UsageError, match=message):
        load(f"{models}:make", **options)


def test_a_file_that_does_not_run_is_named_with_its_line(tmp_path: Path):
    (tmp_path / "broken.py").write_text("import torch\nimport nothing_of_this_name\n")
    with pytest.raises(UsageError, match=r"nothing_of_this_name.*broken\.py:2"):
        load(f"{tmp_path}/broken.py:make")
    (tmp_path / "syntax.py").write_text("x = 1\ndef (\n")
    with pytest.raises(UsageError, match=r"SyntaxError.*syntax\.py:2"):
        load(f"{tmp_path}/syntax.py:make")


def test_damaged_files_are_refused(tmp_path: Path):
    (tmp_path / "net.pt2").write_text("no archive")
    with pytest.raises(UsageError, match=r"not a torch\.export archive"):
        load(str(tmp_path / "net.pt2"))
    (tmp_path / "net.mlir").write_text("func.func @main( {")
    with pytest.raises(UsageError, match=r"net\.mlir:1:"):
        load(str(tmp_path / "net.mlir"))
    (tmp_path / "net.mlirbc").write_bytes(b"ML\xefR damaged")
    with pytest.raises(UsageError):
        load(str(tmp_path / "net.mlirbc"))


def test_a_module_without_one_entry_is_refused(tmp_path: Path):
    (tmp_path / "two.mlir").write_text("func.func @f() { return }\nfunc.func @g() { return }")
    with pytest.raises(UsageError, match="no function @main") as refused:
        load(str(tmp_path / "two.mlir"))
    assert "@f, @g" in refused.value.hint


def test_fixed_files_take_no_shape_or_dtype_options(tmp_path: Path):
    (tmp_path / "net.mlir").write_text(LINALG.format(name="main"))
    with pytest.raises(UsageError, match="--dtype does not apply"):
        load(str(tmp_path / "net.mlir"), dtype="f16")
