"""mlirstack-opt beyond what lit shows: crashes, exit statuses, imports, the parsers of flags and of split markers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlirstack.opt.dumps import Filter
from mlirstack.opt.elements import plans, reproducer_of
from mlirstack.opt.flags import FlagError, parse
from mlirstack.opt.isolation import run_isolated
from mlirstack.opt.reproducer import reproducer_text
from mlirstack.opt.source import Place, Source, split
from mlirstack.opt.timing import Report

BIN = Path(sys.executable).parent
MODULE = "func.func @f(%x: i32) -> i32 {\n  return %x : i32\n}\n"


def run(*arguments: str, stdin: str = MODULE) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "mlirstack-opt"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=300, check=False)


# ------------------------------------------------------------------------------------------------------------- crashes

CRASHING = """
import os, signal
from dataclasses import dataclass
from typing import ClassVar
from mlirstack.pipeline.step import PythonPass

@dataclass(frozen=True)
class Crash(PythonPass):
    name: ClassVar[str] = "test-crash"
    def apply(self, module):
        os.kill(os.getpid(), signal.SIGSEGV)

@dataclass(frozen=True)
class Fail(PythonPass):
    name: ClassVar[str] = "test-fail"
    def apply(self, module):
        raise ZeroDivisionError("by nothing")
"""


def run_with_steps(tmp_path: Path, *arguments: str, source: str = MODULE) -> subprocess.CompletedProcess[str]:
    """mlirstack-opt with a step that kills the process as native code does, and one with a defect."""
    (tmp_path / "crashing.py").write_text(CRASHING)
    (tmp_path / "in.mlir").write_text(source)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from mlirstack.steps import STEPS; "
        "STEPS |= {'test-crash': 'crashing:Crash', 'test-fail': 'crashing:Fail'}; "
        "from mlirstack.opt.tool import main; main(sys.argv[1:])"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "in.mlir"), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_crash_of_a_pass_is_reported_with_a_reproducer_that_crashes_again(tmp_path: Path) -> None:
    reproducer = tmp_path / "reproducer.mlir"
    flag = f"--mlir-pass-pipeline-crash-reproducer={reproducer}"
    result = run_with_steps(tmp_path, "--canonicalize", "--test-crash", "--cse", flag)
    assert result.returncode == 1
    assert "in.mlir: error: pass 'test-crash' crashed with SIGSEGV" in result.stderr
    assert f"reproducer generated at `{reproducer}`" in result.stderr
    assert reproducer_of(reproducer.read_text()) == "builtin.module(canonicalize,test-crash,cse)"
    again = run_with_steps(tmp_path, "--run-reproducer", source=reproducer.read_text())
    assert again.returncode == 1
    assert "pass 'test-crash' crashed with SIGSEGV" in again.stderr


def test_crash_without_the_flag_writes_a_reproducer_too(tmp_path: Path) -> None:
    result = run_with_steps(tmp_path, "--test-crash")
    assert result.returncode == 1
    path = Path(result.stderr.split("reproducer generated at `")[1].split("`")[0])
    assert reproducer_of(path.read_text()) == "builtin.module(test-crash)"
    assert path.read_text().startswith(MODULE.rstrip())
    path.unlink()


def test_exception_in_a_python_pass_is_a_diagnostic_with_its_place(tmp_path: Path) -> None:
    result = run_with_steps(tmp_path, "--test-fail")
    assert result.returncode == 1
    assert "pass 'test-fail' raised ZeroDivisionError: by nothing" in result.stderr
    assert "crashing.py:" in result.stderr
    assert "Traceback" not in result.stderr


def test_isolation_tells_exit_status_and_signal() -> None:
    import os
    import signal

    assert run_isolated(lambda: 7).status == 7
    killed = run_isolated(lambda: os.kill(os.getpid(), signal.SIGKILL) or 0)
    assert (killed.status, killed.signal_name) == (1, "SIGKILL")


# ---------------------------------------------------------------------------------------------------------- the process


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("--canonicalize",), 0),
        (("--version",), 0),
        (("--nonsense",), 1),
        (("--pass-pipeline=builtin.module(nonsense)",), 1),
        (("/nonexistent.mlir",), 1),
    ],
)
def test_exit_status_is_that_of_mlir_opt(arguments: tuple[str, ...], status: int) -> None:
    assert run(*arguments).returncode == status


def test_output_of_a_failed_run_does_not_replace_the_file(tmp_path: Path) -> None:
    out = tmp_path / "out.mlir"
    out.write_text("kept")
    assert run("-o", str(out), stdin="nonsense").returncode == 1
    assert out.read_text() == "kept"


def test_reader_that_leaves_early_is_no_error() -> None:
    command = f"{BIN}/mlirstack-opt --list-passes | head -1"
    result = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, timeout=300, check=True)
    assert result.stderr == ""


def test_canonicalize_imports_neither_numpy_nor_argument_parsers() -> None:
    program = (
        "import sys; from mlirstack.opt.tool import _work; from mlirstack.opt.flags import parse; "
        "from mlirstack.opt.source import Chunk, Source; from mlirstack.opt.isolation import Progress; "
        f"source = Source('x', None, {MODULE.encode()!r}); "
        "status = _work(parse(['--canonicalize']), [Chunk(source, 1, 1, source.data)], Progress()); "
        "heavy = {'numpy', 'torch', 'torch_mlir.ir', 'argparse', 'typer', 'rich', 'dataclasses', 'importlib.metadata'}; "
        "print(status, sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert result.stdout.splitlines()[-1] == "0 []"


# ---------------------------------------------------------------------------------------------------------------- flags


def test_flags_follow_the_rules_of_llvm() -> None:
    invocation = parse(["-canonicalize", "in.mlir", "--cse=", "-o", "out", "--verify-each=false", "--split-input-file"])
    assert [p.name for p in invocation.passes] == ["canonicalize", "cse"]
    assert (invocation.input, invocation.text("o")) == ("in.mlir", "out")
    assert invocation.on("verify-each") is False
    assert invocation.text("split-input-file") == "// -----"


def test_pass_flags_nest_where_they_belong_and_keep_their_order() -> None:
    invocation = parse(["--cse", "--affine-parallelize=max-nested=1", "--symbol-dce"])
    (plan,) = plans(invocation)
    assert plan.text() == "builtin.module(cse,func.func(affine-parallelize{max-nested=1}),symbol-dce)"
    (plan,) = plans(invocation, anchor="func.func")
    assert plan.text("func.func") == "func.func(cse,affine-parallelize{max-nested=1},symbol-dce)"


@pytest.mark.parametrize("arguments", [["--debug-only=x"], ["--load-dialect-plugin", "x"], ["--mlir-print-unique-ssa-ids"]])
def test_what_the_bindings_cannot_do_is_refused_by_name(arguments: list[str]) -> None:
    with pytest.raises(FlagError, match=arguments[0].partition("=")[0] + " is not supported"):
        parse(arguments)


# --------------------------------------------------------------------------------------------------------------- chunks


def test_chunks_know_their_place_in_the_file() -> None:
    source = Source("x", None, b"a\n// -----\nb\n  // -----\nc")
    chunks, near = split(source, "// -----")
    assert [(c.data, c.line, c.column) for c in chunks] == [(b"a\n", 1, 1), (b"\nb\n  ", 2, 9), (b"\nc", 4, 11)]
    assert near == []
    assert chunks[2].placed_text() == "\n\n\n" + " " * 10 + "\nc"


@pytest.mark.parametrize("marker", ["// ---", "// ------", "// ----x"])
def test_near_misses_of_a_split_marker(marker: str) -> None:
    chunks, near = split(Source("x", None, f"a\n{marker}\nb\n".encode()), "// -----")
    assert len(chunks) == 1
    assert near == [Place("x", 2, 7)]


def test_marker_at_the_end_of_the_file_is_none() -> None:
    chunks, near = split(Source("x", None, b"a\n// -----"), "// -----")
    assert (len(chunks), near) == (1, [])


# -------------------------------------------------------------------------------------------------------------- reports


def test_reproducer_holds_the_pipeline_whatever_its_quotes() -> None:
    pipeline = 'builtin.module(a{x="1 2" y="\\"})'
    assert reproducer_of(reproducer_text("module {}", pipeline)) == pipeline


def test_dumps_of_other_passes_are_left_out_and_messages_are_not() -> None:
    keep = Filter(parse(["--mlir-print-ir-before=cse"]))
    lines = [
        b"// -----// IR Dump Before CanonicalizerPass: canonicalize{top-down=true} //----- //\n",
        b"first\n",
        b"\x01\n",
        b"a.mlir:1:1: warning: something\n",
        b"\x02\n",
        b"// -----// IR Dump Before CSEPass: cse ('func.func' operation: @f) //----- //\n",
        b"second\n",
        b"// -----// IR Dump Before CSEPass: cse-like //----- //\n",
        b"third\n",
    ]
    shown = b"".join(keep.line(line) for line in lines)
    assert shown == lines[3] + lines[5] + lines[6]


def test_timing_report_is_valid_json_and_adds_up() -> None:
    import json

    report = Report()
    report.add("Parser", 0.0)
    report.add("Output", 0.0)
    rows = json.loads(report.text("tree", "json").replace("{}]", "]"))
    assert [row["name"] for row in rows] == ["Parser", "Output", "Rest", "Total"]
    assert rows[-1]["wall"]["percentage"] == 100.0
