"""The dump: numbering, headers, size limit, replay copies, failures, and what stands in the way of a directory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlirstack.bindings import new_context
from mlirstack.errors import StageError, UsageError
from mlirstack.ir.text import module_bytecode, parse_module, read_module
from mlirstack.pipeline.dump import READABLE_LIMIT, Dump, DumpInfo, prepare_directory
from mlirstack.pipeline.reproducer import Reproducer
from mlirstack.pipeline.runner import Observer, Payload, Runner, sha256
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass

STAGES = (
    Stage("tosa", "tosa", ()),
    Stage("linalg", "linalg", (Pass("tosa-to-linalg", on="func.func"),)),
    Stage("clean", "linalg", (Pass("canonicalize", {"top-down": True}), Pass("cse"))),
)
BUFFERIZE = Stage("bufferized", "buffer", (Pass("one-shot-bufferize"), Pass("canonicalize")))


def source(elements: int = 4, body: str = "") -> str:
    return f"""
func.func @main(%a: tensor<{elements}xf32>) -> tensor<{elements}xf32> {{
  {body}
  %r = tosa.exp %a : (tensor<{elements}xf32>) -> tensor<{elements}xf32> loc("model.py":3:4)
  return %r : tensor<{elements}xf32>
}}"""


def run(directory: Path | None, stages: tuple[Stage, ...] = STAGES, text: str | None = None, **keywords: int) -> Payload:
    observers: Sequence[Observer] = ()
    if directory:
        dump = Dump(prepare_directory(directory), DumpInfo("model", "cpu", {"mlirstack": "1"}))
        observers = (dump, Reproducer(directory))
    return Runner(observers).run(Pipeline("test", stages), parse_module(text or source(), new_context()), **keywords)


def test_files_are_numbered_without_gaps_and_match_the_trace(tmp_path: Path) -> None:
    run(tmp_path)
    files = sorted(f.name for f in tmp_path.iterdir() if f.is_file())
    assert files == ["00-tosa.mlir", "01-linalg.mlir", "02-clean.mlir", "trace.json"]
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert [s["file"] for s in trace["stages"]] == files[:3]
    assert [s["index"] for s in trace["stages"]] == [0, 1, 2]
    assert trace["stages"][1]["ops"]["linalg.generic"] == 1
    assert trace["stages"][2]["passes"] == ["canonicalize{top-down=true}", "cse"]
    assert all(s["seconds"] >= 0 for s in trace["stages"])


def test_header_line_chains_the_hashes(tmp_path: Path) -> None:
    run(tmp_path)
    headers = [(tmp_path / f"{i:02d}-{s.name}.mlir").read_text().splitlines()[0] for i, s in enumerate(STAGES)]
    hashes = [re.search(r"input sha256:(\w+) \| output sha256:(\w+) \| [\d.]+ s", h) for h in headers]
    assert all(hashes)
    assert hashes[1][1] == hashes[0][2]
    assert hashes[2][1] == hashes[1][2]
    assert "builtin.module(canonicalize{top-down=true},cse)" in headers[2]
    complete = (tmp_path / "replay" / "02-clean.mlirbc").read_bytes()
    assert sha256(complete).startswith(hashes[2][2])


def test_readable_file_parses_and_says_what_the_complete_one_says(tmp_path: Path) -> None:
    run(tmp_path)
    readable = read_module(tmp_path / "01-linalg.mlir", new_context())
    complete = read_module(tmp_path / "replay" / "01-linalg.mlirbc", new_context())
    assert str(readable) == str(complete)


def test_readable_files_stay_small_and_complete_ones_complete(tmp_path: Path) -> None:
    values = ", ".join(str(i) for i in range(0xABC00, 0xABC00 + 1000))
    constant = f"%c = arith.constant dense<[{values}]> : tensor<1000xi32>\n"
    many = "\n".join(f"%v{i} = tosa.exp %a : (tensor<4xf32>) -> tensor<4xf32>" for i in range(20000))
    run(tmp_path, (STAGES[0],), source(body=constant + many))
    readable = (tmp_path / "00-tosa.mlir").read_text()
    assert len(readable.encode()) < READABLE_LIMIT
    assert "00BC0A00" not in readable
    assert "complete in replay/00-tosa.mlirbc" in readable
    complete = read_module(tmp_path / "replay" / "00-tosa.mlirbc", new_context())
    assert "00BC0A00" in str(complete)
    assert str(complete).count("tosa.exp") == 20001


@pytest.mark.parametrize("size", [READABLE_LIMIT - 5000, READABLE_LIMIT - 2000, READABLE_LIMIT + 2000])
def test_text_past_mlir_is_there_whole(tmp_path: Path, size: int) -> None:
    """In the readable file, or where that is cut, in the file for replay."""
    text = "; line\n" * (size // 7)
    runner = Runner([Dump(prepare_directory(tmp_path), DumpInfo("model", "cpu", {}))])
    runner.run(Pipeline("test", (Stage("llvmir", "llvmir", ()),)), text)
    readable = (tmp_path / "00-llvmir.ll").read_text()
    complete = tmp_path / "replay" / "00-llvmir.ll"
    assert len(readable) < READABLE_LIMIT
    assert (complete.read_text() if complete.exists() else readable.partition("\n")[2]) == text


def test_plans_are_valid_json_without_a_heading(tmp_path: Path) -> None:
    runner = Runner([Dump(prepare_directory(tmp_path), DumpInfo("model", "cuda", {}))])
    runner.run(Pipeline("test", (Stage("plan", "plan", ()),)), '{"arch": "sm_90a"}')
    assert json.loads((tmp_path / "00-plan.json").read_text()) == {"arch": "sm_90a"}


def test_a_second_dump_replaces_the_first_and_touches_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    run(tmp_path)
    run(tmp_path, STAGES[:1])
    assert sorted(f.name for f in tmp_path.iterdir() if f.is_file()) == ["00-tosa.mlir", "notes.txt", "trace.json"]
    assert not (tmp_path / "replay" / "01-linalg.mlirbc").exists()


def test_resume_keeps_earlier_stages(tmp_path: Path) -> None:
    run(tmp_path)
    before = (tmp_path / "00-tosa.mlir").read_text()
    run(tmp_path, STAGES[2:], first_index=2)
    assert (tmp_path / "00-tosa.mlir").read_text() == before
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert [s["name"] for s in trace["stages"]] == ["tosa", "linalg", "clean"]


def test_dump_changes_nothing(tmp_path: Path) -> None:
    assert module_bytecode(run(tmp_path)) == module_bytecode(run(None))


def test_failure_keeps_earlier_stages_and_leaves_a_reproducer(tmp_path: Path) -> None:
    with pytest.raises(StageError) as caught:
        run(tmp_path, (*STAGES[:1], BUFFERIZE))
    assert (tmp_path / "00-tosa.mlir").is_file()
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["failed"]["pass"] == "one-shot-bufferize"
    assert caught.value.reproducer is not None
    assert {f.name for f in caught.value.reproducer.iterdir()} == {
        "reproducer.json", "input.mlirbc", "command.sh", "error.txt",
    }  # fmt: skip


def replay(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=cwd)


def test_reproducer_fails_in_the_same_pass_with_the_same_message(tmp_path: Path) -> None:
    before, after = Pass("cse"), Pass("symbol-dce")
    with pytest.raises(StageError) as caught:
        run(tmp_path, (STAGES[0], Stage("bufferized", "buffer", (before, Pass("one-shot-bufferize"), after))))
    error = caught.value
    assert error.pass_name == "one-shot-bufferize"
    assert error.reproducer is not None
    failing = replay(["sh", "command.sh"], error.reproducer)
    assert failing.returncode == 1
    assert error.message in failing.stderr
    without = "builtin.module(cse,symbol-dce)"  # all passes of the stage but the one that was blamed
    passing = replay(["mlirstack-opt", "input.mlirbc", f"--pass-pipeline={without}"], error.reproducer)
    assert passing.returncode == 0, passing.stderr


def test_a_directory_that_cannot_be_used_is_refused_up_front(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match="is a file"):
        prepare_directory(file)
    with pytest.raises(UsageError, match="cannot write"):
        prepare_directory(file / "below")
    with pytest.raises(UsageError, match="cannot write"):
        prepare_directory(Path("/proc/mlirstack"))
    assert prepare_directory(tmp_path / "new" / "deep").is_dir()


def test_a_full_disk_costs_the_stage_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    dump = Dump(prepare_directory(tmp_path), DumpInfo("model", "cpu", {}))
    (tmp_path / "00-tosa.mlir").symlink_to("/dev/full")
    dump.start = lambda pipeline, first_index: (tmp_path / "replay").mkdir(exist_ok=True)  # type: ignore[method-assign]
    with pytest.raises(StageError, match="No space left") as caught:
        Runner((dump,)).run(Pipeline("test", STAGES), parse_module(source(), new_context()))
    assert caught.value.stage == "tosa"
    assert not (tmp_path / "00-tosa.mlir").is_symlink()
