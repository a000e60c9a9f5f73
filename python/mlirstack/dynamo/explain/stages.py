"""The three stages of torch.compile with the seconds of each: capture, AOT autograd, code generation.

torch gives the seconds of nested parts (the whole, of that the back end, of that Inductor); a stage is a difference of two.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlirstack.dynamo.explain.graphs import Graph
from mlirstack.dynamo.explain.trace import Event, Trace


@dataclass(frozen=True)
class CompileStages:
    """Seconds of one compilation, None where torch gives none.

    ``capture``: bytecode to FX, with guards; ``aot``: decompositions, joint graph and partition; ``codegen``: Inductor with
    the C++ compiler or Triton, the backward graph's in ``codegen_backward``.  ``saved`` counts the tensors that forward
    keeps for backward, ``saved_bytes`` their size.
    """

    compile_id: str
    function: str
    capture: float | None
    aot: float | None
    codegen: float | None
    codegen_backward: float | None
    guards: int | None
    saved: int | None = None
    saved_bytes: int | None = None


def compile_stages(trace: Trace, graphs: tuple[Graph, ...]) -> tuple[CompileStages, ...]:
    """One entry for each compilation that made a graph."""
    backward = {event.compile_id: event for event in trace.of("bwd_compilation_metrics")}
    captured = {graph.compile_id for graph in graphs if graph.step == "dynamo"}
    found = []
    for event in trace.of("compilation_metrics"):
        if event.compile_id not in captured:
            continue
        whole, backend = _seconds(event, "entire_frame_compile_time_s"), _seconds(event, "backend_compile_time_s")
        inductor = _seconds(event, "inductor_compile_time_s")
        after = backward.get(event.compile_id)
        saved, saved_bytes = _saved(event.compile_id or "", graphs)
        guards = event.fields.get("guard_count")
        found.append(
            CompileStages(
                event.compile_id or "",
                str(event.fields.get("co_name") or ""),
                _difference(whole, backend),
                _difference(backend, inductor),
                inductor,
                _seconds(after, "inductor_compile_time_s") if after else None,
                guards if isinstance(guards, int) else None,
                saved,
                saved_bytes,
            )
        )
    return tuple(found)


def _saved(compile_id: str, graphs: tuple[Graph, ...]) -> tuple[int | None, int | None]:
    """What the forward graph hands to the backward graph: the backward's arguments that are no tangents."""
    backward = next((g for g in graphs if g.compile_id == compile_id and g.step == "backward"), None)
    if backward is None:
        return None, None
    kept = [node for node in backward.nodes if node.is_input and not node.name.startswith("tangents")]
    sizes = [node.type.bytes if node.type else None for node in kept]
    return len(kept), None if None in sizes else sum(size or 0 for size in sizes)


def _seconds(event: Event, name: str) -> float | None:
    value = event.fields.get(name)
    return float(value) if isinstance(value, (int, float)) else None


def _difference(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else max(whole - part, 0.0)
