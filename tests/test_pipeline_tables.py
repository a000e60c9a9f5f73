"""The stage tables of all targets: they read back from their own text, and every step is registered."""

from __future__ import annotations

import pytest

from mlirstack.pipeline.parse import parse_pipeline
from mlirstack.pipeline.step import pipeline_text
from mlirstack.steps import register_steps
from mlirstack.targets.registry import create_target, target_names


@pytest.mark.parametrize("route", ["tosa", "linalg"])
@pytest.mark.parametrize("target", target_names())
@pytest.mark.parametrize("threads", [1, 2])
def test_every_stage_reads_back_from_its_text(target: str, route: str, threads: int) -> None:
    register_steps()
    for stage in create_target(target, threads=threads).pipeline(route, "fx").stages:
        steps = parse_pipeline(stage.text())
        assert pipeline_text(steps) == stage.text()
        assert [type(step) for step in steps] == [type(step) for step in stage.steps]


@pytest.mark.parametrize("target", target_names())
def test_every_stage_says_why_it_is_there(target: str) -> None:
    for stage in create_target(target).pipeline("tosa", "fx").stages:
        assert len(stage.doc) > 20, stage.name
