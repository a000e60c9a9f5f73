"""Wrong rewrites seeded at many stages, and whether bisect finds each: the stage, the pass, the op."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bisect_models
import pytest
import torch

import mlirstack as ms
from mlirstack.bindings import new_context
from mlirstack.bundle.store import BundleInfo, write_bundle
from mlirstack.compare.accuracy import reference
from mlirstack.compare.bisect import subject as subject_module
from mlirstack.compare.bisect.bisect import Request, bisect_dump, plain_stages
from mlirstack.compare.bisect.execute_bundle import judged
from mlirstack.compare.bisect.executor import Executor, Table
from mlirstack.compare.bisect.ops import relative_distance
from mlirstack.compare.bisect.passes import NOTHING_WITHOUT, RIGHT_WITHOUT, WRONG_WITHOUT
from mlirstack.compare.bisect.results import Bisection, Verdict
from mlirstack.compare.bisect.stored import bisect_stored, store
from mlirstack.compare.bisect.subject import Subject
from mlirstack.errors import SignatureError, TargetUnavailableError
from mlirstack.frontend.program import Program
from mlirstack.ir.text import module_text, parse_module
from mlirstack.lowering import Lowering, LowerOptions, build_program, lower_program, program_of
from mlirstack.pipeline.reproducer import Record
from mlirstack.pipeline.runner import Runner
from mlirstack.pipelines.reference import reference_pipeline
from mlirstack.reduce.replay import replay
from mlirstack.targets.base import Executable
from mlirstack.targets.registry import create_target
from mlirstack.zoo.recipe import Operation

pytestmark = pytest.mark.portable


class Case(NamedTuple):
    """The model lowered once, and the process that executes stages of it."""

    program: Program
    lowering: Lowering
    subject: Subject
    executor: Executor


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    module, inputs = bisect_models.model()
    program = program_of(module, inputs, name="net")
    folder = tmp_path_factory.mktemp("bisect")
    lowering = lower_program(program, LowerOptions("cpu", dump=folder / "dump"))
    subject = Subject(program.signature, program.parameters, inputs, reference(module, inputs))
    with Executor(subject, folder, "cpu") as executor:
        yield Case(program, lowering, subject, executor)


def bisected(case: Case, dump: Path, overrides: dict[str, Path], *, ops: bool = False, to: str | None = None) -> Bisection:
    lower_program(case.program, LowerOptions("cpu", dump=dump, overrides=overrides, to=to))
    request = Request(case.program, "cpu", dump, overridden=frozenset(overrides), ops=ops, stop=True)
    return bisect_dump(request, case.subject, case.executor)


def edited(case: Case, folder: Path, stage: str, old: str, new: str) -> Path:
    """The stage as it is, with ``new`` in the place of ``old``."""
    result = case.lowering[stage]
    text = module_text(result.module(), elide=False) if result.stage.level.is_module else result.text
    assert old in text, f"stage '{stage}' has no '{old}'"
    file = folder / f"{stage}.{result.stage.level.extension}"
    file.write_text(text.replace(old, new))
    return file


def test_every_stage_of_a_right_lowering_is_executed_and_right(case: Case) -> None:
    request = Request(case.program, "cpu", case.lowering.dump.directory)  # type: ignore[union-attr]
    found = bisect_dump(request, case.subject, case.executor)
    assert found.first_wrong_stage is None
    assert found.exit_status == 0
    names = [stage.name for stage in found.stages]
    assert names == case.lowering.pipeline.names()
    assert [stage.status for stage in found.stages[:-1]] == ["ok"] * (len(names) - 1)
    assert all(stage.rel_l2 is not None and stage.rel_l2 < 1e-6 for stage in found.stages[:-1])
    assert found["asm"].status == "not executed"  # a listing; without a bundle nothing of it runs


SEEDS = [
    ("torch", "torch.aten.relu", "torch.aten.neg"),
    ("tosa", "tosa.add", "tosa.sub"),
    ("linalg", "arith.addf", "arith.subf"),
    ("fused", "arith.maximumf", "arith.minimumf"),
    ("vectorized", "arith.maximumf", "arith.minimumf"),
    ("loops", "arith.maximumf", "arith.minimumf"),
    ("llvm", "llvm.intr.maximum", "llvm.intr.minimum"),
    ("llvmir", "@llvm.maximum", "@llvm.minimum"),
]


@pytest.mark.parametrize(("stage", "old", "new"), SEEDS, ids=[seed[0] for seed in SEEDS])
def test_a_wrong_rewrite_is_found_at_its_stage(case: Case, tmp_path: Path, stage: str, old: str, new: str) -> None:
    file = edited(case, tmp_path, stage, old, new)
    found = bisected(case, tmp_path / "dump", {stage: file}, to=None if stage == "llvmir" else "llvm")
    assert found.first_wrong_stage == stage
    assert found.suspects == (stage,)
    assert found.exit_status == 1
    assert found[stage].status == "wrong"
    assert (found[stage].rel_l2 or 0) > 1e-3
    before = found.stages[-2]
    assert before.status == "ok"


def test_the_op_is_found_and_confirmed(case: Case, tmp_path: Path) -> None:
    file = edited(case, tmp_path, "fused", "arith.maximumf", "arith.minimumf")
    found = bisected(case, tmp_path / "dump", {"fused": file}, ops=True, to="fused")
    assert found.op is not None, found.op_note
    assert found.op.op == "linalg.generic"
    assert "arith.minimumf" in found.op.text
    assert found.op.confirmed
    assert found.op.rel_l2 > 0.1


def test_the_op_at_tosa_has_its_source_line(case: Case, tmp_path: Path) -> None:
    text = module_text(case.lowering["tosa"].module(), elide=False, locations=True)
    assert "tosa.clamp" in text
    file = tmp_path / "tosa.mlir"
    file.write_text(text.replace("min_val = 0.000000e+00", "min_val = -1.000000e+00"))
    found = bisected(case, tmp_path / "dump", {"tosa": file}, ops=True, to="tosa")
    assert found.first_wrong_stage == "tosa"
    assert found.op is not None, found.op_note
    assert (found.op.op, found.op.confirmed) == ("tosa.clamp", True)
    line = next(i for i, text in enumerate(Path(bisect_models.__file__).read_text().splitlines(), 1) if "relu" in text)
    assert found.op.location is not None
    assert found.op.location.endswith(f"bisect_models.py:{line}")


def test_a_stage_that_crashes_is_told_from_one_that_is_wrong(case: Case, tmp_path: Path) -> None:
    text = case.lowering["llvmir"].text
    head = next(line for line in text.splitlines() if line.startswith("define void @mlirstack_main("))
    file = tmp_path / "main.ll"
    file.write_text(text.replace(head, f"declare void @llvm.trap()\n{head}\n  call void @llvm.trap()"))
    found = bisected(case, tmp_path / "dump", {"llvmir": file}, to="llvmir")
    assert found["llvmir"].status == "crash", found["llvmir"]
    assert found.first_wrong_stage == "llvmir"
    assert "stage crashes when executed" in (found["llvmir"].reason or "")
    again = case.executor.verdict("fused", case.lowering.dump.directory / "replay" / "05-fused.mlirbc", "linalg")  # type: ignore[union-attr]
    assert again.status == "ok"  # the next question finds a new process


def test_the_pass_is_found_and_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bisect_models.install_wrong_target(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("MLIRSTACK_PASSES", str(tmp_path / "wrong_pass.py"))
    module, inputs = bisect_models.model()
    found = ms.bisect(module, inputs, target="wrong-cpu", reproducers=tmp_path / "kept")
    for name in ("wrong_target", "wrong_pass"):
        sys.modules.pop(name)
    assert found.first_wrong_stage == "bufferized"
    assert found.guilty == "wrong-maximum"
    assert [verdict.status for verdict in found.passes] == ["ok", "ok", "wrong"]
    assert found["asm"].status == "wrong"  # the artifact itself
    assert found.reproducer is not None
    record = Record.read(found.reproducer)
    assert (record.kind, record.pipeline) == ("wrong", "builtin.module(wrong-maximum)")
    again = replay(found.reproducer)
    assert again.status == "same failure", again


def test_a_pass_among_those_that_only_their_own_target_executes_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("iree.compiler")
    bisect_models.install_wrong_target(tmp_path, "iree.target", "IreeCpuTarget", "regions")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("MLIRSTACK_PASSES", str(tmp_path / "wrong_pass.py"))
    module, inputs = bisect_models.Rows(), (torch.randn(4, 64),)
    program = program_of(module, inputs, name="rows")
    lower_program(program, LowerOptions("wrong-cpu", dump=tmp_path / "dump", to="regions"))
    for name in ("wrong_target", "wrong_pass"):
        sys.modules.pop(name)
    subject = Subject(program.signature, program.parameters, inputs, reference(module, inputs))
    with Executor(subject, tmp_path, "wrong-cpu") as executor:
        found = bisect_dump(Request(program, "wrong-cpu", tmp_path / "dump", stop=True), subject, executor)
    assert found.first_wrong_stage is not None
    assert (found.guilty, found.passes[-1].status) == ("wrong-maximum", "wrong")
    assert found.pass_note == f"of stage 'regions'; {RIGHT_WITHOUT}"
    assert all(verdict.reason in (WRONG_WITHOUT, NOTHING_WITHOUT) for verdict in found.passes[:-1])


def test_a_wrong_answer_in_compare_leaves_a_reproducer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bisect_models.install_wrong_target(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(bisect_models.__file__).parent)]))
    monkeypatch.setenv("MLIRSTACK_PASSES", str(tmp_path / "wrong_pass.py"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", "mlirstack", "compare", "bisect_models:model", "--targets", "wrong-cpu"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 1, run.stderr
    told = run.stderr.splitlines()
    assert "pass: wrong-maximum" in told
    assert any(line.startswith("first wrong stage: bufferized") for line in told)
    directory = next(line.removeprefix("reproducer: ") for line in told if line.startswith("reproducer: "))
    again = replay(Path(directory))
    assert again.status == "same failure", again


def test_levels_of_a_gpu_need_a_device_and_are_not_wrong(case: Case, tmp_path: Path) -> None:
    if create_target("cuda:sm_90a").available() is None:
        pytest.skip("there is a device")
    lower_program(case.program, LowerOptions("cuda:sm_90a", dump=tmp_path, to="nvvm"))
    found = bisect_dump(Request(case.program, "cuda:sm_90a", tmp_path), case.subject, case.executor)
    assert found.exit_status == 0
    statuses = {stage.name: stage.status for stage in found.stages}
    executed = ["fx", "torch", "tosa", "linalg", "prepared", "fused", "flattened", "dispatches", "bufferized"]
    assert statuses == dict.fromkeys(executed, "ok") | dict.fromkeys(["mapped", "gpu", "nvvm"], "needs a device")


WITHOUT_MLIR = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch_mlir", "iree"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
"""


def test_what_was_built_is_executed_on_a_machine_without_mlir(case: Case, tmp_path: Path) -> None:
    """Each process of it: the command, and the one that it starts to execute bundles."""
    edit = edited(case, tmp_path, "llvmir", "@llvm.maximum", "@llvm.minimum")
    for name, overrides in (("plan", {}), ("wrong", {"llvmir": edit})):
        _, artifact, _ = build_program(case.program, LowerOptions("cpu", overrides=overrides))
        write_bundle(tmp_path / name, artifact, case.program.signature, {}, BundleInfo(name, "tosa", "", {}))
    stages = tuple(Verdict(name, "built", level="plan") for name in ("plan", "wrong"))
    found = Bisection("net", "cpu", "tosa", "eager in float64", (Verdict("fx", "ok", level="fx"), *stages))
    store(tmp_path, found, (), None, case.subject, case.executor, Table("tosa", "fx"), lambda doing: None)

    (tmp_path / "sitecustomize.py").write_text(WITHOUT_MLIR)
    command = [sys.executable, "-m", "mlirstack", "bisect", "net", "--target", "cpu", "--artifacts", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    run = subprocess.run(
        [*command, "--json", "-"], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 1, run.stderr
    executed = json.loads(run.stdout)
    assert executed["first_wrong_stage"] == "wrong"
    assert [(s["name"], s["status"], s["how"]) for s in executed["stages"]] == [
        ("fx", "ok", None),
        ("plan", "ok", "artifact"),
        ("wrong", "wrong", "artifact"),
    ]


def test_without_a_device_there_either_nothing_is_executed(case: Case, tmp_path: Path) -> None:
    if (reason := create_target("cuda").available()) is None:
        pytest.skip("there is a device")
    found = Bisection("net", "cuda", "tosa", "eager in float64", (Verdict("plan", "built", level="plan"),))
    store(tmp_path, found, (), None, case.subject, case.executor, Table("tosa", "fx"), lambda doing: None)
    with pytest.raises(TargetUnavailableError, match=re.escape(reason)):
        bisect_stored(tmp_path, "cuda")


FILE = """
func.func @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = tosa.add %a, %b : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
"""


def test_a_module_from_a_file_is_compared_with_itself(tmp_path: Path) -> None:
    from mlirstack.frontend.mlir_source import load_mlir

    (tmp_path / "x.mlir").write_text(FILE)
    wrong = tmp_path / "wrong.mlir"
    wrong.write_text(
        FILE.replace("tosa.add %a, %b", "arith.mulf %a, %b").replace(": (tensor<2x3xf32>, tensor<2x3xf32>) ->", ":")
    )
    found = ms.bisect(load_mlir(tmp_path / "x.mlir"), overrides={"linalg": wrong}, target="cpu")
    assert found.reference.startswith("the module's own answer")
    assert found.first_wrong_stage == "linalg"


@pytest.mark.parametrize("model", ["special_values", "tiny_mlp_small", "sdpa_gqa", "layer_norm_2d", "conv_transpose2d"])
def test_compare_per_stage_is_a_check_of_every_stage(model: str, tmp_path: Path) -> None:
    """One model of a family; the whole zoo by ``mlirstack compare zoo:all --targets cpu --per-stage``."""
    from mlirstack.cli.stages import compare_stages
    from mlirstack.worker import Job

    result = tmp_path / "stages.json"
    assert compare_stages(Job(f"zoo:{model}", None), ["cpu"], LowerOptions(), None, result) == 0
    (found,) = json.loads(result.read_text())
    assert found["first_wrong_stage"] is None
    assert {stage["status"] for stage in found["stages"]} == {"ok"}
    assert [stage["name"] for stage in found["stages"]][-1] == "asm"


def test_the_plain_path_knows_absolute_values_of_integers() -> None:
    text = FILE.replace("tosa.add %a, %b : (tensor<2x3xf32>, tensor<2x3xf32>) ->", "math.absi %a :").replace("f32", "i64")
    module = parse_module(text, new_context())
    assert Runner().run(reference_pipeline(module), module).data.startswith(b"\x7fELF")


HALFWAY = """
func.func @main(%a: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %0 = torch_c.to_builtin_tensor %a : !torch.vtensor<[2,3],f32> -> tensor<2x3xf32>
  %1 = tosa.abs %0 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %2 = torch_c.from_builtin_tensor %1 : tensor<2x3xf32> -> !torch.vtensor<[2,3],f32>
  return %2 : !torch.vtensor<[2,3],f32>
}
"""


def test_the_plain_path_takes_a_module_from_the_middle_of_a_stage() -> None:
    module = parse_module(HALFWAY, new_context())
    assert Runner().run(reference_pipeline(module), module).data.startswith(b"\x7fELF")


def test_a_value_that_is_not_a_number_is_no_infinity() -> None:
    nan, inf = torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.inf])
    assert relative_distance(nan, nan) == 0.0 and relative_distance(inf, inf) == 0.0
    assert relative_distance(nan, inf) == relative_distance(inf, -inf) == float("inf")


def test_kernels_without_the_program_around_them_are_not_executed_by_the_plain_path() -> None:
    whole = plain_stages(create_target("cpu").pipeline("tosa", "fx"))
    assert {"torch", "kernels", "llvm", "llvmir", "object"} <= whole and not whole & {"fx", "asm"}
    apart = plain_stages(create_target("iree-cpu").pipeline("tosa", "fx"))
    assert {"linalg", "prepared", "dispatches"} <= apart and not apart & {"regions", "kernels", "llvm", "iree-input"}


class Elsewhere(Executable):
    """An executable of another device."""

    device = "cuda:1"

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return [torch.relu(inputs[0])]


def test_a_subject_is_called_on_the_device_of_what_executes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs, places = torch.nn.ReLU(), (torch.randn(2, 3),), []
    monkeypatch.setattr(subject_module, "moved", lambda tree, device: places.append(device) or tree)
    program = program_of(module, inputs)
    subject = Subject(program.signature, program.parameters, inputs, reference(module, inputs))
    with pytest.raises(SignatureError, match="expected cuda:1"):  # nothing is moved here: the function itself refuses
        subject.answer(Elsewhere())
    assert places == ["cuda:1", "cuda:1"]  # keyword inputs and positional ones


class Rounded(Executable):
    """A product of factors with 10 bits, as tensor cores see f32 where TF32 is allowed."""

    def __init__(self, *, tf32: bool) -> None:
        self.tf32 = tf32

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        x = inputs[0].view(torch.int32).bitwise_and(~0x1FFF).view(torch.float32)
        return [x @ x.T]


def test_what_multiplies_as_tf32_is_judged_as_such() -> None:
    inputs = (torch.randn(32, 64),)
    module = Operation(lambda x: x @ x.T)
    program = program_of(module, inputs)
    subject = Subject(program.signature, program.parameters, inputs, reference(module, inputs))
    assert judged(Rounded(tf32=True), subject)["ok"]
    assert not judged(Rounded(tf32=False), subject)["ok"]
