"""``explain``: what torch.compile does to a function, from one compilation with caches off and some timed calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from mlirstack.compare.inductor import start_up, unavailable
from mlirstack.compare.timing import Effort, torch_threads
from mlirstack.dynamo.explain.breaks import graph_breaks
from mlirstack.dynamo.explain.capture import Call, Capture, Function, call_with, capture, quiet
from mlirstack.dynamo.explain.cost import RunTimes, cost_shares, run_times
from mlirstack.dynamo.explain.doctor import diagnose
from mlirstack.dynamo.explain.explanation import Explanation, Optimizations
from mlirstack.dynamo.explain.graphs import Graph, graphs_of
from mlirstack.dynamo.explain.kernels import GeneratedModule, modules_of
from mlirstack.dynamo.explain.optimizations import (
    ConstantFolding,
    DeadCode,
    constant_folding,
    dead_code,
    fusion_of,
    memory_of,
    parameters_of,
)
from mlirstack.dynamo.explain.own_pipeline import OwnPipeline, measure_own_pipeline
from mlirstack.dynamo.explain.recompiles import recompilations
from mlirstack.dynamo.explain.shape_lab import ShapeLab, inputs_of_shapes, shape_lab
from mlirstack.dynamo.explain.stages import compile_stages
from mlirstack.dynamo.explain.trace import Trace
from mlirstack.errors import MlirstackError
from mlirstack.frontend.export import export

_EFFORT = Effort(seconds=0.3, min_samples=5, max_samples=50)


def explain(
    function: Function,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    backward: bool = False,
    time: bool = True,
    own_pipeline: bool = True,
    threads: int = 1,
    shapes: Sequence[Mapping[int, tuple[int, ...]]] = (),
    after: tuple[Function, Sequence[Any]] | None = None,
    tell: Callable[[str], None] = lambda doing: None,
) -> Explanation:
    """What torch.compile does to ``function(*args)``: graphs, breaks, recompilations, kernels, and what to do about each.

    It is called twice, so that what changes between two calls shows; without ``backward`` under ``torch.no_grad()``, with
    it followed by a backward pass from the sum of the results.  ``time`` measures run times and the cost of breaks;
    ``own_pipeline`` lowers a module for targets cpu and cuda, too; ``threads`` are torch's; ``shapes`` (for each call,
    shapes by the number of the argument) are for the recompile lab; ``after`` is a rewritten version with its arguments.
    Forgets what torch.compile had compiled before in this process.  Raises :class:`UsageError` where the function raises in
    eager; what compiling raises is in the result.

    >>> report = explain(model, x)
    >>> print(report); report.breaks[0].found.line; report.kernels[0].fused_ops
    """
    name = name or str(getattr(function, "__name__", type(function).__name__))
    keywords = dict(kwargs or {})
    notes: list[str] = []
    tell("starting torch.compile")
    reason = unavailable()
    if reason is None:
        start_up()
    else:
        notes.append(f"no kernels: Inductor cannot generate code here ({reason})")
    call = call_with(args, keywords, backward=backward)
    tell("compiling")
    with torch_threads(threads):
        found = capture(function, [call, call], generate_code=reason is None)
        tell("measuring")
        explanation = explain_capture(found, name, notes=notes, time=time and reason is None, timed_call=call)
    own: OwnPipeline | None = None
    if own_pipeline:
        tell("lowering with mlirstack")
        own, why_not = _own(function, args, keywords, name)
        explanation = replace(explanation, notes=(*explanation.notes, *([why_not] if why_not else [])))
    lab: ShapeLab | None = None
    if shapes:
        tell("recompile lab")
        lab = shape_lab(function, [args, *inputs_of_shapes(args, shapes)])
    other: Explanation | None = None
    if after is not None:
        tell("the rewritten version")
        other = explain(
            after[0], *after[1], backward=backward, time=time, own_pipeline=False, threads=threads, name=f"{name}, rewritten"
        )
    return replace(explanation, own=own, lab=lab, after=other)


def explain_capture(
    found: Capture, name: str, *, notes: list[str], time: bool, timed_call: Call | None = None
) -> Explanation:
    """The parts that come from one capture; ``time`` runs the compiled function further."""
    breaks = graph_breaks(found.trace, failed=found.error is not None)
    shares, outside = cost_shares(found, breaks) if time else ({}, None)
    times: RunTimes | None = None
    if time and timed_call is not None:
        times = run_times(found, breaks, timed_call, outside, effort=_EFFORT)
    error = str(found.error).strip().partition("\n")[0] if found.error is not None else ""
    explanation = explain_trace(found.trace, name, error=error)
    return replace(explanation, breaks=diagnose(breaks, shares), times=times, notes=(*notes, *explanation.notes))


def explain_trace(trace: Trace, name: str, *, error: str = "") -> Explanation:
    """What a trace alone says, a recorded one as well: all but times, costs and mlirstack's own pipeline."""
    graphs, modules = tuple(graphs_of(trace)), modules_of(trace)
    return Explanation(
        name=name,
        torch=trace.torch,
        graph_count=sum(graph.step == "dynamo" for graph in graphs),
        graphs=graphs,
        breaks=diagnose(graph_breaks(trace, failed=bool(error)), {}),
        recompiles=recompilations(trace),
        stages=compile_stages(trace, graphs),
        modules=modules,
        optimizations=_optimizations(graphs, modules),
        own=None,
        times=None,
        triton=None,
        lab=None,
        after=None,
        error=error,
        notes=_notes(trace, graphs, modules),
    )


def _notes(trace: Trace, graphs: tuple[Graph, ...], modules: tuple[GeneratedModule, ...]) -> tuple[str, ...]:
    """What is in the trace and could not be read."""
    unread = [f"{graph.compile_id} {graph.step}" for graph in graphs if not graph.readable]
    unread += [
        f"{module.compile_id} generated code" for module in modules if not module.kernels and "def call(" not in module.text
    ]
    return tuple(f"{what}: torch {trace.torch} writes it in a form that is not known here" for what in unread)


def _optimizations(graphs: tuple[Graph, ...], modules: tuple[GeneratedModule, ...]) -> Optimizations | None:
    if not modules or not all(graph.readable for graph in graphs):
        return None  # numbers of a part would pass for those of the whole
    foldings, dead = [], []
    for compile_id in dict.fromkeys(module.compile_id for module in modules):
        steps = {graph.step: graph for graph in graphs if graph.compile_id == compile_id}
        compiled = [m.graph for m in modules if m.compile_id == compile_id and m.graph is not None]
        captured, before = steps.get("dynamo"), _decomposed(steps, len(compiled))
        if captured is None or before is None or not compiled:
            continue
        foldings.append(constant_folding(before, compiled, parameters_of(captured, before)))
        dead.append(dead_code(captured, before, compiled))
    return Optimizations(
        fusion_of(modules),
        ConstantFolding(
            tuple(node for one in foldings for node in one.folded),
            sum(one.kept for one in foldings),
            sum(one.parameters_only for one in foldings),
        ),
        DeadCode(
            sum(one.nodes_before for one in dead),
            sum(one.nodes_after for one in dead),
            tuple(node for one in dead for node in one.unused),
            tuple(node for one in dead for node in one.gone),
        ),
        tuple((f"{module.compile_id} {module.phase}", memory_of(module)) for module in modules),
    )


def _decomposed(steps: Mapping[str, Graph], modules: int) -> Graph | None:
    """What the compiled graphs came from: the joint graph for forward and backward, where both were compiled."""
    if modules > 1 and "joint" in steps:
        return steps["joint"]
    return steps.get("decomposed") or steps.get("forward") or steps.get("joint")


def _own(function: Function, args: Sequence[Any], kwargs: dict[str, Any], name: str) -> tuple[OwnPipeline | None, str]:
    if not isinstance(function, nn.Module):
        return None, "mlirstack's own pipeline: for modules only"
    try:
        with quiet():
            return measure_own_pipeline(export(function, tuple(args), kwargs, name=name)), ""
    except MlirstackError as error:
        return None, f"mlirstack's own pipeline: {error.message.partition(chr(10))[0]}"
