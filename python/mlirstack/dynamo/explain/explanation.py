"""The result of ``explain``: everything that was found, as data; and as JSON with the names of the documented interface."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mlirstack.dynamo.explain.cost import RunTimes
from mlirstack.dynamo.explain.doctor import Diagnosis
from mlirstack.dynamo.explain.graphs import Graph
from mlirstack.dynamo.explain.kernels import GeneratedModule, Kernel
from mlirstack.dynamo.explain.optimizations import ConstantFolding, DeadCode, Fusion, Memory
from mlirstack.dynamo.explain.own_pipeline import OwnPipeline
from mlirstack.dynamo.explain.recompiles import Recompile
from mlirstack.dynamo.explain.shape_lab import ShapeLab
from mlirstack.dynamo.explain.stages import CompileStages
from mlirstack.dynamo.explain.triton_code import TritonCode
from mlirstack.errors import UsageError


@dataclass(frozen=True)
class Optimizations:
    """The four optimisations over all compilations; the memory of each generated module by phase and compilation."""

    fusion: Fusion
    constant_folding: ConstantFolding
    dead_code: DeadCode
    memory: tuple[tuple[str, Memory], ...]


@dataclass(frozen=True, repr=False)
class Explanation:
    """What torch.compile did to ``name``.

    ``graphs`` holds the printed graph of each step of each compilation, ``graph_count`` counts compiled graphs (a
    recompilation makes another one).  ``error`` is what compiling raised; ``notes`` say what could not be found and why.
    """

    name: str
    torch: str
    graph_count: int
    graphs: tuple[Graph, ...]
    breaks: tuple[Diagnosis, ...]
    recompiles: tuple[Recompile, ...]
    stages: tuple[CompileStages, ...]
    modules: tuple[GeneratedModule, ...]
    optimizations: Optimizations | None
    own: OwnPipeline | None
    times: RunTimes | None
    triton: TritonCode | None
    lab: ShapeLab | None
    after: Explanation | None
    error: str
    notes: tuple[str, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of all generated modules."""
        return tuple(kernel for module in self.modules for kernel in module.kernels)

    def graph(self, step: str) -> Graph:
        """The first graph of a step ("dynamo", "joint", "decomposed", "forward", "backward", "post-grad")."""
        for graph in self.graphs:
            if graph.step == step:
                return graph
        steps = ", ".join(dict.fromkeys(graph.step for graph in self.graphs))
        raise UsageError(f"there is no graph of step '{step}'", hint=f"steps: {steps or 'none'}")

    def __repr__(self) -> str:
        from mlirstack.dynamo.explain.wording import summary

        return f"<Explanation of {self.name}: {summary(self)}>"

    def __str__(self) -> str:
        """The report for a terminal, without colours."""
        from mlirstack.dynamo.explain.terminal import as_text

        return as_text(self)

    def to_html(self) -> str:
        """The report as one self-contained page."""
        from mlirstack.dynamo.explain.html import as_html

        return as_html(self)

    def to_json(self) -> dict[str, Any]:
        """The machine-readable result."""
        return as_json(self)


def as_json(found: Explanation) -> dict[str, Any]:
    """The fields that the interface names, and beside them all others."""
    return {
        "model": found.name,
        "torch": found.torch,
        "graphs": found.graph_count,
        "breaks": [_break(diagnosis) for diagnosis in found.breaks],
        "recompiles": [asdict(recompile) for recompile in found.recompiles],
        "kernels": [_kernel(kernel) for kernel in found.kernels],
        "passes": _passes(found.optimizations),
        "own_pipeline": _without_lives(asdict(found.own)) if found.own else None,
        "stages": [asdict(stages) for stages in found.stages],
        "steps": [
            {
                "step": g.step,
                "compile_id": g.compile_id,
                "nodes": len(g.nodes),
                "computing": len(g.computing),
                "text": g.text,
            }
            for g in found.graphs
        ],
        "times": asdict(found.times) if found.times else None,
        "triton": asdict(found.triton) if found.triton else None,
        "recompile_lab": asdict(found.lab) if found.lab else None,
        "after": as_json(found.after) if found.after else None,
        "error": found.error or None,
        "notes": list(found.notes),
    }


def _break(diagnosis: Diagnosis) -> dict[str, Any]:
    found = diagnosis.found
    return {
        "reason": found.reason,
        "id": found.id,
        "explanation": found.explanation,
        "hints": list(found.hints),
        "file": found.file,
        "line": found.line,
        "source": found.source,
        "frames": [str(frame) for frame in found.frames],
        "hits": found.hits,
        "skipped": found.skipped,
        "fatal": found.fatal,
        "category": diagnosis.category,
        "action": diagnosis.action,
        "how": diagnosis.how,
        "cost_share": diagnosis.cost_share,
    }


def _kernel(kernel: Kernel) -> dict[str, Any]:
    data = asdict(kernel)
    data["lines"] = [f"{file}:{line}" for file, line in kernel.lines]
    return data


def _passes(found: Optimizations | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "fusion": asdict(found.fusion),
        "constant_folding": asdict(found.constant_folding),
        "dce": asdict(found.dead_code),
        "memory": [{"module": name, **asdict(memory)} for name, memory in found.memory],
    }


def _without_lives(own: dict[str, Any]) -> dict[str, Any]:
    """The numbers; a lifetime chart is for people."""
    if own["memory"]:
        own["memory"] = {key: value for key, value in own["memory"].items() if key != "lives"}
    return own
