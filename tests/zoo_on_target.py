"""Shared by the tests that run the zoo on one target: compile, compare with eager, judge by the expected failures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mlirstack import api, zoo
from mlirstack.compare.accuracy import call, compare_answers, reference
from mlirstack.compare.compare import Candidate, compare
from mlirstack.compare.expected import judge_result, load_expected_failures

EXPECTED = load_expected_failures()
MODELS = [pytest.param(name, marks=pytest.mark.slow) if name in zoo.HEAVY else name for name in zoo.names()]


def compile_in_process(
    module: nn.Module, inputs: tuple[Any, ...], *, target: str, route: str, dynamic_shapes: Any
) -> Candidate:
    """Compile through the Python interface."""
    compiled = api.compile(module, inputs, dynamic_shapes=dynamic_shapes, target=target, route=route)
    return Candidate(compiled, route=compiled.route, device=compiled.executable.device, tf32=compiled.executable.tf32)


def check(name: str, target: str, *, seed: int = 0) -> None:
    """Assert that a zoo model does on ``target`` what the table of expected failures says: normally, eager's answer."""
    model = zoo.get(name, seed=seed)
    report = compare(
        model.module,
        model.inputs,
        [target],
        compile_function=compile_in_process,
        name=name,
        dynamic_shapes=model.dynamic_shapes,
    )
    verdict = judge_result(name, report[target], EXPECTED)
    if verdict.outcome == "unavailable":
        pytest.skip(f"{target}: {verdict.reason}")
    assert verdict.ok, f"{verdict.outcome}: {verdict.reason}"


def check_sizes(name: str, target: str, sizes: tuple[int, ...]) -> None:
    """Assert that a dynamic model, compiled once, gives eager's answer at each size of its dynamic dimensions."""
    if (name, target) in EXPECTED:
        pytest.skip(EXPECTED[name, target].reason)
    model = zoo.get(name)
    compiled = api.compile(model.module, model.inputs, dynamic_shapes=model.dynamic_shapes, target=target)
    for size in sizes:
        inputs = resized(model.inputs, model.dynamic_shapes or (), size)
        accuracy = compare_answers(call(compiled, inputs), reference(model.module, inputs), tf32=compiled.executable.tf32)
        assert accuracy.ok, f"size {size}: {accuracy.reason}"


def resized(inputs: tuple[Any, ...], dimensions: tuple[dict[int, Any] | None, ...], size: int) -> tuple[Any, ...]:
    """Inputs whose dynamic dimensions are ``size`` long: the first rows, repeated."""
    changed = []
    for original, dynamic in zip(inputs, dimensions, strict=True):
        longer = original
        for dimension in dynamic or ():
            longer = longer.index_select(dimension, torch.arange(size) % original.shape[dimension])
        changed.append(longer)
    return tuple(changed)
