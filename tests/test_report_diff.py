"""The diff that does not mind renumbering, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlirstack.ir.diff import DiffStat, compare_lines, stat, unified

BEFORE = """\
%0 = arith.constant 1 : i32
%1 = arith.addi %arg0, %arg0 : i32
%2 = arith.muli %1, %arg1 : i32
%3 = arith.subi %2, %1 : i32
return %3 : i32""".splitlines()


def test_renumbered_values_are_no_difference() -> None:
    after = [line.replace("%3", "%x").replace("%2", "%c_7").replace("%1", "%9") for line in BEFORE]
    assert stat(compare_lines(BEFORE, after)) == DiffStat(0, 0)
    assert list(unified(BEFORE, after, "a", "b")) == []


def test_a_line_taken_out_renumbers_what_follows() -> None:
    after = [
        "%0 = arith.addi %arg0, %arg0 : i32",
        "%1 = arith.muli %0, %arg1 : i32",
        "%2 = arith.subi %1, %0 : i32",
        "return %2 : i32",
    ]
    assert stat(compare_lines(BEFORE, after)) == DiffStat(removed=1, added=0)


def test_swapped_operands_are_a_difference() -> None:
    after = list(BEFORE)
    after[3] = "%3 = arith.subi %1, %2 : i32"
    assert stat(compare_lines(BEFORE, after)) == DiffStat(removed=1, added=1)
    assert "-%3 = arith.subi %2, %1 : i32" in list(unified(BEFORE, after, "a", "b"))


def test_other_attributes_are_a_difference() -> None:
    after = [BEFORE[0].replace("constant 1", "constant 2"), *BEFORE[1:]]
    assert stat(compare_lines(BEFORE, after)) == DiffStat(1, 1)


QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LINES = st.lists(st.sampled_from(["a", "b", "c %0", "c %1", "}"]), max_size=12)


@QUICK
@given(LINES, LINES)
def test_runs_hold_every_line_once_and_lead_from_one_text_to_the_other(a: list[str], b: list[str]) -> None:
    runs = compare_lines(a, b)
    assert [line for run in runs for line in a[run.a_begin : run.a_end]] == a
    assert [line for run in runs for line in b[run.b_begin : run.b_end]] == b
    assert all(run.a_end - run.a_begin == run.b_end - run.b_begin for run in runs if run.kind == "equal")


@QUICK
@given(LINES, LINES)
def test_hunks_are_what_one_text_lacks_and_the_other_has(a: list[str], b: list[str]) -> None:
    lines = [line for line in unified(a, b, "a", "b", context=0) if line[:3] not in ("---", "+++")]
    runs = [run for run in compare_lines(a, b) if run.kind == "changed"]
    assert [line[1:] for line in lines if line[0] == "-"] == [line for run in runs for line in a[run.a_begin : run.a_end]]
    assert [line[1:] for line in lines if line[0] == "+"] == [line for run in runs for line in b[run.b_begin : run.b_end]]


@pytest.mark.portable
def test_a_lowering_uses_it(tmp_path: Path) -> None:
    from report_models import lower_to

    import mlirstack as ms

    lowering = lower_to(tmp_path, "cpu", to="prepared")
    assert isinstance(lowering, ms.Lowering)
    assert lowering.diff("linalg", "linalg") == ""
    assert "--- linalg\n+++ prepared\n@@" in lowering.diff("linalg", "prepared")
