"""Parsers of ``explain`` on recorded traces, one file for each version of torch (``explain_traces/record.py`` makes them).

Counts must be those that were written down beside each trace; a field that a version does not give must be said to be
missing, and never a number.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mlirstack.dynamo.explain.explain import explain_trace
from mlirstack.dynamo.explain.explanation import Explanation
from mlirstack.dynamo.explain.kernels import modules_of
from mlirstack.dynamo.explain.trace import Event, Trace, trace_from_data

FILES = sorted((Path(__file__).parent / "explain_traces").glob("torch-*.json"))
# Bytes of the network's tensors, float32: x [16, 32], weights [64, 32] and [8, 64], hidden [16, 64], result [16, 8].
X, W1, B1, H, W2, B2, Y = (4 * n for n in (16 * 32, 64 * 32, 64, 16 * 64, 8 * 64, 8, 16 * 8))


@cache
def recorded(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())["programs"]
    return found


def programs() -> list[Any]:
    return [
        pytest.param(file, name, id=f"{file.stem}-{name}")
        for file in FILES
        for name in recorded(file)
        if not name.startswith("network")
    ]


def networks() -> list[Any]:
    return [
        pytest.param(file, name, id=f"{file.stem}-{name}") for file in FILES for name in recorded(file) if "network" in name
    ]


def explanation(file: Path, name: str) -> tuple[Explanation, dict[str, Any]]:
    entry = recorded(file)[name]
    error = "raised" if entry["right"].get("raises") else ""
    return explain_trace(trace_from_data(entry["trace"]), name, error=error), entry["right"]


def test_some_version_is_recorded() -> None:
    """The tests below run for each file; without files none would."""
    assert "torch-2.13" in {file.stem for file in FILES}


@pytest.mark.parametrize(("file", "name"), programs())
def test_counts_of_recorded_programs(file: Path, name: str) -> None:
    """Graphs, lines and categories of breaks, kinds of recompilations."""
    found, right = explanation(file, name)
    assert found.graph_count == right["graphs"]
    assert sorted([one.found.line, one.category] for one in found.breaks) == right["breaks"]
    assert [one.kind for one in found.recompiles] == right["changed"]
    for one in found.breaks:
        assert one.found.file.endswith("tests/explain_programs.py")
        assert one.found.reason != "no reason given"
    for recompile in found.recompiles:
        assert recompile.reason


@pytest.mark.parametrize(("file", "name"), networks())
def test_network_steps_and_kernels(file: Path, name: str) -> None:
    """A training call and an inference call: all steps are there; what each kernel holds and moves is as counted by hand."""
    found, _ = explanation(file, name)
    steps = {graph.step for graph in found.graphs}
    assert steps == {"dynamo", "joint", "forward", "backward", "decomposed", "post-grad"}
    assert {module.phase for module in found.modules} == {"forward", "backward", "inference"}
    inference = next(module for module in found.modules if module.phase == "inference")
    products = [kernel for kernel in inference.kernels if kernel.kind == "library"]
    biased = "addmm" in products[0].name  # else the bias is added in the fused kernel behind it
    assert products[0].bytes == X + W1 + H + (B1 if biased else 0)
    fused = [kernel for kernel in inference.kernels if kernel.kind != "library"]
    assert {"relu", "sigmoid", "mul"} <= set(fused[0].fused_ops)
    assert fused[0].bytes == 2 * H + (0 if biased else B1)
    # Triton has one op for the maximum and the sum of a softmax, C++ has two.
    online = "prepare_softmax_online" in fused[-1].fused_ops
    assert ({"exp"} if online else {"amax", "exp", "sum"}) <= set(fused[-1].fused_ops)
    assert all(kernel.source for kernel in fused)


def test_kernels_of_a_backward_graph_hold_its_nodes() -> None:
    """Recorded with torch 2.13: nodes and lines of the user's are known of each kernel, as they are of forward kernels."""
    found, _ = explanation(FILES[-1], "network_cpu")
    (backward,) = (module for module in found.modules if module.phase == "backward")
    assert backward.graph is not None
    held = {node for kernel in backward.kernels for node in kernel.nodes}
    assert all(kernel.nodes for kernel in backward.kernels)
    assert {node.name for node in backward.graph.computing} <= held
    assert all(file.endswith("record.py") for kernel in backward.kernels for file, _ in kernel.lines)
    assert any(kernel.lines for kernel in backward.kernels)


@pytest.mark.parametrize(("file", "name"), networks())
def test_network_optimizations(file: Path, name: str) -> None:
    """Fusion makes fewer kernels that move less; 2 * ones is folded; memory of the hidden layer is used again."""
    found, _ = explanation(file, name)
    passes = found.optimizations
    assert passes is not None
    assert passes.fusion.kernels_with == len(found.kernels) < passes.fusion.kernels_without
    assert passes.fusion.bytes_with is not None
    assert passes.fusion.bytes_without is not None
    assert passes.fusion.bytes_with < passes.fusion.bytes_without
    assert [node.op for node in passes.constant_folding.folded].count("mul") == 2  # of the training and inference graphs
    memory = {title.split()[1]: memory for title, memory in passes.memory}["inference"]
    assert memory.without is not None
    assert memory.with_reuse is not None
    assert H <= memory.with_reuse < memory.without
    assert memory.without >= 2 * H + Y


@pytest.mark.parametrize(("file", "name"), networks())
def test_network_stages(file: Path, name: str) -> None:
    """Each stage has taken time; forward keeps x, two hidden tensors' worth and the result for backward."""
    found, _ = explanation(file, name)
    training = next(stages for stages in found.stages if stages.codegen_backward is not None)
    assert training.capture is not None
    assert training.aot is not None
    assert training.codegen is not None
    assert min(training.capture, training.aot, training.codegen) > 0
    assert training.saved is not None
    assert training.saved >= 4
    assert training.saved_bytes is not None
    assert training.saved_bytes >= X + H + W2 + Y


def test_missing_fields_are_said_to_be_missing() -> None:
    """Without the node mapping, metrics and values: ops come from names, seconds are None, values are "not given"."""
    entry = recorded(FILES[-1])["network_cpu"]
    whole = trace_from_data(entry["trace"])
    kept = tuple(e for e in whole.events if not e.kind.startswith("inductor_provenance") and "metrics" not in e.kind)
    bare = replace(whole, events=kept)
    found = explain_trace(bare, "bare")
    assert found.stages == ()
    assert [k.name for k in found.kernels] == [k.name for k in explain_trace(whole, "whole").kernels]
    relu = next(kernel for kernel in found.kernels if "relu" in kernel.name and kernel.phase == "inference")
    assert set(relu.fused_ops) == {"mul", "relu", "sigmoid"}
    assert relu.nodes == ()
    guard = Trace("2.99.1", (Event("recompile_reasons", "0/1", 0, {}, ""),))
    (blank,) = explain_trace(guard, "blank").recompiles
    assert blank.reason == blank.file == blank.function == "not given by torch 2.99.1"


def test_unreadable_generated_code_is_no_kernel() -> None:
    """C++ wrappers and other languages are kept as text, and counted as nothing."""
    (module,) = modules_of(Trace("2.99", (Event("inductor_output_code", "0/0", 0, {}, "#include <torch/csrc/x.h>\n{"),)))
    assert module.kernels == ()
    assert module.text.startswith("#include")


def test_unreadable_graph_gives_no_numbers() -> None:
    """It is kept as text, a note says so, and nothing is measured of what is left."""
    whole = trace_from_data(recorded(FILES[-1])["network_cpu"]["trace"])
    events = tuple(replace(e, payload="graph():\n  %x = …") if e.kind == "aot_forward_graph" else e for e in whole.events)
    found = explain_trace(replace(whole, events=events), "strange")
    (unread,) = (graph for graph in found.graphs if not graph.readable)
    assert (unread.step, unread.nodes) == ("forward", ())
    assert found.optimizations is None
    assert found.notes == (f"0/0 forward: torch {whole.torch} writes it in a form that is not known here",)
