"""The plain path: from whatever a module holds to native code, with as little in between as there can be.

No fusion, no schedules, no packing, no vectorization: named passes from level to level and plain loops.  It is what bisect
runs the module of every stage with, so that the answer depends on that module and not on the stages behind it.  Where a
module mixes levels, in the middle of a stage, the parts that are still to be lowered are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.passes import abi
from mlirstack.passes.cuda.cubin import AssembleCubin
from mlirstack.passes.cuda.ptx import CompilePtx
from mlirstack.passes.entry import DescribeEntries, NumberArguments
from mlirstack.passes.loop_order import OrderLoops
from mlirstack.passes.native_code import CompileObject
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass, Step
from mlirstack.pipelines.cpu import cpu_pipeline
from mlirstack.pipelines.frontend import TORCH_TO_LINALG, TORCH_TO_TOSA, TOSA_TO_LINALG
from mlirstack.pipelines.graph import FUNCTION, SLICES, to_buffers
from mlirstack.schedules.cpu.vector_lowering import LowerVectors

# These demand that the whole module has arrived, which one from the middle of a stage has not.
_CONTRACTS = {"torch-verify-linalg-on-tensors-backend-contract", "torch-verify-tosa-backend-contract"}

LISTINGS = ("sass", "table")  # levels that show what the one before them holds

_TORCH_DIALECTS = frozenset({"torch", "torch_c"})

BUFFERS: tuple[Step, ...] = (
    Pass("convert-shape-to-std"),
    Pass("convert-elementwise-to-linalg", on=FUNCTION),
    *SLICES,
    # Not for speed's sake alone: a product of two 2048 x 2048 matrices read by columns takes a minute.
    Pass("linalg-generalize-named-ops", on=FUNCTION),
    OrderLoops(everywhere=True),
    *to_buffers(),
    Pass("buffer-deallocation-pipeline"),
    Pass("convert-bufferization-to-memref"),
    Pass("canonicalize"),
    Pass("cse"),
)

LOOPS: tuple[Step, ...] = (
    DescribeEntries(),
    # Vectors of the size of a tile: what convert-vector-to-llvm makes of them by itself takes minutes to compile.
    LowerVectors(),
    Pass("scf-forall-to-parallel", on=FUNCTION),
    Pass("tm-tensor-to-loops", on=FUNCTION),
    Pass("refback-munge-memref-copy", on=FUNCTION),
    Pass("convert-linalg-to-loops", on=FUNCTION),
    # Before the next pass, which would call a function for it that no library has.
    Pass("math-expand-ops", {"ops": "rsqrt"}, on=FUNCTION),
    # Absolute values of integers, which the next pass would refuse.
    Pass("convert-math-to-llvm"),
    # Vectors of erf, tanh, … one number at a time: what takes them apart leaves vector ops, so it stands before LLVM.
    Pass("convert-math-to-libm"),
    Pass("canonicalize"),
    Pass("cse"),
)


def reference_pipeline(module: Any, *, route: str = "linalg", optimized: bool = True) -> Pipeline:
    """The table that takes ``module`` (an ``ir.Module`` of target cpu's levels, of IREE's before it takes over, or of
    cuda's before kernels are mapped) to an object for this machine.

    ``route`` is the way down from the torch dialect: "linalg", or "tosa" for what linalg has no pattern for.  What is not
    ``optimized`` by LLVM is compiled in a thirtieth of the time, and runs ten times as long.
    """
    dialects, tensors = _content(module)
    stages: list[Stage] = []
    front: tuple[Stage, ...] = ()
    if "tosa" in dialects:  # in the middle of the stage, torch's types are still around
        front = (TORCH_TO_TOSA, TOSA_TO_LINALG) if dialects & _TORCH_DIALECTS else (TOSA_TO_LINALG,)
    elif dialects & _TORCH_DIALECTS:
        front = (TORCH_TO_TOSA, TOSA_TO_LINALG) if route == "tosa" else (TORCH_TO_LINALG,)
    stages += [Stage(f"plain-{stage.name}", "llvm", _without_contracts(stage)) for stage in front]
    if tensors:
        stages.append(Stage("plain-buffers", "llvm", (NumberArguments(), *BUFFERS)))
    back = {stage.name: stage for stage in cpu_pipeline("linalg", "scf").stages}
    if not _is_exported(module):
        stages += [Stage("plain-loops", "llvm", LOOPS), back["llvm"]]
    compiled = back["object"] if optimized else _unoptimized(back["object"])
    return Pipeline("reference", (*stages, back["llvmir"], compiled), "plain loops, for the answer alone")


def rest_of(pipeline: Pipeline, stage: str, without: tuple[str, int] | None = None) -> Pipeline:
    """What is behind ``stage`` in a table of a GPU, with the optimizers of LLVM and ptxas off and without listings: the
    least that still runs.  ``without``: a step that is left out, by its stage and its number there."""
    rest = pipeline.slice(first=stage)
    stages = [stage for stage in rest.stages if stage.level_name not in LISTINGS]
    return replace(rest, stages=tuple(_unoptimized(_without(stage, without)) for stage in stages))


def _without(stage: Stage, left_out: tuple[str, int] | None) -> Stage:
    if left_out is None or stage.name != left_out[0]:
        return stage
    return replace(stage, steps=tuple(step for index, step in enumerate(stage.steps) if index != left_out[1]))


def _unoptimized(stage: Stage) -> Stage:
    compilers = (CompilePtx, AssembleCubin, CompileObject)
    return replace(stage, steps=tuple(replace(s, opt_level=0) if isinstance(s, compilers) else s for s in stage.steps))


def _content(module: Any) -> tuple[set[str], bool]:
    """The dialects of all operations and types, and whether there are tensors that are not torch's."""
    dialects: set[str] = set()
    tensors = False
    for op in walk(module):
        dialects.add(op.name.split(".", 1)[0])
        if op.name == "func.func":
            values = [ir.TypeAttr(op.attributes["function_type"]).value]
        else:
            values = [value.type for value in (*op.operands, *op.results)]
        for text in map(str, values):
            if "!torch." in text:
                dialects.add("torch")
            tensors = tensors or text.startswith("tensor<") or "tensor<" in text.replace("vtensor<", "")
    return dialects, tensors or bool(dialects & (_TORCH_DIALECTS | {"tosa"}))


def _without_contracts(stage: Stage) -> tuple[Step, ...]:
    return tuple(step for step in stage.steps if not (isinstance(step, Pass) and step.name in _CONTRACTS))


def _is_exported(module: Any) -> bool:
    """Are the entry points wrapped already, as the end of the stage ``llvm`` leaves them?"""
    return any(
        op.operation.name == "llvm.func" and ir.StringAttr(op.attributes["sym_name"]).value == abi.SYMBOL_PREFIX + abi.MAIN
        for op in module.body.operations
    )
