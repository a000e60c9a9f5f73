"""The process that compiles random graphs and judges their answers: whatever kills it costs one group of graphs.

A question holds ``graphs`` (JSON texts, or a seed and a number), ``targets``, ``route`` and ``dump`` (a directory for the
stages, or null); the answer has for each target the list of results, one for each graph.  Graphs are compiled in one module;
where that fails, in halves, so that the one at fault is found.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlirstack.bindings import ir
from mlirstack.errors import MlirstackError, UnsupportedError
from mlirstack.frontend.program import Program
from mlirstack.fuzz.build import Built, build, run
from mlirstack.fuzz.generate import graph_of
from mlirstack.fuzz.oracle import Expected, expect, judge
from mlirstack.fuzz.results import EAGER, Result, Status
from mlirstack.fuzz.spec import from_json, to_json
from mlirstack.fuzz.values import is_inexact
from mlirstack.lowering import LowerOptions, build_program, lower_program, program_of
from mlirstack.passes.iree.compiler import PHASES
from mlirstack.passes.iree.phase import VMFB, IreePhase
from mlirstack.supervised import Tell, serve
from mlirstack.targets.base import Artifact
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.iree.target import IreeCpuTarget
from mlirstack.targets.registry import create_target

IREE = IreeCpuTarget.name


def answer(question: dict[str, Any], tell: Tell) -> dict[str, list[dict[str, Any]]]:
    """Judge graphs; see the top of this module."""
    tell(EAGER)
    texts = tuple(graph if isinstance(graph, str) else to_json(graph_of(*graph)) for graph in question["graphs"])
    dump = Path(question["dump"]) if question.get("dump") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.export warns about its own internals
        expected = _expected(texts)
        return {
            target: [dataclasses.asdict(result) for result in examine(expected, target, tell, dump, route=question["route"])]
            for target in question["targets"]
        }


# A group is asked for on one target after another: what eager says, and what is exported, is the same for all.


@functools.lru_cache(maxsize=1)
def _expected(texts: tuple[str, ...]) -> list[Expected]:
    return [expect(from_json(text)) for text in texts]


@functools.lru_cache(maxsize=1)
def _exported(texts: tuple[str, ...]) -> Program:
    built = build([from_json(text) for text in texts])
    return program_of(built.module, built.inputs, name="graph")


def examine(
    expected: Sequence[Expected], target: str, tell: Tell, dump: Path | None = None, *, route: str = "auto"
) -> list[Result]:
    """The result of each graph on ``target``; ``tell`` hears which step begins."""
    tell({"target": target, "graphs": len(expected)})
    try:
        program = _exported(tuple(to_json(one.spec) for one in expected))
        # What cannot be lowered is named once the graph stands alone.
        function = compile_graphs(program, target, dump, route=route, explain=len(expected) == 1)
        answers = [run_twice(function, build([one.spec for one in expected]), tell)]
    except MlirstackError as error:
        if len(expected) > 1:
            middle = len(expected) // 2
            halves = (expected[:middle], expected[middle:])
            return [result for half in halves for result in examine(half, target, tell, route=route)]
        status: Status = "refused" if isinstance(error, UnsupportedError) else "error"
        return [Result(status, _reason(error))]
    results = []
    for one, got in zip(expected, answers[0], strict=True):
        # IREE's runtime has the processor take subnormal numbers for zero, and has no option for it.
        verdict = judge(one, got, flushes=target == IREE)
        results.append(Result("ok" if verdict.ok else "wrong", verdict.reason, verdict.decided))
    return results


def _reason(error: MlirstackError) -> str:
    """One line that is the same for alike failures: where it failed and at what."""
    lines = [f"{op.op}: {op.reason}" for op in error.ops] if isinstance(error, UnsupportedError) else []
    return " ".join("; ".join(lines or str(error).splitlines()[:1]).split())[:400]


def run_twice(
    function: Callable[..., Any], built: Built, tell: Tell
) -> Sequence[Sequence[Tensor]]:  # fmt: skip
    """The answer; :class:`AnswerChangedError` where a second call differs or changes the first answer or an input."""
    tell("run")
    before = [value.clone() for value in built.inputs]
    first: Sequence[Sequence[Tensor]] = run(function, built.inputs)
    kept = [[value.clone() for value in outputs] for outputs in first]
    second: Sequence[Sequence[Tensor]] = run(function, built.inputs)
    for what, left, right in (
        ("the second call gives another answer", _flat(kept), _flat(second)),
        ("the second call changes the first answer", _flat(kept), _flat(first)),
        ("an input was written", before, built.inputs),
    ):
        if not all(_same(a, b) for a, b in zip(left, right, strict=True)):
            raise AnswerChangedError(what)
    return kept


class AnswerChangedError(MlirstackError):
    """The same call gave two answers, or wrote what it must not."""


def compile_graphs(program: Program, target: str, dump: Path | None, *, route: str, explain: bool) -> Callable[..., Any]:
    """The compiled module; for IREE by one run of its compiler instead of one for each phase, which gives the same file."""
    if target != IREE or dump is not None:
        options = LowerOptions(target, route, dump=dump, explain=explain)
        lowering, artifact, _ = build_program(program, options)
        executable = lowering.target.load(artifact, program.signature, program.parameters)
        return CompiledFunction(executable, program.signature, program.parameters, lowering=lowering)
    artifact = _iree_artifact(program, LowerOptions(IREE, route, to=_handed_over(), explain=explain))
    executable = create_target(target).load(artifact, program.signature, program.parameters)
    return CompiledFunction(executable, program.signature, program.parameters)


def _iree_artifact(program: Program, options: LowerOptions) -> Artifact:
    lowering = lower_program(program, options)
    assert isinstance(lowering.payload, ir.Module)
    return lowering.target.build(program, IreePhase(VMFB).vmfb_of(lowering.payload))


def _handed_over() -> str:
    """The stage whose result IREE's compiler is given."""
    names = [stage.name for stage in create_target(IREE).pipeline("linalg", "torch").stages]
    return names[names.index(f"iree-{next(iter(PHASES))}") - 1]


def _flat(answers: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [value for outputs in answers for value in outputs]


def _same(left: Tensor, right: Tensor) -> bool:
    if not is_inexact(left.dtype):
        return torch.equal(left, right)
    return torch.equal(left.isnan(), right.isnan()) and torch.equal(left.nan_to_num(), right.nan_to_num())


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(answer)
