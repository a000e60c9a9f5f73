"""Artifacts that another machine built, on this machine's GPU: every answer against eager in float64.

MLIRSTACK_ARTIFACTS names the directory that ``mlirstack compare MODEL --targets cuda --build-only --artifacts DIR`` filled.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mlirstack import zoo
from mlirstack.bundle.store import MANIFEST, Bundle, read_bundle
from mlirstack.compare.accuracy import call, compare_answers, moved, reference
from mlirstack.compare.compare import Candidate, compare
from mlirstack.compare.expected import judge_result, load_expected_failures
from mlirstack.frontend.references import ModelSource, load, rebuilt_parameters
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.cuda.driver import Driver
from mlirstack.targets.registry import create_target

VARIABLE = "MLIRSTACK_ARTIFACTS"
EXPECTED = load_expected_failures()


def folders() -> list[Any]:
    """One per artifact: DIR/model/target, the model's name with "-dtype" behind it where one was asked for."""
    root = os.environ.get(VARIABLE)
    if not root:
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"{VARIABLE} is not set"))]
    found = sorted(path.parent for path in Path(root).glob(f"*/cuda*/{MANIFEST}"))
    assert found, f"{VARIABLE}: no artifacts for cuda below {root}"
    return [pytest.param(folder, id=f"{folder.parent.name}/{folder.name}") for folder in found]


def source_of(folder: Path) -> ModelSource:
    """The zoo model that an artifact was built of."""
    name = json.loads((folder / MANIFEST).read_text())["model"]
    if name not in zoo.names():
        pytest.skip(f"'{name}' is not a model of the zoo")
    dtype = folder.parent.name.removeprefix(name).removeprefix("-") or None
    source = load(f"zoo:{name}", dtype=dtype)
    assert isinstance(source, ModelSource)
    return source


@pytest.mark.parametrize("folder", folders())
def test_artifacts_give_eager_s_answer(driver: Driver, folder: Path) -> None:
    source = source_of(folder)
    assert isinstance(source.model, nn.Module)
    kept: list[tuple[CompiledFunction, Bundle]] = []

    def load_artifact(module: nn.Module, inputs: tuple[Any, ...], *, target: str, **options: Any) -> Candidate:
        rebuilt = rebuilt_parameters(f"zoo:{source.name}", ModelSource(source.name, module, ()))
        bundle = read_bundle(folder, rebuilt)
        executable = create_target(target).load(bundle.artifact, bundle.signature, bundle.parameters)
        function = CompiledFunction(executable, bundle.signature, bundle.parameters)
        kept.append((function, bundle))
        return Candidate(function, bundle.info.route, device=executable.device, tf32=executable.tf32)

    report = compare(
        source.model,
        source.inputs,
        ["cuda"],
        compile_function=load_artifact,
        name=source.name,
        dynamic_shapes=source.dynamic_shapes,
    )
    verdict = judge_result(source.name, report["cuda"], EXPECTED)
    assert verdict.ok, f"{verdict.outcome}: {verdict.reason}"
    if verdict.outcome == "pass":
        function, bundle = kept[0]
        check_again(source, function, writes=bool(bundle.signature.mutations))


def check_again(source: ModelSource, function: CompiledFunction, *, writes: bool) -> None:
    """Other inputs through the same program, by launches and by a graph: nothing of an earlier call may be left."""
    if writes:
        return  # an earlier call changed the state that eager starts with
    device = function.executable.device
    for use_graph, seed in ((False, 1), (True, 2), (True, 3), (False, 3)):
        function.executable.use_graph = use_graph  # type: ignore[attr-defined]
        inputs = other_inputs(source, seed)
        expected = reference(source.model, inputs)  # type: ignore[arg-type]
        accuracy = compare_answers(call(function, moved(inputs, device)), expected, tf32=function.executable.tf32)
        assert accuracy.ok, f"{'graph' if use_graph else 'launches'}, inputs of seed {seed}: {accuracy.reason}"


def other_inputs(source: ModelSource, seed: int) -> tuple[Any, ...]:
    """Inputs of another seed, in the dtypes of the source's own."""
    made = zoo.get(source.name).make_inputs(seed)

    def like(new: Any, old: Any) -> Any:
        return new.to(old.dtype) if isinstance(new, torch.Tensor) else new

    result: tuple[Any, ...] = torch.utils._pytree.tree_map(like, tuple(made), tuple(source.inputs))
    return result
