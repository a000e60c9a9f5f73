"""Which pass of a wrong stage is it?

Comes in: a bisection that names the first wrong stage.  Goes out: the same with a verdict for each pass, and the guilty one.
What the plain path executes is executed after each pass.  What only the stages behind it take on is executed once for each
pass that can be left out: where the answer is right without a pass, the pass is guilty.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mlirstack.compare.bisect.executor import Executor, Table, Tell
from mlirstack.compare.bisect.record import Culprit
from mlirstack.compare.bisect.results import Bisection, StageFile, Verdict, first_wrong
from mlirstack.errors import WorkerLostError
from mlirstack.frontend.import_fx import ImportFx
from mlirstack.frontend.program import Program
from mlirstack.ir.text import module_bytecode
from mlirstack.passes.iree.phase import IreePhase
from mlirstack.pipeline.reproducer import EMPTY_PIPELINE
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Step, Translation, pipeline_text

# Of a pass that was left out.
RIGHT_WITHOUT = "without it the answer is right"
WRONG_WITHOUT = "without it the answer is as wrong"
NOTHING_WITHOUT = "without it nothing can be executed"
NOT_TRIED = "not tried: time was over"

SECONDS = 180.0  # for all passes that are left out in turn; IREE's compiler runs anew for each


def one_by_one(
    found: Bisection, before: StageFile, stage: Stage, executor: Executor, program: Program, tell: Tell
) -> tuple[Bisection, Culprit]:
    """Run the passes of the first wrong stage one by one on what the stage before it left."""
    verdicts: list[Verdict] = []
    file = before.file
    # Until a pass is found it is the stage as a whole, or for the first stage the module as it is.
    culprit = Culprit(file, stage.text()) if before.level != "fx" else None
    for index, step in enumerate(stage.steps):
        tell(f"{stage.name}: {step.name}")
        output = executor.scratch / f"pass-{index:02d}.mlirbc"
        if isinstance(step, ImportFx):  # the graph is in this process, and so is what imports it
            output.write_bytes(module_bytecode(step.translate(program.payload)))
            verdicts.append(replace(executor.verdict(step.name, output, stage.level_name), level=stage.level_name))
            if verdicts[-1].is_wrong:
                culprit = Culprit(output, EMPTY_PIPELINE)
                break
            file, culprit = output, Culprit(output, pipeline_text(stage.steps[1:]))
            continue
        question: dict[str, Any] = {"do": "pass", "target": found.target, "route": found.route, "from": program.level}
        question |= {"stage": stage.name, "index": index, "file": str(file), "output": str(output)}
        try:
            answer = executor.ask(question)
        except WorkerLostError as error:
            verdicts.append(Verdict(step.name, "error", reason=f"the pass alone: {error.message}"))
            break
        if "error" in answer:
            verdicts.append(Verdict(step.name, "error", reason=f"the pass alone: {answer['error']}"))
            break
        if answer["changed"]:
            verdict = executor.verdict(step.name, output, stage.level_name)
        else:
            verdict = Verdict(step.name, "ok", reason="changes nothing") if not verdicts else _same(verdicts[-1], step.name)
        verdicts.append(replace(verdict, level=stage.level_name))
        if verdict.is_wrong:
            culprit = Culprit(file, pipeline_text((step,)))
            break
        file = output
    guilty, _ = first_wrong(tuple(verdicts))
    assert culprit is not None
    return replace(found, passes=tuple(verdicts), guilty=guilty), culprit


def _same(before: Verdict, name: str) -> Verdict:
    return replace(before, name=name, reason="changes nothing" if before.status == "ok" else before.reason)


def left_out(
    found: Bisection, before: StageFile, pipeline: Pipeline, executor: Executor, table: Table, tell: Tell
) -> Bisection:
    """Take on what is before the first wrong stage by the stages behind, once without each of their passes.

    One that can be left out is guilty where the answer is right without it, and innocent where it is not; one that cannot
    be left out, and the passes inside IREE's compiler, stay suspect.
    """
    assert found.first_wrong_stage is not None
    stages = pipeline.stages[pipeline.index(found.first_wrong_stage) :]
    verdicts: list[Verdict] = []
    end = time.perf_counter() + SECONDS
    for stage, index, step in _left_out_in_turn(stages):
        if time.perf_counter() > end:
            verdicts.append(Verdict(step.name, "not executed", reason=NOT_TRIED, level=stage.name))
            continue
        tell(f"{stage.name}: without {step.name}")
        verdict = executor.verdict_by_rest(before, table, without=(stage.name, index))
        if verdict.status == "ok":
            verdicts.append(Verdict(step.name, "wrong", reason=RIGHT_WITHOUT, level=stage.name))
            note = f"of stage '{stage.name}'; {RIGHT_WITHOUT}"
            return replace(found, passes=tuple(verdicts), guilty=step.name, pass_note=note)
        if verdict.status == "wrong":
            verdicts.append(Verdict(step.name, "ok", reason=WRONG_WITHOUT, level=stage.name))
        else:  # what crashes without it says nothing
            verdicts.append(Verdict(step.name, "not executed", reason=NOTHING_WITHOUT, level=stage.name))
    suspects = [f"{v.name} ({v.level})" for v in verdicts if v.status == "not executed"]
    suspects += [f"{step.name} ({stage.name})" for stage in stages for step in stage.steps if _is_own_translation(step)]
    suspects += ["IREE's compiler, whose passes are not run one by one"] if _hands_over(stages) else []
    note = f"one of those that could not be left out: {', '.join(suspects)}"
    return replace(found, passes=tuple(verdicts), pass_note=note if suspects else None)


def _left_out_in_turn(stages: Sequence[Stage]) -> Iterator[tuple[Stage, int, Step]]:
    for stage in stages:
        for index, step in enumerate(stage.steps):
            if not isinstance(step, Translation):  # another kind of payload goes out than comes in
                yield stage, index, step


def _is_own_translation(step: Step) -> bool:
    return isinstance(step, Translation) and not isinstance(step, IreePhase)


def _hands_over(stages: Sequence[Stage]) -> bool:
    return any(isinstance(step, IreePhase) for stage in stages for step in stage.steps)
