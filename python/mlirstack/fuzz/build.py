"""From specs to what compilers take: one module for a graph or for several at once, and its inputs.

Several graphs in one module share nothing but the compilation, whose fixed costs are most of the time for small graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from mlirstack.fuzz.operations import evaluate
from mlirstack.fuzz.spec import GraphSpec
from mlirstack.fuzz.values import tensor_of


@dataclass(frozen=True)
class Built:
    """A module that returns a tuple for each graph, and the tensors to call it with."""

    module: fx.GraphModule
    inputs: tuple[Tensor, ...]


def build(specs: Sequence[GraphSpec]) -> Built:
    """The module of ``specs``: inputs in order, parameters as buffers, a tuple of outputs for each graph."""
    root, graph = nn.Module(), fx.Graph()
    tensors = [{spec.name: tensor_of(spec) for spec in graph_spec.inputs} for graph_spec in specs]
    names = _prefixes(len(specs))
    given: list[Tensor] = []
    environments: list[dict[str, fx.Proxy]] = [{} for _ in specs]
    tracer = fx.proxy.GraphAppendingTracer(graph)
    for prefix, spec, values, environment in zip(names, specs, tensors, environments, strict=True):
        for value in spec.inputs:
            if not value.parameter:
                given.append(values[value.name])
                environment[value.name] = fx.Proxy(graph.placeholder(prefix + value.name), tracer)
    for prefix, spec, values, environment in zip(names, specs, tensors, environments, strict=True):
        for value in spec.inputs:
            if value.parameter:
                root.register_buffer(prefix + value.name, values[value.name])
                environment[value.name] = fx.Proxy(graph.get_attr(prefix + value.name), tracer)
    outputs = []
    for spec, environment in zip(specs, environments, strict=True):
        for call in spec.calls:
            environment[call.name] = evaluate(call, environment)
        outputs.append(tuple(environment[name].node for name in spec.outputs))
    graph.output(tuple(outputs))
    module = fx.GraphModule(root, graph, "Graph")
    return Built(module.eval(), tuple(given))


def _prefixes(count: int) -> list[str]:
    return [""] if count == 1 else [f"g{number}_" for number in range(count)]


def run(function: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], ...]:
    """One call without gradients."""
    with torch.no_grad():
        result: tuple[tuple[Tensor, ...], ...] = function(*inputs)
    return result
