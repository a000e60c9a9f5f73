"""One graph of AOTAutograd compiled by a target's stage table, called as AOTAutograd calls its graphs; and the list of all.

What comes in is a functional graph with fake tensors; what goes out takes a list of tensors and integers and returns a list
of tensors, integers and Nones, with the strides that eager's would have.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from mlirstack.dynamo.backend.graph_program import GraphOutput, GraphProgram, SymbolSource, graph_program
from mlirstack.dynamo.backend.options import BackendOptions
from mlirstack.dynamo.backend.watched import WatchedProgram
from mlirstack.errors import MlirstackError, TargetUnavailableError, UnsupportedError
from mlirstack.lowering import LowerOptions, build_program
from mlirstack.targets.base import Executable
from mlirstack.targets.registry import create_target

GraphFunction = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class CompiledGraph:
    """What became of one graph.

    ``kind``: "forward", "backward" or "inference".  ``status``: "compiled", or "fallback" with the ``reason``.
    ``operations`` counts the graph's calls; ``seconds`` is the time to compile it, or to find out that it cannot be.
    """

    name: str
    kind: str
    status: str
    target: str
    operations: int
    seconds: float
    route: str | None = None
    reason: str | None = None
    error: MlirstackError | None = None


_GRAPHS: list[CompiledGraph] = []
_numbers = itertools.count()


def graphs() -> tuple[CompiledGraph, ...]:
    """All graphs that the backend was given since the start or the last :func:`clear_graphs`, in order."""
    return tuple(_GRAPHS)


def clear_graphs() -> None:
    """Forget the graphs that :func:`graphs` lists; what was compiled stays in use."""
    _GRAPHS.clear()


def compile_graph(module: fx.GraphModule, kind: str, options: BackendOptions) -> GraphFunction:
    """Compile ``module`` and list it in :func:`graphs`; raises :class:`MlirstackError` (listed too) where it cannot be."""
    name = f"{next(_numbers):03d}-{kind}"
    operations = sum(node.op == "call_function" for node in module.graph.nodes)
    started = time.perf_counter()
    target = options.target or "cpu"
    try:
        target = options.target or _device_of(module)
        is_watched = kind == "inference" and options.parameters == "watched" and target.partition(":")[0] == "cpu"
        described = graph_program(module, name, _static_inputs() if is_watched else ())
        with _disable_current_modes():  # AOTAutograd compiles under its fake tensors; loading makes real ones
            function, route = _load(described, target, options)
    except MlirstackError as error:
        seconds = time.perf_counter() - started
        _GRAPHS.append(CompiledGraph(name, kind, "fallback", target, operations, seconds, reason=why(error), error=error))
        raise
    _GRAPHS.append(CompiledGraph(name, kind, "compiled", target, operations, time.perf_counter() - started, route))
    return function


def _static_inputs() -> frozenset[int]:
    """Positions of the inputs that torch knows as parameters and buffers, without those that the graph writes to."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context else None
    if metadata is None:
        return frozenset()
    written = {at for at, info in enumerate(metadata.input_info) if info.mutates_data or info.mutates_metadata}
    return frozenset(metadata.static_input_indices) - written


def why(error: MlirstackError) -> str:
    """The reason of a fallback in one line: the first operations that are to blame, or the message."""
    ops = error.ops if isinstance(error, UnsupportedError) else ()
    if not ops:
        return str(error).strip().splitlines()[0]
    return "; ".join(f"{op.op} {op.reason}" for op in ops[:3]) + (f"; and {len(ops) - 3} more" if len(ops) > 3 else "")


def _device_of(module: fx.GraphModule) -> str:
    """The target for the device that tensors of ``module`` are on: the GPU where some are on the host as well."""
    values = (node.meta.get("val") for node in module.graph.nodes)
    devices = {value.device.type for value in values if isinstance(value, torch.Tensor)}
    others = devices - {"cpu", "cuda"}
    if others:
        raise TargetUnavailableError(f"there is no target for device '{min(others)}'")
    return "cuda" if "cuda" in devices else "cpu"


def _load(described: GraphProgram, target: str, options: BackendOptions) -> tuple[GraphFunction, str]:
    if all(output.result is None for output in described.outputs):
        return _Call(described, None), "none"
    reason = create_target(target, threads=options.threads).available()
    if reason:
        raise TargetUnavailableError(f"target '{target}': {reason}")
    program = described.program
    dump = options.dump / program.name if options.dump else None
    lowering, artifact, _ = build_program(program, LowerOptions(target, options.route, options.threads, dump=dump))
    signature, parameters = program.signature, program.parameters

    def load(watched: Mapping[str, torch.Tensor]) -> Executable:
        return lowering.target.load(artifact, signature, {**parameters, **watched})

    if described.watched:
        return _Call(described, WatchedProgram(load, parameters)), lowering.route
    return _Call(described, load({})), lowering.route


class _Call:
    """Calls a loaded program as the graph is called: ``inputs`` is a list, which is emptied, as AOTAutograd wants it.

    Inputs go to the device of the target, and results to where eager has them, where these are not the same.
    """

    def __init__(self, described: GraphProgram, executable: Executable | WatchedProgram | None) -> None:
        self._boxed_call = True  # of the object: wrappers copy what stands in its __dict__
        self._executable = executable
        self._inputs = described.inputs
        self._watched = described.watched
        self._outputs = described.outputs
        self._device = torch.device(executable.device if executable is not None else "cpu")
        self._brought = [at for at, device in enumerate(described.given_on) if device not in (None, self._device)]
        self._sent = [(at, device) for at, device in enumerate(described.wanted_on) if device != self._device]
        self._strided = [(i, *layout) for i, layout in enumerate(described.strides) if layout is not None]
        self._symbols = described.symbols if _needs_symbols(described) else ()

    def __call__(self, inputs: list[Any]) -> list[Any]:
        values = _symbol_values(self._symbols, inputs) if self._symbols else {}
        results: list[Any] = []
        if self._executable is not None:
            given = [inputs[position] for position in self._inputs]
            for at in self._brought:
                given[at] = given[at].to(self._device)
            if isinstance(self._executable, WatchedProgram):
                given_parameters = {name: inputs[position] for name, position in self._watched.items()}
                results = self._executable.run(given_parameters, given)
            else:
                results = self._executable.run(given)
        for index, device in self._sent:
            results[index] = results[index].to(device)
        for index, sizes, strides in self._strided:
            shape, stride = (tuple(_number(n, values) for n in numbers) for numbers in (sizes, strides))
            results[index] = results[index].new_empty_strided(shape, stride).copy_(results[index])
        outputs = [_output(output, inputs, results, values) for output in self._outputs]
        inputs.clear()
        return outputs


def _needs_symbols(described: GraphProgram) -> bool:
    """Does anything outside the program depend on a size?"""
    outside = [output.value for output in described.outputs]
    outside += [number for layout in described.strides if layout for numbers in layout for number in numbers]
    return any(getattr(value, "free_symbols", None) for value in outside)


def _symbol_values(symbols: Sequence[SymbolSource], inputs: Sequence[Any]) -> dict[Any, int]:
    return {
        source.symbol: inputs[source.position] if source.axis is None else inputs[source.position].shape[source.axis]
        for source in symbols
    }


def _output(output: GraphOutput, inputs: Sequence[Any], results: Sequence[Any], values: dict[Any, int]) -> Any:
    if output.result is not None:
        value = results[output.result]
    elif output.input is not None:
        value = inputs[output.input]
    else:
        return _number(output.value, values)
    for step in output.views:
        value = step.target(value, *step.arguments, **step.keywords)
    return value


def _number(value: Any, values: dict[Any, int]) -> Any:
    """A number, or a sympy expression evaluated."""
    return int(value.subs(values)) if hasattr(value, "free_symbols") else value
