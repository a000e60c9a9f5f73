"""build, verify, run and bench as a user types them: files, JSON, exit statuses, one short error for a wrong use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlirstack import zoo
from mlirstack.bundle.golden import read_golden, write_golden
from mlirstack.bundle.manifest import Origin, read_manifest
from mlirstack.cli.bench import bench
from mlirstack.cli.build import build
from mlirstack.cli.run import run
from mlirstack.cli.verify import verify
from mlirstack.deploy.answers import golden_of_program
from mlirstack.deploy.build import write_part
from mlirstack.frontend.mlir_source import load_mlir
from mlirstack.lowering import LowerOptions

MODEL = "zoo:mlp_dynamic"


def status_of(command: Callable[..., None], *arguments: Any, **options: Any) -> int:
    with pytest.raises(SystemExit) as ended:
        command(*arguments, **options)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    assert status_of(build, MODEL, target="cpu", out=folder / "net", json_file=folder / "build.json") == 0
    return folder / "net"


@pytest.fixture
def x() -> np.ndarray:
    (tensor,) = zoo.get("mlp_dynamic").inputs
    assert isinstance(tensor, torch.Tensor)
    return tensor.numpy()


def eager(x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = zoo.get("mlp_dynamic").module(torch.tensor(x)).numpy()
    return found


def test_build_writes_what_it_says(built: Path) -> None:
    said = json.loads((built.parent / "build.json").read_text())
    assert said["model"] == "mlp_dynamic" and [target["spec"] for target in said["targets"]] == ["cpu"]
    assert said["golden"] and all(check["status"] == "ok" for check in said["golden"])  # what runs here was compared
    manifest = read_manifest(built)
    assert (
        said["bytes"]
        == sum(f.stat().st_size for f in built.rglob("*") if f.is_file()) - (built / "manifest.json").stat().st_size
    )
    assert manifest.origin == Origin(MODEL)
    assert sorted(p.name for p in built.parent.iterdir()) == ["build.json", "net"]


def test_verify_says_ok_and_what_is_wrong(built: Path, tmp_path: Path) -> None:
    import shutil

    out = tmp_path / "verify.json"
    assert status_of(verify, built, json_file=out) == 0
    found = json.loads(out.read_text())
    assert found["ok"] and {check["step"] for check in found["checks"]} == {
        "manifest",
        "files",
        "versions",
        "arch",
        "golden",
    }
    assert all(0 < output["rel_l2"] < output["tolerance"] for output in found["outputs"])
    bad = Path(shutil.copytree(built, tmp_path / "bad"))
    (bad / "cpu" / "main.o").unlink()
    assert status_of(verify, bad, json_file=out) == 1
    (problem,) = [check for check in json.loads(out.read_text())["checks"] if check["status"] == "failed"]
    assert (problem["step"], problem["subject"], problem["detail"]) == ("files", "cpu/main.o", "is missing")
    assert status_of(verify, tmp_path / "nowhere") == 1
    assert status_of(verify, built, device="cuda") == 2


def test_run_reads_every_kind_of_file(built: Path, tmp_path: Path, x: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", x)
    np.savez(tmp_path / "b.npz", x=x[:3])
    torch.save({"x": torch.tensor(x[:2])}, tmp_path / "c.pt")
    for name, rows in (("a.npy", len(x)), ("b.npz", 3), ("c.pt", 2)):
        assert status_of(run, built, inputs=tmp_path / name, outputs=tmp_path / "out.npz") == 0
        with np.load(tmp_path / "out.npz") as found:
            np.testing.assert_allclose(found["output0"], eager(x[:rows]), rtol=1e-5, atol=1e-5)


def test_run_streams_a_folder_and_makes_inputs_up(built: Path, tmp_path: Path, x: np.ndarray) -> None:
    (tmp_path / "in").mkdir()
    for rows in (2, 5):
        np.savez(tmp_path / "in" / f"{rows}.npz", x=x[:1].repeat(rows, 0))
    out = tmp_path / "run.json"
    assert status_of(run, built, inputs=tmp_path / "in", outputs=tmp_path / "out", json_file=out) == 0
    assert [call["outputs"]["output0"] for call in json.loads(out.read_text())["calls"]] == [
        f"float32[{rows}]" for rows in (2, 5)
    ]
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["2.npz", "5.npz"]
    assert status_of(run, built, size=["batch=7"], repeat=2, json_file=out) == 0
    said = json.loads(out.read_text())
    assert said["calls"][0]["outputs"] == {"output0": "float32[7]"}
    assert said["target"] == "cpu" and said["peak_bytes"]["host"] > 50e6 and 0 < said["load_seconds"] < 60


def test_wrong_uses_are_told_apart(built: Path, tmp_path: Path, x: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "double.npy", x.astype(np.float64))
    np.savez(tmp_path / "named.npz", y=x)
    (tmp_path / "broken.npz").write_bytes(b"PK")
    (tmp_path / "broken.pt").write_bytes(b"\x80\x02garbage")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"inputs": tmp_path / "double.npy"}, "'x' has dtype float64, expected float32"),
        ({"inputs": tmp_path / "named.npz"}, "named.npz lacks x"),
        ({"inputs": tmp_path / "broken.npz"}, "cannot read inputs from"),
        ({"inputs": tmp_path / "broken.pt"}, "cannot read inputs from"),
        ({"inputs": tmp_path / "none.npy"}, "no file"),
        ({"inputs": tmp_path / "x.txt"}, "no file"),
        ({"size": ["bacth=1"]}, "no dynamic dimension 'bacth'; nearest: batch"),
        ({"size": ["batch=100000"]}, "dimension 'batch' is 100000, allowed"),
        ({"size": ["batch=two"]}, "'two' is no size"),
        ({"device": "iree-cpu"}, "the bundle holds nothing for 'iree-cpu'"),
        ({"outputs": Path("/proc/nothing/y.npz")}, "cannot write /proc/nothing/y.npz"),
    ]
    for options, message in cases:
        capsys.readouterr()
        assert status_of(run, built, **options) == 2, options
        told = " ".join(capsys.readouterr().err.split())
        assert message in told and "Traceback" not in told
    assert status_of(build, MODEL, target="cpu", out=tmp_path, optimize=2) == 2
    assert status_of(build, MODEL, target="cpu", out=tmp_path) == 2  # holds other files
    assert status_of(bench, tmp_path) == 2
    capsys.readouterr()
    assert status_of(bench, built, modes="default,fastest") == 2
    assert "torch.compile has no mode 'fastest'" in capsys.readouterr().err


def test_bench_compares_with_eager(built: Path, tmp_path: Path) -> None:
    out, plot = tmp_path / "bench.json", tmp_path / "bench.svg"
    assert status_of(bench, built, seconds=0.05, compiled=False, json_file=out, plot=plot) == 0
    found = json.loads(out.read_text())
    ours, theirs = found["contenders"]
    assert (ours["contender"], theirs["contender"]) == ("cpu", "eager")
    assert ours["min_s"] <= ours["median_s"] <= ours["p90_s"] <= ours["p99_s"]
    assert ours["ratio_vs_eager"] == pytest.approx(theirs["median_s"] / ours["median_s"])
    assert ours["calls_per_s"] > 0 and ours["prepare_s"] > 0 and 0 < ours["rel_l2"] < 1e-5
    from xml.etree import ElementTree

    root = ElementTree.parse(plot).getroot()
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"cpu", "eager"} <= set(texts)
    assert len([e for e in root.iter() if e.tag.endswith("circle")]) >= 2


PRODUCT = """
func.func @main(%a: tensor<?x8xf32>, %b: tensor<8x16xf32>) -> tensor<?x16xf32> {
  %zero = arith.constant 0.0 : f32
  %first = arith.constant 0 : index
  %rows = tensor.dim %a, %first : tensor<?x8xf32>
  CHECK
  %empty = tensor.empty(%rows) : tensor<?x16xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x16xf32>) -> tensor<?x16xf32>
  %product = linalg.matmul
    ins(%a, %b : tensor<?x8xf32>, tensor<8x16xf32>) outs(%filled : tensor<?x16xf32>) -> tensor<?x16xf32>
  return %product : tensor<?x16xf32>
}
"""


def test_a_file_of_mlir_is_verified_against_target_cpu(tmp_path: Path) -> None:
    """It has no eager: target cpu answers in its place, at two sizes of what is dynamic."""
    file, out = tmp_path / "product.mlir", tmp_path / "verify.json"
    file.write_text(PRODUCT.replace("CHECK", ""))
    write_part(load_mlir(file), LowerOptions("cpu"), tmp_path / "net", golden=golden_of_program(load_mlir(file)))
    assert status_of(verify, tmp_path / "net", json_file=out) == 0
    golden = [check for check in json.loads(out.read_text())["checks"] if check["step"] == "golden"]
    assert [check["subject"] for check in golden] == ["cpu, example", "cpu, arg0_0=1"]
    assert all("against target cpu" in check["detail"] for check in golden)
    given, found = tmp_path / "x.npz", tmp_path / "y.npz"
    a, b = np.arange(24, dtype=np.float32).reshape(3, 8), np.ones((8, 16), np.float32)
    np.savez(given, arg0=a, arg1=b)
    assert status_of(run, tmp_path / "net", inputs=given, outputs=found) == 0
    with np.load(found) as archive:
        np.testing.assert_array_equal(archive["output0"], a @ b)


def test_a_file_of_mlir_that_target_cpu_cannot_run_says_so(tmp_path: Path) -> None:
    file = tmp_path / "product.mlir"
    check = '%one = arith.constant 1 : index\n  %is = arith.cmpi eq, %rows, %one : index\n  cf.assert %is, "one row only"'
    file.write_text(PRODUCT.replace("CHECK", check))
    golden = golden_of_program(load_mlir(file))
    assert not golden.cases and golden.problem is not None and "one row only" in golden.problem
    description = write_golden(golden, tmp_path / "golden.npz")
    assert read_golden(tmp_path / "golden.npz", description).problem == golden.problem
