"""Compiling on one machine and comparing on another: bundles without parameters, and a machine without MLIR."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mlirstack.bundle.store import MANIFEST, PARAMETERS, BundleInfo, read_bundle, write_bundle
from mlirstack.compare import accuracy
from mlirstack.compare import compare as compare_module
from mlirstack.compare.compare import Candidate
from mlirstack.compare.expected import ExpectedFailure, judge_result
from mlirstack.compare.results import TargetResult
from mlirstack.errors import BundleError, UsageError
from mlirstack.frontend.program import Signature
from mlirstack.frontend.references import ModelSource, rebuilt_parameters
from mlirstack.targets.base import Artifact

WITHOUT_MLIR = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch_mlir", "iree"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
from mlirstack.cli.main import main
main()
"""


def test_parameters_that_a_model_rebuilds_are_left_out(tmp_path: Path) -> None:
    parameters = {"weight": torch.ones(3), "constant": torch.arange(2)}
    info = BundleInfo("net", "tosa", "TOSA first", {})
    write_bundle(tmp_path / "net", Artifact("cuda", {}), Signature((), (), (), "", ""), parameters, info, rebuilt=["weight"])
    assert {file.name for file in (tmp_path / "net").iterdir()} == {MANIFEST, PARAMETERS}
    with pytest.raises(BundleError, match=r"stores no parameters \(weight"):
        read_bundle(tmp_path / "net")
    rebuilt = torch.full((3,), 5.0)
    read = read_bundle(tmp_path / "net", {"weight": rebuilt, "other": torch.zeros(1)}).parameters
    assert list(read) == ["weight", "constant"]
    assert read["weight"].data_ptr() == rebuilt.data_ptr() and read["constant"].tolist() == [0, 1]


def test_only_models_of_the_zoo_are_rebuilt_by_name() -> None:
    source = ModelSource("net", nn.BatchNorm1d(2), ())
    assert set(rebuilt_parameters("zoo:net", source)) == {
        "weight", "bias", "running_mean", "running_var", "num_batches_tracked",
    }  # fmt: skip
    assert rebuilt_parameters("file.py:net", source) == {}


def test_artifacts_are_built_here_and_compared_without_mlir(tmp_path: Path) -> None:
    store, found = tmp_path / "artifacts", tmp_path / "found.json"
    arguments = ["compare", "zoo:tiny_mlp_small", "--targets", "cpu", "--artifacts", str(store), "--json", str(found)]
    build = [sys.executable, "-m", "mlirstack", *arguments, "--build-only"]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    folder = store / "tiny_mlp_small" / "cpu"
    assert (folder / MANIFEST).is_file() and not (folder / PARAMETERS).exists()
    assert [result["status"] for result in json.loads(found.read_text())["results"]] == ["ok"]

    subprocess.run([sys.executable, "-c", WITHOUT_MLIR, *arguments], check=True, capture_output=True, timeout=300)
    eager, cpu = json.loads(found.read_text())["results"]
    assert eager["target"] == "eager" and cpu["status"] == "ok" and cpu["route"] == "tosa"
    assert 0 < cpu["rel_l2"] < cpu["tolerance"]


def test_an_artifact_that_is_not_there_is_named(tmp_path: Path) -> None:
    from mlirstack.cli.compare import _Comparison, _Settings
    from mlirstack.worker import Job, Worker

    with Worker() as worker:
        run = _Comparison(worker, tmp_path, _Settings(("cpu",), "auto", 1, False, tmp_path / "none", False, {}))
        report = run.report(Job("zoo:tiny_mlp_small", None), None, lambda doing: None)
    assert report["cpu"].status == "error" and "there is no artifact" in (report["cpu"].error or "")


def test_inputs_are_moved_to_the_device_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def note(inputs: tuple[Any, ...], device: str) -> tuple[Any, ...]:
        seen.append(device)
        return tuple(inputs)

    def compile_function(module: nn.Module, inputs: tuple[Any, ...], **options: Any) -> Candidate:
        return Candidate(module, device="cuda:1")

    monkeypatch.setattr(compare_module, "moved", note)
    report = compare_module.compare(nn.ReLU(), (torch.randn(4),), ["cpu"], compile_function=compile_function)
    assert report["cpu"].status == "ok" and seen == ["cuda:1"]
    monkeypatch.undo()
    nested = accuracy.moved(([torch.ones(1)], {"a": 1}), "meta")
    assert nested[0][0].is_meta and nested[1] == {"a": 1}


def test_what_is_expected_of_a_target_holds_for_its_architectures() -> None:
    table = {("net", "cuda"): ExpectedFailure("net", "cuda", "mismatch", "known")}
    for target in ("cuda", "cuda:sm_90a"):
        assert judge_result("net", TargetResult(target, "mismatch"), table).outcome == "expected failure"


def test_building_needs_a_place() -> None:
    from mlirstack.cli.compare import compare

    with pytest.raises(SystemExit) as ended:
        compare("zoo:tiny_mlp_small", targets="cpu", build_only=True)
    assert ended.value.code == UsageError.exit_status
