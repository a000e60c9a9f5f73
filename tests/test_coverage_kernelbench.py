"""The command that holds KernelBench's problems against a table: what it calls a difference, what it calls slow, and how it
makes problems smaller."""

from __future__ import annotations

import ast
import json

import kernelbench_sizes as sizes
import kernelbench_suite as suite
import pytest
from suite_runs import differences

pytestmark = pytest.mark.portable

PASS, WRONG = {"verdict": "pass"}, {"verdict": "wrong", "reason": "largest difference 3"}


def test_better_and_worse_than_the_table_are_differences() -> None:
    table = {"level1/1_a": WRONG, "level1/2_b": PASS, "level1/3_c": PASS}
    found = {"level1/1_a": PASS, "level1/2_b": WRONG, "level1/3_c": PASS, "level1/4_d": PASS}
    assert differences(table, found) == [
        "level1/1_a: unexpected pass: pass, the table says wrong.",
        "level1/2_b: unexpected failure: wrong, the table says pass. largest difference 3",
        "level1/4_d: unexpected pass: pass, the table says None.",
    ]


def test_slow_is_five_times_eager_or_a_median_above_one_and_a_half() -> None:
    assert suite.slowness({"a": {"ratio": 5.0}, "b": {"ratio": 0.5}, "c": {"ratio": 1.5}, "d": PASS}) == []
    lines = suite.slowness({"a": {"ratio": 5.1}, "b": {"ratio": 1.6}, "c": {"ratio": 1.6}})
    assert lines == ["a: 5.1 times eager's time", "the median is 1.60 times eager's time"]


def test_the_table_is_of_all_problems_and_holds_what_the_command_demands() -> None:
    problems = json.loads(suite.TABLE.read_text())["problems"]
    levels = [name.partition("/")[0] for name in problems]
    assert [levels.count(f"level{number}") for number in (1, 2, 3)] == [100, 100, 50]
    assert {name for name, row in problems.items() if "ratio" not in row and row["verdict"] == "pass"} == set()
    assert suite.slowness(problems) == []
    assert {name for name, row in problems.items() if row["verdict"] != "pass" and not row.get("reason")} == set()


def test_sizes_are_made_smaller_and_code_is_not() -> None:
    assert [sizes.shrink(n) for n in (16, 64, 4096, 24, 224, 131072)] == [16, 16, 64, 24, 112, 256]
    source = "batch_size = 64\nwide = 4096 * 2\nclass Model:\n  scale = 4096\ndef get_inputs():\n  return batch_size, 4096\n"
    tree = sizes.smaller(source, {"wide": 7})
    assert ast.unparse(tree).splitlines() == [
        "batch_size = 2",
        "wide = 7",
        "",
        "class Model:",
        "    scale = 4096",
        "",
        "def get_inputs():",
        "    return (batch_size, 64)",
    ]
