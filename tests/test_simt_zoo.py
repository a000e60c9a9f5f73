"""Every zoo model lowered for CUDA: its kernels executed by the SIMT emulator, against eager, and its plan; no GPU."""

from __future__ import annotations

import pytest
from plan_on_simt import check_plan
from simt.models import emulated
from zoo_on_target import EXPECTED, resized

from mlirstack import api, zoo
from mlirstack.compare.accuracy import call, compare_answers, reference
from mlirstack.passes.cuda.plan_writer import plan_of

pytestmark = [pytest.mark.portable, pytest.mark.usefixtures("without_tf32")]

NAMES = [name for name in zoo.names() if name not in zoo.HEAVY and (name, "cuda") not in EXPECTED]


@pytest.mark.parametrize("name", NAMES)
def test_zoo_model_in_the_emulator(name: str) -> None:
    model = zoo.get(name)
    expected = reference(model.module, model.inputs)  # before the call, which may write the model's buffers
    lowering = api.lower(model.module, model.inputs, dynamic_shapes=model.dynamic_shapes, target="cuda", to="gpu")
    accuracy = compare_answers(call(emulated(lowering), model.inputs), expected)
    assert accuracy.ok, accuracy.reason
    check_plan(plan_of(lowering.payload))


@pytest.mark.parametrize("name", [name for name in zoo.names("dynamic") if name in NAMES])
def test_dynamic_model_at_other_sizes(name: str) -> None:
    model = zoo.get(name)
    lowering = api.lower(model.module, model.inputs, dynamic_shapes=model.dynamic_shapes, target="cuda", to="gpu")
    function = emulated(lowering)
    for size in (2, 7, 19):
        inputs = resized(model.inputs, model.dynamic_shapes or (), size)
        accuracy = compare_answers(call(function, inputs), reference(model.module, inputs))
        assert accuracy.ok, f"size {size}: {accuracy.reason}"
