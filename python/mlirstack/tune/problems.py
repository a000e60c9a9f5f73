"""The kernels of a model as tuning problems: what is computed, all schedules worth timing, and a program of its own.

A model is lowered up to the point where its kernels have been formed.  Each distinct kernel of ``@main`` that can be written
in more than one way becomes a module: the kernel function, and a ``@main`` that allocates its result and calls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.errors import UsageError
from mlirstack.frontend.program import ENTRY, Program
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import function, functions, walk
from mlirstack.ir.text import module_text
from mlirstack.lowering import LowerOptions, lower_program
from mlirstack.passes.cuda.dispatches import FormDispatches
from mlirstack.passes.functions import defining_op
from mlirstack.pipeline.runner import Runner
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.schedules.cuda import tuned
from mlirstack.schedules.cuda.device import Device, device_of
from mlirstack.schedules.cuda.emitter import Choice, candidates
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.kernel import SCHEDULE
from mlirstack.targets.registry import create_target

_FLATTENED, _DISPATCHES = "flattened", "dispatches"  # stages of the pipeline


@dataclass(frozen=True)
class Problem:
    """``key`` and ``bucket`` as the tuning table has them; ``module`` is MLIR text at level linalg.

    ``choices`` are the schedules to try, the one that is taken without measurements first.  ``model`` is where the kernel
    was found first.
    """

    name: str
    key: str
    bucket: str
    model: str
    module: str
    choices: tuple[Choice, ...]


def find_problems(program: Program, target: str) -> list[Problem]:
    """The problems of a program for a target such as ``cuda:sm_90a``: one for each distinct kernel of static shape.

    Raises what lowering raises, and :class:`UsageError` for other targets and for programs below linalg.
    """
    device = device_of(architecture(target))
    module = _dispatched(program, target)
    found: dict[str, Problem] = {}
    with module.context, ir.Location.unknown():
        for call, kernel in _kernels(module):
            problem = _problem(program.name, call, kernel, device)
            if problem is not None:
                found.setdefault(problem.key, problem)
    return list(found.values())


def architecture(target: str) -> str:
    """``sm_90a`` of ``cuda:sm_90a``."""
    name, _, arch = target.partition(":")
    if name != "cuda":
        raise UsageError(f"kernels of target '{name}' are not tuned", hint="--target cuda:sm_90a")
    return device_of(arch or None).arch


def remaining(target: str) -> Pipeline:
    """The stages that take a module of kernels, scheduled but otherwise as they were formed, to a launch plan."""
    pipeline = create_target(target).pipeline("linalg", "linalg")
    _, after = _split(pipeline)
    return Pipeline(pipeline.name, (after, *pipeline.slice(first=_DISPATCHES).stages))


def select(choices: tuple[Choice, ...], count: int) -> tuple[Choice, ...]:
    """At most ``count`` choices: the best one of every emitter, then the first of those that are left; in their order."""
    best = {choice.name: choice for choice in reversed(choices)}.values()
    taken = [choice for choice in choices if choice in best][:count]
    taken += [choice for choice in choices if choice not in taken][: count - len(taken)]
    return tuple(choice for choice in choices if choice in taken)


def _dispatched(program: Program, target: str) -> Any:
    """The module right after its kernels were formed, before anything else changes them."""
    lowering = lower_program(program, LowerOptions(target, to=_FLATTENED))
    before, _ = _split(lowering.target.pipeline(lowering.route, program.level))
    return Runner().run(Pipeline("tune", (before,)), lowering.payload)


def _split(pipeline: Pipeline) -> tuple[Stage, Stage]:
    """The stage that forms kernels, up to that step, and what follows in it."""
    stage = pipeline.stages[pipeline.index(_DISPATCHES)]
    end = next(i for i, step in enumerate(stage.steps, 1) if isinstance(step, FormDispatches))
    return replace(stage, steps=stage.steps[:end]), replace(stage, steps=stage.steps[end:])


def _kernels(module: Any) -> Iterator[tuple[Any, Any]]:
    """Calls of kernels in ``@main``, each with the kernel; what ``@prepare`` runs once is not worth tuning."""
    kernels = {_name(f): f for f in functions(module) if KERNEL_ATTRIBUTE in f.attributes}
    for op in walk(function(module, ENTRY)):
        if op.name == "func.call" and (name := ir.FlatSymbolRefAttr(op.attributes["callee"]).value) in kernels:
            yield op, kernels[name]


def _problem(model: str, call: Any, kernel: Any, device: Device) -> Problem | None:
    shaped = [value.type for value in (*call.operands, *call.results)]
    if not all(isinstance(t, ir.RankedTensorType) and t.has_static_shape for t in shaped):
        return None
    graph = KernelGraph.of(kernel)
    choices = tuple(candidates(graph, device))
    if len(choices) < 2:
        return None
    kernel_class = ir.StringAttr(kernel.attributes[KERNEL_ATTRIBUTE]).value
    key = tuned.problem(graph)
    return Problem(_short_name(kernel_class, graph), key, tuned.bucket(graph), model, _program_text(call, kernel), choices)


def _short_name(kernel_class: str, graph: KernelGraph) -> str:
    """``contraction-4096x4096x4096-bf16``: the class, the loops of the op that does most, what it reads."""
    largest = max(graph.structured(), key=lambda node: _count(node.sizes))
    element = next((o.tensor.element for o in largest.inputs if o.tensor is not None), "none")
    return re.sub(r"[^\w.-]", "_", f"{kernel_class}-{'x'.join(map(str, largest.sizes))}-{element}")


def _count(sizes: tuple[int | None, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size or 1
    return total


def _program_text(call: Any, kernel: Any) -> str:
    """A module of the kernel and a ``@main`` that gives it what it reads and allocates what it writes over."""
    module = ir.Module.create()
    allocated = [_is_empty(value) for value in call.operands]
    inputs = [value.type for value, own in zip(call.operands, allocated, strict=True) if not own]
    results = [value.type for value in call.results]
    with ir.InsertionPoint(module.body):
        copy = kernel.operation.clone()
        main = dialect("func").FuncOp(ENTRY, (inputs, results))
    del copy.attributes[SCHEDULE]  # whoever builds a candidate says which
    block = main.add_entry_block()
    with ir.InsertionPoint(block):
        given = iter(block.arguments)
        operands = [_allocate(v.type) if own else next(given) for v, own in zip(call.operands, allocated, strict=True)]
        done = dialect("func").CallOp(results, _name(kernel), operands)
        dialect("func").ReturnOp(list(done.results))
    return module_text(module, elide=False)


def _is_empty(value: Any) -> bool:
    producer = defining_op(value)
    return producer is not None and producer.name == "tensor.empty"


def _allocate(kind: Any) -> Any:
    shape = [kind.get_dim_size(i) for i in range(kind.rank)]
    return dialect("tensor").EmptyOp(shape, kind.element_type).result


def _name(op: Any) -> str:
    return str(ir.StringAttr(op.attributes["sym_name"]).value)
