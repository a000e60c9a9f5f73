"""IREE's phases as stages: dumped, resumed, overridden, byte-identical to one run, and failing as the compiler says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import mlirstack as ms
from mlirstack.bindings import ir, new_context
from mlirstack.errors import PipelineError, StageError, UsageError
from mlirstack.ir.ops import op_counts
from mlirstack.ir.parameters import mark_parameters, marked_parameters
from mlirstack.ir.text import clone_module, module_bytecode, module_text, parse_module
from mlirstack.passes.iree.arguments import booleans_to_bytes, name_written_arguments, parameters_to_globals
from mlirstack.passes.iree.compiler import PHASES, compiler_program, parse_messages
from mlirstack.passes.iree.phase import IreePhase
from mlirstack.pipeline.parse import parse_pipeline
from mlirstack.pipeline.reproducer import Reproducer
from mlirstack.pipeline.runner import Runner
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.tool import run_tool
from mlirstack.pipelines.iree import iree_cpu_pipeline
from mlirstack.steps import register_steps


class TinyMlp(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc1(x)
        return self.fc2(torch.relu(y) * torch.sigmoid(y)).sum()


MATMUL = """
func.func @main(%w: tensor<16x8xf32>, %x: tensor<4x16xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = linalg.matmul ins(%x, %w : tensor<4x16xf32>, tensor<16x8xf32>) outs(%init : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
"""


def phases_from(first: str) -> Pipeline:
    return iree_cpu_pipeline("tosa", "linalg").slice(first=first)


@pytest.mark.target
def test_every_phase_is_dumped_as_a_stage(tmp_path: Path) -> None:
    lowering = ms.lower(
        TinyMlp().eval(), (torch.randn(8, 64),), target="iree-cpu", dump=tmp_path, settings={"kernels": "iree"}
    )

    files = sorted(file.name for file in tmp_path.iterdir() if file.is_file())
    names = [re.sub(r"^\d\d-|\.\w+$", "", file) for file in files if file not in ("trace.json", "sources.json")]
    assert names == ["fx", "torch", "tosa", "linalg", "prepared", *(f"iree-{phase}" for phase in PHASES), "vmfb"]
    assert names == [stage.name for stage in lowering.stages]
    flow = (tmp_path / "10-iree-flow.mlir").read_text()
    assert "flow.dispatch" in flow
    assert '#flow.parameter.named<"model"::"fc1.weight">' in flow
    assert lowering["iree-flow"].text in flow
    assert "vm.func" in lowering["iree-vm"].text
    assert isinstance(lowering.payload, bytes)
    assert (tmp_path / "17-vmfb.vmfb").read_bytes() == lowering.payload


@pytest.mark.target
def test_phase_by_phase_gives_the_bytes_of_one_run(tmp_path: Path) -> None:
    module = parse_module(MATMUL, new_context())
    source = tmp_path / "input.mlirbc"
    source.write_bytes(module_bytecode(clone_module(module)))  # what the first phase hands over
    flags = IreePhase("input").flags()
    subprocess.run([compiler_program(), source, *flags, "-o", tmp_path / "once.vmfb"], check=True, timeout=300)

    stepwise = Runner().run(iree_cpu_pipeline("tosa", "linalg"), module)

    assert stepwise == (tmp_path / "once.vmfb").read_bytes()


@pytest.mark.target
def test_a_phase_resumes_from_bytecode_and_from_text() -> None:
    module = parse_module(MATMUL, new_context())
    table = iree_cpu_pipeline("tosa", "linalg")
    flow = Runner().run(table.slice(last="iree-flow"), module)
    whole = Runner().run(phases_from("iree-flow"), flow)

    assert Runner().run(phases_from("iree-flow"), flow.bytecode) == whole
    assert Runner().run(phases_from("iree-flow"), flow.text)[:4] == whole[:4]  # locations differ, the module does not


@pytest.mark.target
def test_resume_and_override_from_a_dump(tmp_path: Path) -> None:
    from mlirstack.frontend.export import export
    from mlirstack.lowering import LowerOptions, lower_program

    program = export(TinyMlp().eval(), (torch.randn(8, 64),), name="tiny")
    options = LowerOptions("iree-cpu", route="tosa", dump=tmp_path)
    whole = lower_program(program, options).payload

    resumed = lower_program(program, LowerOptions("iree-cpu", route="tosa", dump=tmp_path, start="iree-stream"))
    assert resumed.payload == whole

    edited = tmp_path / "edited.mlir"
    edited.write_text("this is not MLIR")
    override = LowerOptions("iree-cpu", route="tosa", overrides={"iree-hal": edited}, start="iree-stream", dump=tmp_path)
    with pytest.raises(StageError) as raised:
        lower_program(program, override)
    assert raised.value.stage == "iree-vm"


CONSTANT = """
func.func @main(%x: tensor<6x40xi32>) -> tensor<6x40xi32> {{
  %c = arith.constant dense<[{values}]> : tensor<40xi32>
  %empty = tensor.empty() : tensor<6x40xi32>
  %y = linalg.generic {{
    indexing_maps = [affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
    iterator_types = ["parallel", "parallel"]
  }} ins(%c, %x : tensor<40xi32>, tensor<6x40xi32>) outs(%empty : tensor<6x40xi32>) {{
  ^bb0(%a: i32, %b: i32, %out: i32):
    %sum = arith.addi %a, %b : i32
    linalg.yield %sum : i32
  }} -> tensor<6x40xi32>
  return %y : tensor<6x40xi32>
}}
""".format(values=", ".join(str(i * i) for i in range(40)))


@pytest.mark.target
def test_large_constants_are_elided_for_people_and_kept_for_the_compiler() -> None:
    table = iree_cpu_pipeline("tosa", "linalg")
    payload = parse_module(CONSTANT, new_context())
    for stage in table.slice(first="prepared", last="iree-vm").stages:
        payload = Runner().run(Pipeline("one", (stage,)), payload)
        assert "1521" not in payload.text
    assert "dense_resource<__elided__>" in payload.text

    vmfb = Runner().run(table.slice(first="iree-vm"), payload)
    assert b"".join((i * i).to_bytes(4, "little") for i in range(40)) in vmfb


def test_bytes_that_are_no_module_are_refused() -> None:
    with pytest.raises(StageError, match="not a module that IREE's compiler left"):
        Runner().run(phases_from("iree-flow"), b"\x7fELF")


def test_parameters_become_globals_and_are_named_in_the_reflection() -> None:
    module = parse_module(MATMUL, new_context())
    main = next(iter(module.body.operations))
    mark_parameters(main, {0: 'layer."odd" name'})
    assert marked_parameters(main) == {0: 'layer."odd" name'}

    parameters_to_globals(module)

    assert module.operation.verify()
    assert op_counts(module)["util.global.load"] == 1
    text = module_text(module)
    assert "func.func @main(%arg0: tensor<4x16xf32>) -> tensor<4x8xf32>" in text
    reflection = ir.DictAttr(main.attributes["iree.reflection"])
    assert json.loads(ir.StringAttr(reflection["mlirstack.parameters"]).value) == ['layer."odd" name']


def test_arguments_that_may_be_computed_into_are_named() -> None:
    text = """
    func.func @main(%a: tensor<8xf32>, %b: tensor<2x4xf32>, %c: tensor<4xf32>, %d: tensor<8xi1>) -> tensor<8xf32> {
      %flat = tensor.collapse_shape %b [[0, 1]] : tensor<2x4xf32> into tensor<8xf32>
      %x = tensor.insert_slice %c into %flat[0] [4] [1] : tensor<4xf32> into tensor<8xf32>
      %empty = tensor.empty() : tensor<8xf32>
      %y = linalg.add ins(%a, %x : tensor<8xf32>, tensor<8xf32>) outs(%empty : tensor<8xf32>) -> tensor<8xf32>
      %z = linalg.select ins(%d, %x, %y : tensor<8xi1>, tensor<8xf32>, tensor<8xf32>) outs(%empty : tensor<8xf32>)
          -> tensor<8xf32>
      return %z : tensor<8xf32>
    }"""
    module = parse_module(text, new_context())
    booleans_to_bytes(module)
    name_written_arguments(module)
    main = next(iter(module.body.operations))
    assert ir.StringAttr(ir.DictAttr(main.attributes["iree.reflection"])["mlirstack.written"]).value == "[1]"


def test_convolutions_have_output_channels_last() -> None:
    from mlirstack.frontend.export import export

    program = export(nn.Conv2d(4, 8, 3), (torch.randn(1, 4, 8, 8),))
    table = iree_cpu_pipeline("tosa", "fx").slice(last="prepared")
    assert "linalg.conv_2d_nhwc_hwcf" in op_counts(Runner().run(table, program.payload))


def test_unmarked_programs_keep_their_arguments() -> None:
    module = parse_module(MATMUL, new_context())
    before = module_text(module)
    parameters_to_globals(module)
    assert module_text(module) == before


ERF = """
func.func @main(%a: tensor<4xf64>) -> tensor<4xf64> {
  %r = math.erf %a : tensor<4xf64> loc(callsite("/v/site-packages/torch/nn.py":5:2 at "model.py":7:3))
  return %r : tensor<4xf64>
}
"""


@pytest.mark.target
def test_compile_error_names_stage_line_and_command_and_repeats(tmp_path: Path) -> None:
    with pytest.raises(StageError) as raised:
        Runner([Reproducer(tmp_path)]).run(iree_cpu_pipeline("tosa", "linalg"), parse_module(ERF, new_context()))

    error = raised.value
    assert error.stage == "iree-executable-targets"
    assert error.pass_name == "iree-phase"
    assert error.op == "math.erf"
    assert str(error.location) == "model.py:7"
    assert "failed to legalize operation 'math.erf'" in error.message
    assert error.hint is not None
    assert "iree-compile input.mlirbc" in error.hint
    assert "--compile-from=executable-configurations" in error.hint
    assert len(str(error)) < 3000
    assert error.reproducer is not None
    path = f"{compiler_program().parent}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", str(error.reproducer / "command.sh")]
    replay = subprocess.run(command, capture_output=True, text=True, env={"PATH": path}, timeout=300, check=False)
    assert replay.returncode != 0
    assert error.message.removeprefix("iree-compile: ") in replay.stderr


@pytest.mark.target
def test_compiler_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    stage = Stage("iree-input", "iree", (IreePhase("input", timeout=0),))

    with pytest.raises(StageError, match="took longer than 0 s and was ended"):
        Runner().run(Pipeline("slow", (stage,)), parse_module(MATMUL, new_context()))

    assert list(tmp_path.iterdir()) == []


def test_tools_are_ended_with_their_children(tmp_path: Path) -> None:
    started = time.monotonic()
    run = run_tool(["sh", "-c", "sleep 60 & echo $! > child; wait"], directory=tmp_path, timeout=0.5)
    assert run.timed_out
    assert time.monotonic() - started < 20
    status = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/status")
    deadline = time.monotonic() + 5
    while status.exists() and "zombie" not in status.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not status.exists() or "zombie" in status.read_text()


def test_a_tool_that_dies_says_how(tmp_path: Path) -> None:
    assert run_tool(["sh", "-c", "kill -SEGV $$"], directory=tmp_path, timeout=20).failure == "died with signal SIGSEGV"
    failed = run_tool(["sh", "-c", "echo why >&2; exit 3"], directory=tmp_path, timeout=20)
    assert (failed.failure, failed.stderr) == ("ended with exit status 3", "why\n")


def test_messages_are_attributed_to_the_users_line() -> None:
    stderr = (
        "/v/site-packages/torch/nn.py:5:2: error: first\n    source\n    ^\n"
        "model.py:7:3: note: called from\n"
        "warning: ignored\n"
        "<unknown>:0: error: second\n"
    )
    first, second = parse_messages(stderr)
    assert (first.message, str(first.source), [n.message for n in first.notes]) == ("first", "model.py:7", ["called from"])
    assert (second.message, second.source) == ("second", None)


def test_phases_are_spelled_like_passes() -> None:
    register_steps()
    (step,) = parse_pipeline("iree-phase{phase=flow arch=x86-64-v3 data-tiling=false}")
    assert step == IreePhase("flow", arch="x86-64-v3", data_tiling=False)
    assert step.text() == "iree-phase{phase=flow arch=x86-64-v3 data-tiling=false}"
    with pytest.raises(PipelineError, match="unknown IREE phase 'flwo'; nearest: flow"):
        IreePhase("flwo")


def test_programs_below_linalg_are_refused() -> None:
    with pytest.raises(UsageError, match="level 'llvm'"):
        iree_cpu_pipeline("tosa", "llvm")
