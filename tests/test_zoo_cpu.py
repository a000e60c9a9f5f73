"""Every zoo model through target cpu, against eager; dynamic models at other sizes than those they were exported with."""

from __future__ import annotations

import pytest
from zoo_on_target import MODELS, check, check_sizes

from mlirstack import api, zoo
from mlirstack.compare.accuracy import call, compare_answers, reference

pytestmark = pytest.mark.portable


@pytest.mark.parametrize("name", MODELS)
def test_zoo_model_on_cpu(name: str) -> None:
    check(name, "cpu")


@pytest.mark.parametrize("name", zoo.names("dynamic"))
def test_dynamic_model_on_cpu_at_other_sizes(name: str) -> None:
    check_sizes(name, "cpu", (2, 7, 19))


@pytest.mark.parametrize("name", ["mlp_ragged", "residual_block", "gpt2_like", "softmax"])
def test_compiled_once_and_called_with_fresh_inputs(name: str) -> None:
    model = zoo.get(name)
    compiled = api.compile(model.module, model.inputs, target="cpu")
    for seed in (1, 2):
        inputs = model.make_inputs(seed)
        accuracy = compare_answers(call(compiled, inputs), reference(model.module, inputs))
        assert accuracy.ok, f"seed {seed}: {accuracy.reason}"
