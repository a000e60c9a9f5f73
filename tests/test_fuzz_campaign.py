"""Runs of random graphs on targets: the short one of CI, going on where a run ended, processes that die."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mlirstack.errors import UsageError
from mlirstack.fuzz.campaign import RESULTS, Campaign, run
from mlirstack.fuzz.examiner import Examiner
from mlirstack.fuzz.finds import choose
from mlirstack.fuzz.generate import graph_of
from mlirstack.fuzz.reproducer import read_spec, write_reproducer
from mlirstack.fuzz.results import Numbered, Result, counts
from mlirstack.fuzz.spec import Call, GraphSpec, InputSpec

DIES_OF_TANH_AND_EAGER_OF_COS = """
import os
from mlirstack.supervised import serve

def answer(question, tell):
    tell("eager")
    if any('"cos"' in graph for graph in question["graphs"]):
        os.abort()
    tell("run")
    if any('"tanh"' in graph for graph in question["graphs"]):
        os.abort()
    return {target: [{"status": "ok"}] * len(question["graphs"]) for target in question["targets"]}

serve(answer)
"""


def single(op: str) -> GraphSpec:
    return GraphSpec((InputSpec("x0", (2,), "float32"),), (Call("v0", op, ("x0",)),), ("v0",))


@pytest.mark.target
def test_random_graphs_on_cpu_are_right_and_a_run_goes_on(tmp_path: Path) -> None:
    found = [one for results in run(Campaign(12, 1, ("cpu",)), tmp_path) for one in results]
    assert [one.number for one in found] == list(range(12))
    assert [f"{one.number}: {one.result.reason}" for one in found if one.result.is_find] == []
    assert sum(one.result.status == "ok" for one in found) >= 11  # a clear refusal is no wrong answer
    again = list(run(Campaign(12, 1, ("cpu",), jobs=2), tmp_path))
    assert again[0] == found
    assert sum(counts(found)["cpu"].values()) == 12


def test_no_group_is_begun_after_the_time_is_up(tmp_path: Path) -> None:
    campaign = Campaign(64, 1, ("cpu",), jobs=4, seconds=0.0)
    assert [one for results in run(campaign, tmp_path) for one in results] == []
    assert len((tmp_path / RESULTS).read_text().splitlines()) == 1


def test_finds_of_different_kinds_are_made_small_first() -> None:
    reasons = ["output 0: off by 1e-3", "output 1: off by 2", "stage 'linalg': no lowering", "output 2: off by 0.5"]
    finds = [Numbered(number, "cpu", Result("wrong", reason)) for number, reason in enumerate(reasons)]
    assert [find.number for find in choose(finds, 3)] == [0, 2, 1]


def test_a_run_with_another_seed_does_not_mix_in(tmp_path: Path) -> None:
    (tmp_path / RESULTS).write_text(json.dumps({"seed": 1, "targets": ["cpu"]}) + "\n")
    with pytest.raises(UsageError, match="seed 1 on cpu"):
        list(run(Campaign(4, 2, ("cpu",)), tmp_path))


def test_a_dead_process_costs_one_graph() -> None:
    specs = [single("relu"), single("cos"), single("tanh"), single("abs")]
    with Examiner(30.0, command=(sys.executable, "-c", DIES_OF_TANH_AND_EAGER_OF_COS)) as examiner:
        results = examiner.results(specs, "cpu")
    assert [result.status for result in results] == ["ok", "refused", "died", "ok"]
    assert results[1].reason == "eager has no answer: it died (SIGABRT)"
    assert "SIGABRT" in str(results[2].reason)


def test_a_reproducer_is_a_model_that_gives_the_graph_s_answer(tmp_path: Path) -> None:
    import torch

    from mlirstack.frontend.references import load
    from mlirstack.fuzz.oracle import expect

    spec = graph_of(2, 5)
    model = write_reproducer(tmp_path, spec, Result("wrong", "by decree"), "cpu", "Graph 5 of seed 2.")
    assert read_spec(tmp_path / "graph.json") == spec
    source = load(str(model))
    with torch.no_grad():
        answers = source.model(*source.inputs)[0]
    for got, eager in zip(answers, expect(spec).eager, strict=True):
        torch.testing.assert_close(got, eager, rtol=0, atol=0, equal_nan=True)


def test_a_file_that_is_no_graph_gets_one_error(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text("[]")
    with pytest.raises(UsageError, match="holds no graph"):
        read_spec(tmp_path / "graph.json")
