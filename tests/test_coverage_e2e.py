"""The command that runs torch-mlir's end-to-end programs: what differs from its table, and that the table reads back."""

from __future__ import annotations

import json
import subprocess
import sys

import e2e_suite as suite
import pytest

PASS = {"verdict": "pass", "route": "tosa"}
LINALG = {"verdict": "pass", "route": "linalg", "why": "TOSA has no complex numbers"}
CHANCE = {"verdict": "chance", "route": "linalg"}
REFUSED = {"verdict": "refused", "reason": "aten.stft.default: unknown"}
WRONG = {"verdict": "wrong", "reason": "value", "route": "tosa"}


@pytest.mark.parametrize(
    ("expected", "found", "said"),
    [
        (PASS, PASS, []),
        (LINALG, CHANCE, []),
        (CHANCE, LINALG, []),
        (REFUSED, PASS, ["A: unexpected pass: pass, the table says refused."]),
        (PASS, REFUSED, ["A: unexpected failure: refused, the table says pass. aten.stft.default: unknown"]),
        (REFUSED, WRONG, ["A: unexpected failure: wrong, the table says refused. value"]),
        (PASS, LINALG, ["A: took route linalg, the table says tosa. TOSA has no complex numbers"]),
    ],
)
def test_better_worse_and_otherwise_are_all_said(expected, found, said):
    assert suite.differences({"A": expected}, {"A": found}, complete=True) == said


def test_programs_that_one_side_lacks_are_said():
    assert suite.differences({"A": PASS}, {"B": PASS}, complete=True) == [
        "B: not in the table (pass)",
        "A: in the table, not in the suite",
    ]
    assert suite.differences({"A": PASS, "B": PASS}, {"B": PASS}, complete=False) == []


def test_a_table_reads_back():
    rows = {"B": {**PASS, "seconds": 3, "reason": ""}, "A": REFUSED}
    table = json.loads(suite.table_text({"suite": "abc"}, {"auto": rows}))
    assert table == {"suite": "abc", "auto": {"counts": {"pass": 1, "refused": 1}, "programs": {"A": REFUSED, "B": PASS}}}
    assert suite.differences(table["auto"]["programs"], rows, complete=True) == []


def test_no_work_tree_is_said_in_one_line(tmp_path):
    result = subprocess.run([sys.executable, suite.__file__, str(tmp_path)], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {tmp_path} is no work tree of torch-mlir")
