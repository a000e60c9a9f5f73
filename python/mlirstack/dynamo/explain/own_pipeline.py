"""The same four optimisations on mlirstack's own pipeline, measured on the modules that its stages leave behind.

What comes in is a program, what goes out are the numbers of :mod:`~mlirstack.dynamo.explain.optimizations`: ops of linalg
against kernels, ops in ``@prepare``, ops that the clean-up passes of a stage remove, and the memory planner of target cuda.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from mlirstack.bindings import ir, new_context
from mlirstack.dynamo.explain.kernels import BufferLife
from mlirstack.dynamo.explain.optimizations import Fusion, Memory
from mlirstack.errors import MlirstackError
from mlirstack.frontend.program import Program
from mlirstack.ir.ops import function, walk
from mlirstack.ir.text import parse_module
from mlirstack.lowering import Lowering, LowerOptions, lower_program
from mlirstack.passes.cuda.device_code import DeviceCode
from mlirstack.passes.cuda.plan import Launch, PlannedFunction
from mlirstack.pipeline.runner import Runner
from mlirstack.pipeline.stage import Pipeline
from mlirstack.pipeline.step import Pass

_CLEAN_UP = frozenset({"canonicalize", "cse"})


@dataclass(frozen=True)
class OwnPipeline:
    """``folded``: ops of linalg that run once at load (in ``@prepare``), as they depend on parameters alone; ``dead``: ops
    that canonicalization and CSE take away on the way to linalg; ``launches``: kernels that target cuda launches."""

    route: str
    fusion: Fusion
    folded: int
    dead: int | None
    launches: int | None
    memory: Memory | None
    why_not: str = ""


def measure_own_pipeline(program: Program) -> OwnPipeline:
    """Lower for cpu up to the kernels and for cuda up to the launch plan; neither needs a device or CUDA's tools."""
    cpu = lower_program(program, LowerOptions("cpu", to="kernels"))
    linalg, packed, kernels = (_module(cpu, stage) for stage in ("linalg", "packed", "kernels"))
    structured = list(_structured(function(linalg, "main")))
    calls = [op for op in walk(function(kernels, "main")) if op.name == "func.call"]
    fusion = Fusion(
        len(structured), len(calls), _sum(_touched(op) for op in structured), _sum(_touched(op) for op in calls)
    )  # fmt: skip
    prepare = next((op for op in packed.body.operations if _name(op) == "prepare"), None)
    folded = len(list(_structured(prepare))) if prepare is not None else 0
    launches, memory, why_not = _cuda(program)
    return OwnPipeline(cpu.route, fusion, folded, _cleaned(cpu), launches, memory, why_not)


def _cuda(program: Program) -> tuple[int | None, Memory | None, str]:
    try:
        lowering = lower_program(program, LowerOptions("cuda", to="llvmir"))
    except MlirstackError as error:
        return None, None, f"target cuda: {error.message}"
    code = lowering.payload
    if not isinstance(code, DeviceCode) or code.plan is None:
        return None, None, "target cuda: no launch plan"
    main = next(planned for planned in code.plan.functions if planned.name == "main")
    return sum(isinstance(step, Launch) for step in main.steps), _planned_memory(main), ""


def _planned_memory(main: PlannedFunction) -> Memory:
    """The temporaries of a launch plan; the planner has placed them in one arena."""
    temporaries = [(index, buffer) for index, buffer in enumerate(main.buffers) if buffer.kind == "temporary"]
    lives = tuple(
        BufferLife(f"temporary {index}", b.bytes if isinstance(b.bytes, int) else None, b.first, b.last)
        for index, b in temporaries
    )
    return Memory(main.unshared_bytes, main.arena_bytes, max(len(main.steps), 1), lives)


def _cleaned(lowering: Lowering) -> int | None:
    """Ops that are in linalg without the clean-up passes of that stage, and not with them."""
    stages = [result.stage for result in lowering.stages]
    index = next(i for i, stage in enumerate(stages) if stage.name == "linalg")
    kept = tuple(step for step in stages[index].steps if not (isinstance(step, Pass) and step.name in _CLEAN_UP))
    before = _module(lowering, stages[index - 1].name)
    left = sum(lowering["linalg"].ops.values())
    try:
        untidy = Runner([]).run(Pipeline("linalg without clean-up", (replace(stages[index], steps=kept),)), before)
    except MlirstackError:
        return None  # a pass of this stage builds on the clean-up: then it cannot be left out
    return sum(1 for _ in walk(untidy)) - left


def _module(lowering: Lowering, stage: str) -> Any:
    return parse_module(lowering[stage].data, new_context())


def _structured(operation: Any) -> Iterable[Any]:
    return (
        op for op in walk(operation) if op.name.startswith("linalg.") and op.name not in ("linalg.yield", "linalg.index")
    )


def _name(operation: Any) -> str:
    return ir.StringAttr(operation.attributes["sym_name"]).value if "sym_name" in operation.attributes else ""


def _touched(operation: Any) -> int | None:
    """Bytes of an op's operands and results, each value once; a destination whose content is not read counts once."""
    values = {str(value.get_name()): value.type for value in operation.operands}
    return _sum(_bytes(kind) for kind in values.values())


def _bytes(kind: Any) -> int | None:
    if not isinstance(kind, ir.RankedTensorType):
        return 0
    if not kind.has_static_shape:
        return None
    size = max(_bits(kind.element_type) // 8, 1)
    for dimension in kind.shape:
        size *= dimension
    return size


def _bits(kind: Any) -> int:
    if isinstance(kind, ir.ComplexType):
        return 2 * _bits(kind.element_type)
    return 64 if isinstance(kind, ir.IndexType) else int(kind.width)


def _sum(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total
