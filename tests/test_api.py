"""The Python interface as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import mlirstack as ms
from mlirstack.errors import UsageError


class Net(nn.Module):
    """Two layers and an activation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2 = nn.Linear(7, 33), nn.Linear(33, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.nn.functional.gelu(self.fc1(x)))


@pytest.fixture(scope="module")
def net() -> Net:
    return Net().eval()


INPUT = torch.linspace(-2, 2, 21).reshape(3, 7)


def test_lower_gives_every_stage_by_name(net: Net) -> None:
    low = ms.lower(net, (INPUT,), target="cpu", to="fused")
    assert [s.name for s in low.stages][:4] == ["fx", "torch", "tosa", "linalg"]
    assert "torch.aten" in low["torch"].text
    assert "linalg.generic" in low["linalg"].text
    diff = low.diff("linalg", "fused")
    assert diff.startswith("--- linalg")
    assert "\n+++ fused" in diff
    with pytest.raises(UsageError, match="nearest: linalg"):
        low["linlag"]


@pytest.mark.parametrize("rows", [1, 3])
def test_a_tensor_alone_is_one_input(net: Net, rows: int) -> None:
    low = ms.lower(net, INPUT[:rows], target="cpu", to="torch")
    assert [a.shape for a in low.program.signature.arguments if a.kind == "input"] == [(rows, 7)]


def test_lower_to_stablehlo(net: Net) -> None:
    assert "stablehlo.dot_general" in ms.lower(net, (INPUT,), to="stablehlo")["stablehlo"].text


def test_compiled_function_equals_eager_and_shows_its_source(net: Net) -> None:
    function = ms.compile(net, (INPUT,), target="cpu")
    expected = net.double()(INPUT.double())
    net.float()
    torch.testing.assert_close(function(INPUT).double(), expected, rtol=1e-5, atol=1e-5)
    assert function.route == "tosa"
    assert "define" in function.source("llvmir")
    assert "ret" in function.source("asm")


def test_compare_is_a_function_and_a_package(net: Net) -> None:
    report = ms.compare(net, (INPUT,), targets=["cpu", "iree-cpu"])
    import mlirstack.compare.accuracy

    again = ms.compare(net, (INPUT,), targets=["cpu"])
    assert report.ok
    assert again.ok
    assert {r.target for r in report.results} == {"eager", "cpu", "iree-cpu"}
    assert mlirstack.compare.accuracy.__name__ == "mlirstack.compare.accuracy"


def test_object_bytes_do_not_depend_on_the_dump(net: Net, tmp_path: pytest.TempPathFactory) -> None:
    plain = ms.lower(net, (INPUT,), target="cpu")
    dumped = ms.lower(net, (INPUT,), target="cpu", dump=str(tmp_path))
    assert plain["object"].data == dumped["object"].data
    assert isinstance(plain["object"].data, bytes)


def test_inputs_that_are_copied_are_named_in_the_trace(net: Net, tmp_path: Path) -> None:
    strided = torch.linspace(-2, 2, 42).reshape(3, 14)[:, ::2]
    function = ms.compile(net, (strided,), target="cpu", dump=tmp_path)
    torch.testing.assert_close(function(strided), net(strided), rtol=1e-5, atol=1e-5)
    assert json.loads((tmp_path / "trace.json").read_text())["copied_inputs"] == ["x"]
    ms.compile(net, (INPUT,), target="cpu", dump=tmp_path)
    assert json.loads((tmp_path / "trace.json").read_text())["copied_inputs"] == []


def test_import_is_light() -> None:
    probe = "import sys, mlirstack; print(sorted({'torch', 'torch_mlir', 'iree', 'numpy'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
