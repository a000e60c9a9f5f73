"""The zoo itself: listing without torch, every model runs in eager, seeds decide weights and inputs."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch.utils import _pytree as pytree

from mlirstack import zoo
from mlirstack.errors import UsageError

QUICK = [name for name in zoo.names() if name not in zoo.HEAVY]


def run(model: zoo.ZooModel) -> list[object]:
    with torch.no_grad():
        return pytree.tree_leaves(copy.deepcopy(model.module)(*copy.deepcopy(model.inputs)))


def test_listing_imports_no_torch() -> None:
    code = "import sys; from mlirstack import zoo; zoo.names(); zoo.families(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_names_are_unique_and_every_family_registers_what_the_catalog_lists() -> None:
    names = zoo.names()
    assert len(names) == len(set(names)) >= 50
    for family, members in zoo.families().items():
        assert zoo.names(family) == list(members)
        for name, doc in members.items():
            assert zoo.family_of(name) == family
            assert doc and not doc.endswith(".")


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="tiny_mpl") as error:
        zoo.get("tiny_mpl")
    assert "tiny_mlp" in str(error.value.hint)


@pytest.mark.parametrize("name", QUICK)
def test_model_runs_and_its_seed_decides(name: str) -> None:
    state = torch.get_rng_state()
    model, again = zoo.get(name), zoo.get(name)

    assert torch.equal(torch.get_rng_state(), state)
    assert not model.module.training
    first, second = run(model), run(again)
    assert len(first) == len(second) > 0
    for left, right in zip(first, second, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", QUICK)
def test_other_seed_gives_other_inputs_of_the_same_kind(name: str) -> None:
    model = zoo.get(name)
    old, new = pytree.tree_leaves(model.inputs), pytree.tree_leaves(model.make_inputs(1))

    assert len(old) == len(new)
    drawn = [(a, b) for a, b in zip(old, new, strict=True) if isinstance(a, torch.Tensor)]
    for a, b in drawn:
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
    if name != "special_values":  # given values, not drawn
        assert any(not torch.equal(a, b) for a, b in drawn)


@pytest.mark.parametrize("name", [name for name in QUICK if name != "special_values"])
def test_answers_are_finite(name: str) -> None:
    for leaf in run(zoo.get(name)):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            assert torch.isfinite(leaf).all()


def test_weights_follow_the_seed() -> None:
    weights = [zoo.get("tiny_mlp_small", seed=seed).module.get_parameter("fc1.weight") for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_tiny_mlp_is_the_founding_model() -> None:
    model = zoo.get("tiny_mlp")
    (x,) = model.inputs
    assert isinstance(x, torch.Tensor)
    assert x.shape == (512, 2048) and x.dtype == torch.float32
    weights = dict(model.module.named_parameters())
    assert weights["fc1.weight"].shape == weights["fc2.weight"].shape == (2048, 2048)
    rows = x[:4]
    h = rows @ weights["fc1.weight"].T + weights["fc1.bias"]
    expected = ((h.clamp(min=0) / (1 + torch.exp(-h))) @ weights["fc2.weight"].T + weights["fc2.bias"]).sum(-1)
    with torch.no_grad():
        torch.testing.assert_close(model.module(rows), expected, rtol=1e-4, atol=1e-4)


def test_resnet18_has_the_published_number_of_parameters() -> None:
    parameters = sum(weight.numel() for weight in zoo.get("resnet18_64").module.parameters())
    assert parameters == 11_689_512  # torchvision's count for ResNet-18 with 1000 classes


def test_normalization_layers_are_not_trivial() -> None:
    layer = zoo.get("batch_norm2d").module
    assert (layer.get_buffer("running_mean") != 0).all()
    assert (layer.get_buffer("running_var") != 1).all()


@pytest.mark.parametrize("name", zoo.names("dynamic"))
def test_dynamic_models_export_with_their_dimensions(name: str) -> None:
    model = zoo.get(name)
    exported = torch.export.export(model.module, model.inputs, dynamic_shapes=model.dynamic_shapes)
    assert exported.range_constraints


def test_exported_operations_point_at_their_own_line() -> None:
    model = zoo.get("silu_mish")
    exported = torch.export.export(model.module, model.inputs)
    traces = [node.meta["stack_trace"] for node in exported.graph.nodes if node.op == "call_function"]
    assert traces and all("F.silu(x) + F.mish(x)" in trace for trace in traces)
