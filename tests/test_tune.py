"""Tuning: problems of a model, candidates that are what they claim to be, blame for bad ones, and the table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from test_compare_artifacts import WITHOUT_MLIR
from torch import nn

from mlirstack.errors import StageError, UsageError
from mlirstack.frontend.program import ArgumentSpec, Program, Signature
from mlirstack.lowering import LowerOptions, lower_program, program_of
from mlirstack.schedules.cuda import tuned
from mlirstack.schedules.cuda.emitter import Choice
from mlirstack.supervised import Supervised
from mlirstack.tune.candidate_set import INDEX, CandidateSet, StoredCandidate, StoredProblem
from mlirstack.tune.compile_candidate import compile_candidate
from mlirstack.tune.measure import Measured, measure, measure_set
from mlirstack.tune.problems import find_problems, select
from mlirstack.tune.table import merge, winner, write_table
from mlirstack.tune.time_candidates import disagreeing, input_sets

TARGET = "cuda:sm_90a"


class Net(nn.Module):
    """Two products of equal size and a softmax: three kernels, two of them distinct."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(256, 256, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(rows, 256), three times."""
        return self.first(x), self.second(x), torch.softmax(x, -1)


def program() -> Program:
    torch.manual_seed(0)
    return program_of(Net().bfloat16().eval(), (torch.randn(384, 256).bfloat16(),), name="net")


# -------------------------------------------------------------------------------------------------------------- problems


@pytest.mark.portable
def test_each_distinct_kernel_is_one_problem() -> None:
    problems = find_problems(program(), TARGET)
    assert [p.name for p in problems] == ["contraction-384x256x256-bf16", "reduction-384x256-bf16"]
    product = problems[0]
    assert product.key.startswith("384x256x256 ppr bf16[02] bf16[12] > f32[01]: extf extf mulf addf")
    assert product.bucket.startswith("about 512x256x256 ppr")
    assert {"gemm_wgmma", "gemm_mma"} <= {choice.name for choice in product.choices}


@pytest.mark.portable
def test_targets_without_candidates_are_refused() -> None:
    with pytest.raises(UsageError, match="'cpu' are not tuned"):
        find_problems(program(), "cpu")


def test_selection_keeps_order_the_first_and_one_of_each_emitter() -> None:
    choices = tuple(
        Choice(name, {"size": size}) for name, size in [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)]
    )
    assert select(choices, 4) == (choices[0], choices[1], choices[3], choices[5])
    assert select(choices, 2) == (choices[0], choices[3])
    assert select(choices, 9) == choices


@pytest.mark.target
def test_what_is_asked_for_is_what_the_plan_launches_and_what_the_table_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    problem = find_problems(program(), TARGET)[0]
    file = tmp_path / "problem.mlir"
    file.write_text(problem.module)
    first = problem.choices[0]
    other = next(choice for choice in problem.choices if choice.name == "gemm_mma")
    plans = []
    for number, choice in enumerate((first, other)):
        entry = {"name": choice.name, **choice.parameters}
        plans.append(compile_candidate(file, TARGET, entry, tmp_path / str(number)))
        assert {kernel.schedule for kernel in plans[-1].kernels} == {choice.name}
    assert plans[0].functions[0].inputs == plans[1].functions[0].inputs
    assert [buffer.kind for buffer in plans[1].functions[0].buffers] == ["input", "input", "result"]

    table = tmp_path / "table.json"
    write_table(table, {"sm_90a": {problem.key: {"name": other.name, **other.parameters}}})
    monkeypatch.setenv(tuned.ENVIRONMENT, str(table))
    text = lower_program(program(), LowerOptions(TARGET, to="dispatches"))["dispatches"].text
    assert text.count('name = "gemm_mma"') == 1  # one kernel, called twice
    assert "gemm_wgmma" not in text


@pytest.mark.target
def test_a_program_without_the_schedule_asked_for_is_no_candidate(tmp_path: Path) -> None:
    file = tmp_path / "problem.mlir"
    file.write_text("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
    with pytest.raises(StageError, match="asked for schedule 'rows', got no kernel"):
        compile_candidate(file, TARGET, {"name": "rows"}, tmp_path / "0")
    assert not (tmp_path / "0").exists()


# ------------------------------------------------------------------------------------------------------------- measuring

SCRIPTED = """
import os, sys, time
from mlirstack.supervised import serve

faults = dict(item.split("=") for item in sys.argv[1:])

def answer(question, tell):
    numbers = question["candidates"]
    for number in numbers:
        tell({"candidate": number})
        fault = faults.get(str(number))
        if fault == "hang":
            time.sleep(60)
        if fault == "die":
            os.abort()
    tell({"timing": numbers})
    if any(faults.get(str(number)) == "die while timed" for number in numbers):
        os.abort()
    wrong = {n: "differs" for n in numbers if faults.get(str(n)) == "wrong"}
    return {"seconds": {n: 1e-6 * (10 - n) for n in numbers if n not in wrong}, "failed": wrong}

serve(answer)
"""


def problem(count: int = 4, key: str = "64 p", bucket: str = "about 64 p", skipped: int | None = None) -> StoredProblem:
    choices = tuple(
        StoredCandidate({"name": "rows", "threads": 32 * (n + 1)}, "too large" if n == skipped else None)
        for n in range(count)
    )
    return StoredProblem("00-rows", key, bucket, "net", choices)


@pytest.mark.parametrize(
    ("faults", "skipped", "right", "failed"),
    [
        ([], None, {0, 1, 2, 3}, {}),
        ([], 2, {0, 1, 3}, {}),
        (["1=hang"], None, {0, 2, 3}, {1: "no answer within"}),
        (["0=die", "2=hang"], None, {1, 3}, {0: "it died (SIGABRT)", 2: "no answer within"}),
        (["2=die while timed", "3=wrong"], None, {0, 1}, {2: "it died (SIGABRT)", 3: "differs"}),
        (["0=die while timed"], None, {1, 2, 3}, {0: "it died (SIGABRT)"}),
    ],
)
def test_a_bad_candidate_costs_itself_only(
    tmp_path: Path, faults: list[str], skipped: int | None, right: set[int], failed: dict[int, str]
) -> None:
    file = tmp_path / "child.py"
    file.write_text(SCRIPTED)
    with Supervised([sys.executable, str(file), *faults], timeout=1.5) as worker:
        measured = measure(problem(skipped=skipped), tmp_path, worker, 0.1)
    assert measured.note is None
    assert measured.seconds == {n: 1e-6 * (10 - n) for n in right}
    assert set(measured.failed) == set(failed)
    assert all(measured.failed[n].startswith(reason) for n, reason in failed.items())


def test_the_budget_ends_a_run_and_names_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "child.py"
    file.write_text(SCRIPTED)
    with Supervised([sys.executable, str(file)], timeout=5) as worker:
        found = CandidateSet("sm_90a", (problem(), problem()))
        notes = [m.note for m in measure_set(found, tmp_path, worker, budget=0.0)]
        assert notes == ["the time budget was spent"] * 2
        assert [m.note for m in measure_set(found, tmp_path, worker, budget=60.0)] == [None, None]
    with Supervised([sys.executable, str(file), "0=hang", "1=hang", "2=hang"], timeout=1.0) as worker:
        late = measure(problem(), tmp_path, worker, 0.1, time.monotonic() + 0.5)
    assert late.note == "the time budget was spent" and set(late.failed) == {0}


def test_a_process_that_cannot_start_is_the_note(tmp_path: Path) -> None:
    with Supervised([sys.executable, "-c", "raise SystemExit(4)"], timeout=5) as worker:
        note = measure(problem(), tmp_path, worker, 0.1).note
    assert note == "the process that measures does not start: it ended with exit status 4"


def test_the_answer_of_most_candidates_is_believed() -> None:
    right = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    close, off, holed = right * (1 + 2**-8), right * 1.5, right.clone()
    holed[3, 5] = torch.nan
    assert disagreeing({0: [right], 1: [close], 2: [right]}) == {}
    assert set(disagreeing({0: [right], 1: [off], 2: [holed], 3: [close]})) == {1, 2}
    assert set(disagreeing({0: [off], 1: [right], 2: [close]})) == {0}
    assert set(disagreeing({0: [right], 1: [off]})) == {1}
    assert set(disagreeing({0: [right * torch.nan], 1: [right * torch.nan]})) == {0, 1}
    assert disagreeing({}) == {}


def test_inputs_are_the_same_each_time_and_rotate() -> None:
    kinds = [
        ("bfloat16", (8, 16)),
        ("float8_e4m3fn", (4,)),
        ("int8", (100,)),
        ("int64", (100,)),
        ("bool", (5,)),
        ("float64", None),
    ]
    arguments = tuple(ArgumentSpec(f"x{i}", "input", shape, dtype, i) for i, (dtype, shape) in enumerate(kinds))
    signature = Signature(arguments, (), (), "", "")
    first, again = input_sets(signature, "cpu"), input_sets(signature, "cpu")
    assert len(first) == 8
    for one, other, (dtype, shape) in zip(first[0][:5], again[0][:5], kinds[:5], strict=True):
        assert one.dtype == getattr(torch, dtype) and one.shape == shape
        assert torch.equal(one.float(), other.float())
    assert not torch.equal(first[0][0], first[1][0])
    assert first[0][2].min() == -4 and first[0][3].min() == 0 and first[0][3].max() == 1
    assert first[0][5] == 1.0
    large = Signature((ArgumentSpec("x", "input", (10_000_000,), "float64", 0),), (), (), "", "")
    assert len(input_sets(large, "cpu")) == 3


# ----------------------------------------------------------------------------------------------------------------- table


def measured(seconds: dict[int, float], **options: Any) -> Measured:
    return Measured(problem(**options), seconds)


def test_the_winner_must_win_by_a_margin() -> None:
    assert winner(measured({0: 1.0, 1: 0.98})) == 0
    assert winner(measured({0: 1.0, 1: 0.96, 2: 0.9})) == 2
    assert winner(measured({1: 1.0, 2: 0.99})) == 2  # the first choice does not run
    assert winner(measured({})) is None


def test_only_winners_get_entries_and_other_entries_stay() -> None:
    before = {"sm_80": {"k": {"name": "x"}}, "sm_90a": {"old": {"name": "y"}, "64 p": {"name": "rows", "threads": 1}}}
    after = merge(before, "sm_90a", [measured({0: 1.0, 1: 0.9})])
    assert after == {
        "sm_80": {"k": {"name": "x"}},
        "sm_90a": {"old": {"name": "y"}, "64 p": {"name": "rows", "threads": 64}},
    }
    assert before["sm_90a"]["64 p"] == {"name": "rows", "threads": 1}
    # Measured again, the first choice is the best: the entry goes.  What was not measured stays.
    again = merge(after, "sm_90a", [measured({0: 1.0, 1: 1.0}), measured({}, key="old")])
    assert again["sm_90a"] == {"old": {"name": "y"}}
    assert merge({}, "sm_90a", [measured({0: 1.0})]) == {}


def test_a_bucket_gets_the_best_over_its_problems() -> None:
    results = [
        measured({0: 1.0, 1: 0.80, 2: 0.70}, key="a"),
        measured({0: 1.0, 1: 0.70, 2: 0.90}, key="b"),
        measured({0: 1.0, 1: 1.05, 2: 1.20, 3: 0.5}, key="c"),
        measured({0: 1.0, 1: 0.5}, key="d", bucket="about d"),
    ]
    entries = merge({}, "sm_90a", results)["sm_90a"]
    threads = {key: entry["threads"] for key, entry in entries.items()}
    # Candidate 1: (0.8 * 0.7 * 1.05) ** (1 / 3) = 0.84; candidate 2: 0.91; candidate 3 is not one of all problems.
    assert threads == {"about 64 p": 64, "a": 96, "c": 128, "d": 64}
    # Where the bucket's winner is worse than the first choice, the first choice gets an entry, or it would be lost.
    results[2] = measured({0: 1.0, 1: 1.05, 2: 1.2}, key="c")
    assert merge({}, "sm_90a", results)["sm_90a"]["c"] == {"name": "rows", "threads": 32}


def test_tables_are_written_and_read_and_other_files_refused(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    table = {"sm_90a": {"b": {"name": "rows", "threads": 64}, "a": {"name": "rows"}}}
    write_table(file, table)
    assert tuned.read_table(file) == table
    assert list(json.loads(file.read_text())["sm_90a"]) == ["a", "b"]
    assert list(tuned.summary(file)) == ["sm_90a: 2 rows"]
    assert tuned.files(str(file)) == [file, tuned.SHIPPED]
    assert isinstance(tuned.read_table(tuned.SHIPPED), dict)
    for text in ("", "[]", '{"sm_90a": 1}', '{"sm_90a": {"a": {}}}'):
        file.write_text(text)
        with pytest.raises(UsageError, match="not a table of mlirstack tune"):
            tuned.read_table(file)


# ---------------------------------------------------------------------------------------------------------- command line


EXPONENTIAL = """
#map = affine_map<(i, j) -> (i, j)>
func.func @main(%x: tensor<48x640xf32>) -> tensor<48x640xf32> {
  %empty = tensor.empty() : tensor<48x640xf32>
  %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<48x640xf32>) outs(%empty : tensor<48x640xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = math.exp %a : f32
    linalg.yield %c : f32
  } -> tensor<48x640xf32>
  return %y : tensor<48x640xf32>
}
"""


def command(*arguments: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-c", script] if script else ["-m", "mlirstack"]
    return subprocess.run(
        [sys.executable, *start, "tune", *arguments], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.target
def test_candidates_are_built_by_the_command_line(tmp_path: Path) -> None:
    model = tmp_path / "model.mlir"
    model.write_text(EXPONENTIAL)
    out, result = tmp_path / "set", tmp_path / "result.json"
    arguments = ["--out", str(out), "--candidates", "2", "--jobs", "1", "--json", str(result)]
    build = command("build", str(model), *arguments)
    assert build.returncode == 0, build.stderr
    assert "1 kernels, 2 candidates" in build.stdout
    found = CandidateSet.read(out)
    assert found.arch == "sm_90a" and len(found.problems) == 1
    assert json.loads(result.read_text()) == {"directory": str(out), "kernels": 1, "candidates": 2}
    only = found.problems[0]
    assert [candidate.skipped for candidate in only.candidates] == [None] * 2
    assert all((out / only.directory / str(number) / "cuda" / "kernels.cubin").is_file() for number in range(2))

    if not torch.cuda.is_available():  # the GPU machine has no MLIR; this machine has no GPU either
        ran = command("run", str(out), "--table", str(tmp_path / "t.json"), script=WITHOUT_MLIR)
        assert ran.returncode == 3 and "cannot run here" in ran.stderr and not (tmp_path / "t.json").exists()


def test_mistakes_on_the_command_line_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[1]")
    (tmp_path / INDEX).write_text('{"format": 99}')
    for arguments, message in [
        (["run", str(tmp_path / "none"), "--table", "t.json"], "holds no candidates"),
        (["run", str(tmp_path), "--table", "t.json"], "has format 99"),
        (["show", str(tmp_path / "none.json")], "no file"),
        (["show", str(tmp_path / "bad.json")], "not a table of mlirstack tune"),
    ]:
        done = command(*arguments, script=WITHOUT_MLIR)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    (tmp_path / "good.json").write_text('{"sm_90a": {"64 p": {"name": "rows", "threads": 64}}}')
    shown = command("show", str(tmp_path / "good.json"), script=WITHOUT_MLIR)
    assert shown.returncode == 0 and "rows threads=64" in shown.stdout


@pytest.mark.portable
def test_building_refuses_a_directory_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    done = command("build", "zoo:tiny_mlp_small", "--out", str(tmp_path))
    assert done.returncode == 2 and "holds no candidate set" in done.stderr
    assert (tmp_path / "mine.txt").read_text() == "precious"
