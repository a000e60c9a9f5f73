"""Directories that failures leave: replayed, repaired, and written for an upstream developer."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from mlirstack.bindings import new_context
from mlirstack.errors import StageError, UsageError
from mlirstack.ir.text import module_bytecode, module_text, parse_module, read_module
from mlirstack.pipeline.observers import LevelCheck, Verification
from mlirstack.pipeline.reproducer import Record, Reproducer, record_crash
from mlirstack.pipeline.runner import Runner, StageRun
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass
from mlirstack.reduce.replay import replay, upstream_text

pytestmark = pytest.mark.portable

MODULE = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %a, %a : tensor<4xf32>
  %1 = arith.addf %a, %a : tensor<4xf32>
  %2 = tosa.erf %1 : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
"""
BUFFERIZED = Stage("bufferized", "buffer", (Pass("cse"), Pass("canonicalize"), Pass("one-shot-bufferize")))


def failing(folder: Path, stage: Stage) -> tuple[StageError, Path]:
    """Run a stage that fails over the module; the error and its reproducer."""
    observers = (Verification(), LevelCheck(), Reproducer(folder))
    with pytest.raises(StageError) as caught:
        Runner(observers).run(Pipeline("test", (stage,)), parse_module(MODULE, new_context()))
    assert caught.value.reproducer is not None
    return caught.value, caught.value.reproducer


def test_the_reproducer_holds_the_module_before_the_failing_pass(tmp_path: Path) -> None:
    error, directory = failing(tmp_path, BUFFERIZED)
    record = Record.read(directory)
    assert record.pass_name == "one-shot-bufferize"
    assert record.pipeline == "builtin.module(one-shot-bufferize)"
    assert record.message == error.message
    assert record.versions["torch-mlir"]
    before = module_text(read_module(directory / record.input, new_context()))
    assert before.count("arith.addf") == 1  # cse has run
    assert error.before is None  # it does not travel with the error


def test_a_failure_is_replayed_and_what_no_longer_fails_is_fixed(tmp_path: Path) -> None:
    error, directory = failing(tmp_path, BUFFERIZED)
    again = replay(directory)
    assert again.status == "same failure"
    assert error.message in again.found
    file = directory / Record.read(directory).input
    file.write_text("func.func private @f(tensor<2xf32>)\nfunc.func @g() { return }\n")
    assert replay(directory).status == "fixed"


def test_a_condition_of_a_level_is_replayed_too(tmp_path: Path) -> None:
    error, directory = failing(tmp_path, Stage("linalg", "linalg", (Pass("cse"),)))
    record = Record.read(directory)
    assert (record.check, record.pass_name) == (True, None)
    assert "must not be left" in error.message
    assert replay(directory).status == "same failure"
    with pytest.raises(UsageError, match="no pass of mlir-opt fails"):
        upstream_text(directory)


def test_another_message_is_another_failure(tmp_path: Path) -> None:
    _, directory = failing(tmp_path, BUFFERIZED)
    record = dataclasses.replace(Record.read(directory), message="failed to legalize operation 'tosa.erf'")
    record.write(directory, "true")
    assert replay(directory).status == "another failure"


def test_a_file_for_an_upstream_developer_fails_in_the_same_way(tmp_path: Path) -> None:
    error, directory = failing(tmp_path, BUFFERIZED)
    file = tmp_path / "case.mlir"
    file.write_text(upstream_text(directory))
    assert "// RUN: mlir-opt %s --pass-pipeline=" in file.read_text()
    tool = Path(sys.executable).with_name("mlirstack-opt")
    run = subprocess.run([tool, file, "--run-reproducer"], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert error.message in run.stderr


def test_passes_of_torch_mlir_are_not_upstream(tmp_path: Path) -> None:
    _, directory = failing(tmp_path, BUFFERIZED)
    record = dataclasses.replace(Record.read(directory), pipeline="builtin.module(func.func(tm-tensor-bufferize))")
    record.write(directory, "true")
    with pytest.raises(UsageError, match="not all passes are upstream's"):
        upstream_text(directory)


def test_a_crash_is_completed_and_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded = tmp_path / "seeded.py"
    seeded.write_text(
        "import os, signal\nfrom dataclasses import dataclass\nfrom mlirstack.pipeline.step import PythonPass\n\n\n"
        "@dataclass(frozen=True)\nclass Crash(PythonPass):\n    name = 'seeded-crash'\n\n"
        "    def apply(self, module):\n        os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    monkeypatch.setenv("MLIRSTACK_PASSES", str(seeded))
    module = parse_module(MODULE, new_context())
    observer = Reproducer(tmp_path / "kept", early=True)
    stage = Stage("tosa", "tosa", (Pass("cse"),))
    observer.before(StageRun(3, stage, module_bytecode(module)))
    directory = tmp_path / "kept" / "reproducer-03-tosa"
    record = dataclasses.replace(Record.read(directory), pipeline="builtin.module(cse,seeded-crash)")
    record.write(directory, "true")
    record_crash(directory, "SIGSEGV", "the compiler process died (signal SIGSEGV)")
    again = replay(directory)
    assert (again.status, again.found) == ("same failure", "pass 'seeded-crash': crash with SIGSEGV")
    Record.write(dataclasses.replace(Record.read(directory), pipeline="builtin.module(cse)"), directory, "true")
    assert replay(directory).status == "fixed"


def test_an_exported_graph_is_replayed_by_the_command_that_made_it(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return torch.linalg.svd(x)[1]\n\n"
        "    def example_inputs(self):\n        return (torch.randn(4, 4),)\n"
    )
    program = Path(sys.executable).with_name("mlirstack")
    command = [program, "lower", f"{model}:Net", "--target", "cpu", "--out", tmp_path / "dump"]
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 3
    directory = next((tmp_path / "dump").glob("reproducer-*"))
    again = subprocess.run([program, "reproduce", directory], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.startswith("same failure")


def test_a_directory_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no reproducer"):
        replay(tmp_path)
