"""The test kit: the lint catches seeded mistakes, the writer of CHECK lines captures names and keeps what is not its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlirstack.errors import StageError, UsageError
from mlirstack.filecheck.directives import run_lines
from mlirstack.filecheck.generate import with_directives
from mlirstack.filecheck.lint import lint

BIN = Path(sys.executable).parent
RUN = "// RUN: mlirstack-opt %s --canonicalize | FileCheck %s\n"


def findings(tmp_path: Path, text: str) -> list[tuple[int, str]]:
    path = tmp_path / "test.mlir"
    path.write_text(text)
    return [(f.line, f.message) for f in lint(path)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("// CHEKC: a", "'CHEKC' is no directive: did you mean CHECK?"),
        ("// CHCEK-NEXT: a", "'CHCEK-NEXT' is no directive: did you mean CHECK-NEXT?"),
        ("// CHECK-NXT: a", "'CHECK-NXT' is no directive: did you mean CHECK-NEXT?"),
        ("// CHECK-LABLE: a", "'CHECK-LABLE' is no directive: did you mean CHECK-LABEL?"),
        ("// CHECK_NEXT: a", "'CHECK_NEXT' is no directive: write CHECK-NEXT:"),
        ("// CHECK-NEXT a", "'CHECK-NEXT' without a colon is a comment"),
        ("// OTHER-SAME: a", "no RUN line checks prefix 'OTHER'"),
        ("// RNU: something", "'RNU' is no directive: did you mean RUN?"),
    ],
)
def test_lint_catches_seeded_mistakes(tmp_path: Path, line: str, message: str) -> None:
    assert findings(tmp_path, f"{RUN}// CHECK: func\n{line}\n") == [(3, message)]


@pytest.mark.parametrize(
    "line",
    [
        "// CHECK-NEXT: a",
        "// CHECK-COUNT-3: a",
        "// CHECK-EMPTY:",
        "// A plain comment: with a colon",
        "// TODO: later",
        "// IR:",
    ],
)
def test_lint_is_silent_on_directives_and_comments(tmp_path: Path, line: str) -> None:
    assert findings(tmp_path, f"{RUN}// CHECK: func\n{line}\n") == []


def test_lint_knows_when_nothing_is_checked(tmp_path: Path) -> None:
    assert findings(tmp_path, "module {}\n") == [(1, "no RUN line: the file tests nothing")]
    assert findings(tmp_path, RUN) == [(1, "no directive uses prefix 'CHECK' of this RUN line")]
    unused = RUN + "// RUN: mlirstack-opt %s | FileCheck %s --check-prefixes=CHECK,TWO\n// CHECK: func\n"
    assert findings(tmp_path, unused) == [(2, "no directive uses prefix 'TWO' of this RUN line")]


def test_the_repository_passes_its_own_lint() -> None:
    root = Path(__file__).parent.parent
    result = subprocess.run(
        [str(BIN / "mlirstack"), "checks", "--lint", str(root / "lit_tests"), str(root / "dialect_samples")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (result.stdout, result.returncode) == ("", 0)


def test_run_lines_join_continuations_and_know_their_prefixes() -> None:
    (first, second) = run_lines(
        "// RUN: mlirstack-opt %s \\\n// RUN:   --cse | FileCheck %s --check-prefix=A\n"
        "// RUN: mlirstack-opt %s --verify-diagnostics\n"
    )
    assert first.command == "mlirstack-opt %s --cse | FileCheck %s --check-prefix=A"
    assert (first.line, first.prefixes, first.producer) == (1, ("A",), "mlirstack-opt %s --cse")
    assert second.prefixes == ()


def test_written_directives_capture_names_and_are_stable(tmp_path: Path) -> None:
    path = tmp_path / "test.mlir"
    path.write_text(
        RUN + "\n// What the test is about.\nfunc.func @f(%x: i32) -> i32 {\n"
        "  %c = arith.constant 7 : i32\n  %0 = arith.addi %c, %x : i32\n  return %0 : i32\n}\n"
    )
    text = with_directives(path)
    assert "// What the test is about.\n// CHECK-LABEL: func.func @f\n" in text
    assert "// CHECK-SAME:  (%[[ARG0:.*]]: i32) -> i32 {\n" in text
    assert "// CHECK-NEXT:    %[[C7_I32:.*]] = arith.constant 7 : i32\n" in text
    assert "// CHECK-NEXT:    %[[V0:.*]] = arith.addi %[[ARG0]], %[[C7_I32]] : i32\n" in text
    path.write_text(text)
    assert with_directives(path) == text
    assert lint(path) == []


def test_written_directives_follow_split_files_and_escape_brackets(tmp_path: Path) -> None:
    path = tmp_path / "test.mlir"
    path.write_text(
        "// RUN: mlirstack-opt %s --split-input-file | FileCheck %s\n"
        "func.func @f() -> tensor<1x2xi32> {\n  %c = arith.constant dense<[[1, 2]]> : tensor<1x2xi32>\n"
        "  return %c : tensor<1x2xi32>\n}\n\n// -----\n\nfunc.func private @g()\n"
    )
    first, second = with_directives(path).split("// -----")
    assert "dense<{{\\[\\[}}1, 2{{\\]\\]}}>" in first
    assert "@g" not in first
    assert "// CHECK-LABEL: func.func private @g" in second


def test_writer_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    path = tmp_path / "test.mlir"
    path.write_text("func.func private @f()\n")
    with pytest.raises(UsageError, match="no RUN line with FileCheck"):
        with_directives(path)
    path.write_text("// RUN: mlirstack-opt %s --nonsense | FileCheck %s\n")
    with pytest.raises(StageError, match="Unknown command line argument '--nonsense'"):
        with_directives(path)
    path.write_text(f"{RUN}// RUN: mlirstack-opt %s --mlir-print-op-generic | FileCheck %s\nfunc.func private @f()\n")
    with pytest.raises(UsageError, match="print different things"):
        with_directives(path)
