"""Every zoo model through target cpu, against eager; dynamic models at other sizes than those they were exported with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from zoo_on_target import MODELS, check

from mlirstack import api, zoo
from mlirstack.compare.accuracy import call, compare_answers, reference

pytestmark = pytest.mark.portable


@pytest.mark.parametrize("name", MODELS)
def test_zoo_model_on_cpu(name: str) -> None:
    check(name, "cpu")


def resized(inputs: tuple[Any, ...], dimensions: tuple[dict[int, Any], ...], size: int) -> tuple[Any, ...]:
    """Inputs whose dynamic dimensions are ``size`` long: the first rows, repeated."""
    changed = []
    for original, dynamic in zip(inputs, dimensions, strict=True):
        longer = original
        for dimension in dynamic:
            longer = longer.index_select(dimension, torch.arange(size) % original.shape[dimension])
        changed.append(longer)
    return tuple(changed)


@pytest.mark.parametrize("name", zoo.names("dynamic"))
def test_dynamic_model_on_cpu_at_other_sizes(name: str) -> None:
    model = zoo.get(name)
    compiled = api.compile(model.module, model.inputs, dynamic_shapes=model.dynamic_shapes, target="cpu")
    for size in (2, 7, 19):
        inputs = resized(model.inputs, model.dynamic_shapes or (), size)
        accuracy = compare_answers(call(compiled, inputs), reference(model.module, inputs))
        assert accuracy.ok, f"size {size}: {accuracy.reason}"


@pytest.mark.parametrize("name", ["mlp_ragged", "residual_block", "gpt2_like", "softmax"])
def test_compiled_once_and_called_with_fresh_inputs(name: str) -> None:
    model = zoo.get(name)
    compiled = api.compile(model.module, model.inputs, target="cpu")
    for seed in (1, 2):
        inputs = model.make_inputs(seed)
        accuracy = compare_answers(call(compiled, inputs), reference(model.module, inputs))
        assert accuracy.ok, f"seed {seed}: {accuracy.reason}"
