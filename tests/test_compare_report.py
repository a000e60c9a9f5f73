"""Comparison with made-up targets: right, wrong, failing, missing; the table, the JSON, the expected failures."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from mlirstack import zoo
from mlirstack.compare.compare import Candidate, compare
from mlirstack.compare.expected import judge, load_expected_failures
from mlirstack.compare.inductor import compile_inductor
from mlirstack.compare.results import Report, TargetResult
from mlirstack.compare.table import as_json, duration, print_report, print_reports
from mlirstack.compare.timing import Effort
from mlirstack.errors import MissingDependencyError, StageError, TargetUnavailableError, UsageError

QUICK = Effort(seconds=0.0, min_samples=3, sample_seconds=0, warm_up_calls=1, warm_up_seconds=0)
RESULT_KEYS = {
    "target", "status", "route", "rel_l2", "max_abs", "tolerance", "compile_s", "median_s", "ratio_vs_eager", "error"
}  # fmt: skip


class Affine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x + 1


def compile_fake(module: nn.Module, inputs: tuple[Any, ...], *, target: str, route: str, dynamic_shapes: Any) -> Candidate:
    """What each made-up target does."""

    def crash(x: Tensor) -> Tensor:
        raise RuntimeError("device lost")

    match target:
        case "right":
            return Candidate(lambda x: x * 2 + 1, route="tosa", compile_s=1.5)
        case "wrong":
            return Candidate(lambda x: x * 2, route="linalg")
        case "crash":
            return Candidate(crash)
        case "broken":
            raise StageError("no pattern matches", stage="loops", pass_name="convert-linalg-to-loops")
        case "missing":
            raise TargetUnavailableError("no GPU")
        case "uninstalled":
            raise MissingDependencyError("no compiler")
    raise UsageError(f"unknown target '{target}'")


def run(*targets: str, bench: bool = False) -> Report:
    x = torch.linspace(-1, 1, 16)
    return compare(Affine(), (x,), targets, compile_function=compile_fake, name="affine", bench=bench, effort=QUICK)


def test_a_right_target() -> None:
    report = run("right")
    assert report.ok and report.exit_status == 0 and report.precision == "float64"
    assert [result.target for result in report.results] == ["eager", "right"]
    result = report["right"]
    assert (result.status, result.route, result.compile_s, result.error) == ("ok", "tosa", 1.5, None)
    assert result.rel_l2 is not None and result.rel_l2 < 1e-7 and result.tolerance == 1e-5
    assert result.median_s is None and result.ratio_vs_eager is None


def test_a_wrong_target_fails_the_report_and_keeps_its_numbers() -> None:
    report = run("wrong")
    result = report["wrong"]
    assert not report.ok and report.exit_status == 1
    x = torch.linspace(-1, 1, 16, dtype=torch.float64)
    assert result.rel_l2 == pytest.approx(float(math.sqrt(16) / torch.linalg.vector_norm(2 * x + 1)))
    assert result.max_abs == pytest.approx(1.0, abs=1e-6)
    assert result.error is not None and "relative L2 error" in result.error
    assert result.compile_s is not None and result.compile_s >= 0


def test_failing_and_missing_targets_do_not_keep_the_rest_from_running() -> None:
    report = run("missing", "broken", "crash", "uninstalled", "right")
    statuses = {result.target: result.status for result in report.results}
    assert statuses == {
        "eager": "ok",
        "missing": "unavailable",
        "broken": "error",
        "crash": "error",
        "uninstalled": "unavailable",
        "right": "ok",
    }
    assert report["missing"].error == "no GPU"
    assert "stage 'loops'" in str(report["broken"].error)
    assert report["crash"].error == "compiled, but running it failed: device lost"
    assert not report.ok and report.exit_status == 3


def test_missing_targets_alone_are_no_failure() -> None:
    assert run("missing", "right").ok
    assert run("missing").exit_status == 0


def test_wrong_answers_weigh_more_than_missing_ones() -> None:
    assert run("wrong", "broken").exit_status == 1


def test_an_unknown_target_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="unknown target 'nonsense'"):
        run("right", "nonsense")


def test_bench_times_what_ran() -> None:
    report = run("right", "wrong", "missing", bench=True)
    for target in ("eager", "right", "wrong"):
        assert report[target].median_s is not None
    assert report["missing"].median_s is None
    eager, right = report["eager"], report["right"]
    assert eager.ratio_vs_eager == 1.0
    assert eager.median_s is not None and right.median_s is not None
    assert right.ratio_vs_eager == pytest.approx(eager.median_s / right.median_s)


def test_targets_get_copies_of_model_and_inputs() -> None:
    model = zoo.get("buffer_update")

    def greedy(module: nn.Module, inputs: tuple[Any, ...], *, target: str, route: str, dynamic_shapes: Any) -> Candidate:
        function = torch.nn.Identity()
        inputs[0].zero_()
        module.get_buffer("calls").fill_(7)
        return Candidate(function)

    before = model.inputs[0].clone()
    report = compare(model.module, model.inputs, ["a"], compile_function=greedy)
    assert torch.equal(model.inputs[0], before)
    assert model.module.get_buffer("calls") == 0
    assert report["a"].status == "ok"  # the first call multiplies by one


def test_json_has_the_promised_keys_and_no_nan() -> None:
    data = as_json(run("right", "missing", bench=True))
    assert data["model"] == "affine" and data["reference"] == "eager"
    for result in data["results"]:
        assert set(result) >= RESULT_KEYS
    bad = Report("m", (TargetResult("a", "mismatch", rel_l2=math.nan, max_abs=math.inf),), "float64")
    result = json.loads(json.dumps(as_json(bad), allow_nan=False))["results"][0]
    assert (result["rel_l2"], result["max_abs"]) == ("nan", "inf")


def test_table_shows_answers_and_reasons() -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    print_report(run("right", "wrong", "missing", bench=True), console)
    text = console.export_text()
    assert "affine against eager in float64" in text
    assert "affine on missing: no GPU" in text
    assert "affine on wrong: output: relative L2 error" in text
    assert "above 1 is faster" in text
    assert "1.5 s" in text and "1.00x" in text


def test_table_of_several_models_names_them() -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    print_reports([run("right"), run("broken")], console)
    text = console.export_text()
    assert text.count("affine") >= 4
    assert "no pattern matches" in text and "speed" not in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (1.234, "1.23 s"), (0.0456, "45.6 ms"), (7e-6, "7 µs"), (5e-8, "50 ns")]
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


TABLE = """
[[failure]]
model = "affine"
target = "wrong"
status = "mismatch"
reason = "forgets the constant"
[[failure]]
model = "affine"
target = "right"
status = "error"
reason = "used not to compile"
[[failure]]
model = "affine"
target = "broken"
status = "mismatch"
reason = "used to compile"
"""


def test_expected_failures_and_unexpected_passes(tmp_path: Path) -> None:
    path = tmp_path / "expected.toml"
    path.write_text(TABLE)
    verdicts = judge(run("right", "wrong", "broken", "missing", "crash"), load_expected_failures(path))
    outcomes = {verdict.target: verdict.outcome for verdict in verdicts}
    assert outcomes == {
        "right": "unexpected pass",
        "wrong": "expected failure",
        "broken": "unexpected failure",
        "missing": "unavailable",
        "crash": "unexpected failure",
    }
    assert [verdict.target for verdict in verdicts if verdict.ok] == ["wrong", "missing"]


def test_results_that_are_not_in_the_table_pass_or_fail() -> None:
    verdicts = judge(run("right", "wrong"), {})
    assert [verdict.outcome for verdict in verdicts] == ["pass", "unexpected failure"]


@pytest.mark.parametrize(
    "text",
    [
        "[[failure",
        '[[failure]]\nmodel = "a"',
        '[[failure]]\nmodel = "a"\ntarget = "b"\nstatus = "ok"\nreason = "c"',
        '[[failure]]\nmodel = "a"\ntarget = "b"\nstatus = "error"\nreason = ""',
        2 * '[[failure]]\nmodel = "a"\ntarget = "b"\nstatus = "error"\nreason = "c"\n',
    ],
)
def test_a_malformed_table_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "expected.toml"
    path.write_text(text)
    with pytest.raises(UsageError):
        load_expected_failures(path)


def test_the_table_of_mlirstack_names_models_of_the_zoo() -> None:
    for model, target in load_expected_failures():
        assert model in zoo.names()
        assert target.split(":")[0] in ("cpu", "iree-cpu", "cuda", "iree-cuda", "inductor")


@pytest.mark.slow
def test_inductor_is_right_and_its_cold_compile_is_timed() -> None:
    model = zoo.get("tiny_mlp_small")
    report = compare(model.module, model.inputs, ["inductor"], compile_function=compile_fake, bench=True, effort=QUICK)
    result = report["inductor"]
    assert result.status == "ok", result.error
    assert result.compile_s is not None and result.compile_s > 0.05  # a C++ compiler ran
    assert result.ratio_vs_eager is not None


@pytest.mark.slow
def test_inductor_compiles_again_each_time_and_not_in_later_calls() -> None:
    module, inputs = Affine(), (torch.linspace(-1, 1, 16),)
    first = compile_inductor(module, inputs)
    second = compile_inductor(Affine(), inputs)
    assert min(first.compile_s, second.compile_s) > 0.05
    torch.testing.assert_close(second(*inputs), 2 * inputs[0] + 1)


@pytest.mark.slow
def test_inductor_takes_from_its_caches_what_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a second mode leaves the first as it is, that of the same code."""
    from torch._dynamo.utils import counters

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    inputs = (torch.linspace(-1, 1, 16),)
    hits = []
    for _ in range(2):
        counters.clear()
        first = compile_inductor(Affine(), inputs, cached=True)
        hits.append(counters["inductor"]["fxgraph_cache_hit"])
    assert hits == [0, 1]
    second = compile_inductor(Affine(), inputs, mode="max-autotune", keep=True)
    counters.clear()
    for function in (first, second):
        torch.testing.assert_close(function(*inputs), 2 * inputs[0] + 1)
    assert not counters["inductor"]  # neither was compiled again


@pytest.mark.slow
def test_inductors_first_call_does_not_count_as_a_call_of_the_model() -> None:
    model = zoo.get("buffer_update")
    report = compare(model.module, model.inputs, ["inductor"], compile_function=compile_fake)
    assert report["inductor"].status == "ok", report["inductor"].error
