"""Where operations come from: locations, how they survive, and what the lines of every level say."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_models import FILE, dump_for, line_of

from mlirstack.bindings import ir, new_context
from mlirstack.errors import MissingDependencyError, SourceLine
from mlirstack.ir.locations import first_origin, origins
from mlirstack.ir.ops import walk
from mlirstack.ir.text import read_module
from mlirstack.passes.restore_locations import RestoreLocations
from mlirstack.report import module_lines
from mlirstack.report.dump_files import DumpFiles
from mlirstack.report.page import node_names
from mlirstack.report.provenance import Provenance, provenance_of

pytestmark = pytest.mark.portable


def at(file: str, line: int, column: int = 0) -> SourceLine:
    return SourceLine(file, line, column)


@pytest.mark.parametrize(
    ("text", "stacks"),
    [
        ("loc(unknown)", []),
        ('loc("a.py":3:7)', [[at("a.py", 3, 7)]]),
        ('loc("name"("a.py":3:7))', [[at("a.py", 3, 7)]]),
        ('loc("a.py":3:7 to 4:9)', [[at("a.py", 3, 7)]]),
        ('loc(callsite("a":1:2 at callsite("b":3:4 at "c":5:6)))', [[at("a", 1, 2), at("b", 3, 4), at("c", 5, 6)]]),
        ('loc(fused<"x>y">["a":1:0, unknown, callsite("b":2:0 at "c":3:0)])', [[at("a", 1)], [at("b", 2), at("c", 3)]]),
        ('loc(fused["-":1:2, "a.py":1:0, "a.py":1:0])', [[at("a.py", 1)]]),
    ],
)  # fmt: skip
def test_a_location_is_read_as_call_stacks(text: str, stacks: list[list[SourceLine]]) -> None:
    assert [list(origin.frames) for origin in origins(text)] == stacks
    (op,) = ir.Module.parse(f'"test.effect"() : () -> () {text}', unregistered()).body.operations
    assert first_origin(op.location) == next(iter(origins(text)), None)


def test_frames_inside_torch_are_passed_over() -> None:
    inside = "/x/site-packages/torch/nn/modules/linear.py"
    (origin,) = origins(f'loc(callsite("{inside}":134:9 at "model.py":23:9))')
    assert origin.line == at("model.py", 23, 9)
    (only,) = origins(f'loc("{inside}":134:9)')
    assert only.line == at(inside, 134, 9)


def test_lost_locations_come_from_users_operands_and_the_operation_around() -> None:
    module = ir.Module.parse(
        """
        func.func @f(%a: i32, %c: i1) -> i32 {
          %k = arith.constant 7 : i32 loc(unknown)
          %x = arith.addi %a, %k : i32 loc("m.py":1:0)
          %y = arith.muli %x, %k : i32 loc("m.py":2:0)
          scf.if %c {
            "test.effect"() : () -> () loc(unknown)
          } loc("m.py":3:0)
          return %y : i32 loc(unknown)
        } loc("m.py":9:0)""",
        unregistered(),
    )
    RestoreLocations().apply(module)
    lines = {op.name: [origin.line.line for origin in origins(op.location)] for op in walk(module)}
    assert sorted(lines["arith.constant"]) == [1, 2]  # its users
    assert lines["func.return"] == [2]  # what it returns
    assert lines["test.effect"] == [3]  # what it stands in
    assert (lines["arith.addi"], lines["arith.muli"]) == ([1], [2])  # as they were
    assert module_lines.module_share(module) == (8, 8)


def unregistered() -> ir.Context:
    context = new_context()
    context.allow_unregistered_dialects = True
    return context


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> DumpFiles:
    return dump_for(tmp_path_factory.mktemp("cpu"), "cpu")


@pytest.fixture(scope="module")
def cpu_lines(cpu: DumpFiles) -> Provenance:
    return provenance_of(cpu)


def lines_from(dump: DumpFiles, provenance: Provenance, stage: str, mark: str) -> list[str]:
    """The lines of ``stage`` that come from the marked line of the model."""
    wanted = line_of(mark)
    held = provenance.stages[stage].lines
    return [
        dump[stage].lines[number - 1]
        for number, places in sorted(held.items())
        if any(frame.line == wanted and Path(frame.file).name == FILE for place in places for frame in place.frames)
    ]


def test_every_level_of_cpu_down_to_llvm_ir_knows_its_lines(cpu: DumpFiles, cpu_lines: Provenance) -> None:
    shares = {stage.name: cpu_lines.stages[stage.name].share for stage in cpu.stages if stage.is_text}
    assert min(shares[stage] for stage in shares if stage != "asm") == 1.0, shares
    assert shares["asm"] > 0.6  # LLVM merges instructions of different lines, and gives what it merges none


def test_every_operation_is_found_on_the_line_that_names_it(cpu: DumpFiles) -> None:
    for stage in cpu.stages:
        if stage.level in ("torch", "tosa", "linalg", "llvm"):
            module = read_module(stage.replay, new_context())
            for op, number in zip(walk(module), module_lines.printed_lines(module), strict=True):
                line = stage.body[number - 1]
                assert not number or op.name.partition(".")[2] in line, (stage.name, op.name, line)


def test_a_line_of_the_model_is_found_at_every_level(cpu: DumpFiles, cpu_lines: Provenance) -> None:
    def has(stage: str, mark: str, word: str) -> bool:
        return any(word in line for line in lines_from(cpu, cpu_lines, stage, mark))

    assert has("fx", "gate", "aten.sigmoid") and has("fx", "gate", "aten.mul") and not has("fx", "gate", "aten.mm")
    assert has("torch", "gate", "torch.aten.sigmoid") and not has("torch", "gate", "torch.aten.mm")
    assert has("tosa", "first", "tosa.matmul") and not has("tosa", "gate", "tosa.matmul")
    assert has("linalg", "second", "linalg.batch_matmul")
    assert has("llvm", "gate", "llvm.fdiv") and not has("llvm", "first", "llvm.fdiv")
    assert has("llvmir", "gate", "fdiv") and not has("llvmir", "second", "fdiv")
    assert has("asm", "gate", "divps") and not has("asm", "second", "divps")


def test_kernels_hold_exactly_the_nodes_they_compute(cpu: DumpFiles, cpu_lines: Provenance) -> None:
    held = {name: [node["name"] for node in node_names(places, cpu["fx"])] for name, places in cpu_lines.kernels.items()}
    packing = [["mm"], ["mm_1"]]  # the weight of each, at load
    computing = [["add_1", "sum_1"], ["mm", "add", "relu", "sigmoid", "mul"], ["mm_1"]]
    assert sorted(held.values()) == sorted(packing + computing)


@pytest.mark.target
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])  # their relocations differ
def test_ptx_and_sass_know_the_lines(arch: str, tmp_path: Path) -> None:
    dump = dump_for(tmp_path, f"cuda:{arch}")
    provenance = provenance_of(dump)
    shares = {stage: provenance.stages[stage].share or 0 for stage in ("nvvm", "llvmir", "ptx", "sass")}
    assert (shares["nvvm"], shares["llvmir"]) == (1.0, 1.0)
    # LLVM gives what it merges from two lines none; ptxas fills the end of a kernel up with instructions that do nothing.
    assert shares["ptx"] >= 0.95 and shares["sass"] >= 0.95, shares
    assert any("MUFU.EX2" in line for line in lines_from(dump, provenance, "sass", "gate"))
    assert not any("MUFU.EX2" in line for line in lines_from(dump, provenance, "sass", "second"))
    assert any("ex2" in line for line in lines_from(dump, provenance, "ptx", "gate"))
    assert any("fma" in line for line in lines_from(dump, provenance, "ptx", "first"))
    names = {name: [node["name"] for node in node_names(places, dump["fx"])] for name, places in provenance.kernels.items()}
    assert {"mm", "mm_1", "sum_1"} <= {name for held in names.values() for name in held}


def test_repeated_layers_share_a_kernel_that_knows_them_all(tmp_path: Path) -> None:
    import torch

    from mlirstack.frontend.export import export
    from mlirstack.lowering import LowerOptions, lower_program
    from mlirstack.report.dump_files import read_dump

    layers = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(3))).eval()
    program = export(layers, (torch.randn(16, 32),), {}, dynamic_shapes=None, name="layers")
    lower_program(program, LowerOptions(target="cpu", dump=tmp_path, to="kernels"))
    dump = read_dump(tmp_path)
    kernels = provenance_of(dump).kernels
    held = [[node["call"] for node in node_names(places, dump["fx"])] for places in kernels.values()]
    assert ["aten.mm.default"] * 3 in [[call for call in calls if "mm" in call] for calls in held]


@pytest.mark.target
def test_kernels_of_ours_in_iree_know_the_lines(tmp_path: Path) -> None:
    dump = dump_for(tmp_path, "iree-cpu:x86-64-v3")
    provenance = provenance_of(dump)
    assert any("fdiv" in line for line in lines_from(dump, provenance, "llvmir", "gate"))
    assert not any("fdiv" in line for line in lines_from(dump, provenance, "llvmir", "second"))
    assert lines_from(dump, provenance, "iree-flow", "second")


def test_phases_of_iree_know_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = dump_for(tmp_path, "iree-cpu", settings={"kernels": "iree"})
    provenance = provenance_of(dump)
    assert any("math.exp" in line for line in lines_from(dump, provenance, "iree-flow", "gate"))
    assert not any("math.exp" in line for line in lines_from(dump, provenance, "iree-flow", "second"))
    kernels = {
        name: {node["name"] for node in node_names(places, dump["fx"])} for name, places in provenance.kernels.items()
    }
    assert any({"mm", "relu", "sigmoid"} <= held for held in kernels.values()), kernels
    # Below constants of several lines, which stand above the VM's module, each operation is on the line that names it.
    text, lines = dump["iree-vm"].lines, provenance.stages["iree-vm"].lines
    assert not text[2].startswith("module")
    assert all("vm." in text[number - 1] or text[number - 1].startswith("module") for number in lines)
    shares = [provenance.stages[stage.name].share for stage in dump.stages if stage.level == "iree"]
    assert min(share or 0 for share in shares) > 0.4, shares  # most of the VM's program calls the device

    def missing() -> None:
        raise MissingDependencyError("IREE's compiler is not installed")

    monkeypatch.setattr(module_lines, "compiler_program", missing)
    without = provenance_of(dump)
    assert without.note == "IREE's phases are not linked: IREE's compiler is not installed"
    assert "iree-flow" not in without.stages and without.stages["linalg"].share == 1.0
