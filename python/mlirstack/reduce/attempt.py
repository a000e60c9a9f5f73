"""One attempt: run passes over a module, in the calling process, and say how that ends.

A crash is not seen here: who calls does it in a process that may die.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.errors import StageError, UsageError
from mlirstack.ir.level import LEVELS
from mlirstack.ir.text import clone_module, verification_failure
from mlirstack.pipeline.observers import LevelCheck, Verification
from mlirstack.pipeline.parse import parse_pipeline
from mlirstack.pipeline.reproducer import Rest
from mlirstack.pipeline.runner import Runner
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.reduce.outcome import Outcome
from mlirstack.steps import register_steps

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """What is tried on a module: ``pipeline`` (text), and ``level`` if what it leaves must fit one ("": any).

    ``input_level``: of an input that is no module of these bindings, ("": it is one).
    ``numbers``: the module is executed by the plain path before and after the pipeline, and the answers are compared;
    ``seed`` draws the inputs, ``arguments`` is a file that holds them (see :class:`Subject`) in their place.  ``rest`` takes
    on what the pipeline leaves, where the plain path cannot.
    """

    pipeline: str
    level: str = ""
    numbers: bool = False
    seed: int = 0
    arguments: str = ""
    input_level: str = ""
    rest: Rest | None = None

    def __post_init__(self) -> None:
        if self.level and self.level not in LEVELS:
            raise UsageError(f"unknown level '{self.level}'", hint=f"levels: {', '.join(LEVELS)}")

    @staticmethod
    def parse(text: str) -> Task:
        """Inverse of :meth:`text`."""
        fields = json.loads(text)
        return Task(**{**fields, "rest": Rest(**fields["rest"]) if fields["rest"] else None})

    def text(self) -> str:
        """JSON."""
        return json.dumps(asdict(self))


def attempt(module: Any, task: Task, tell: Tell = lambda doing: None) -> Outcome:
    """Run the task on ``module``, which is changed.

    ``tell`` hears the name of each pass before it runs.  :class:`PipelineError` where there is no such pipeline.
    """
    register_steps()
    steps = parse_pipeline(task.pipeline)
    diagnostics = verification_failure(module) if isinstance(module, ir.Module) else None
    if diagnostics is not None:
        return Outcome("invalid", next((d.message for d in diagnostics if d.severity == "error"), "the module is invalid"))
    before = None
    if task.numbers:  # what is no module is wrong as it is: its inputs are known, and it is not executed before
        before = clone_module(module) if isinstance(module, ir.Module) else module
    # One stage a pass: a failure and a crash name it.
    for number, step in enumerate(steps):
        tell(step.name)
        stage = Stage(step.name, task.level or "linalg", (step,))
        last = number == len(steps) - 1
        watchers = [Verification(), *([LevelCheck()] if task.level and last else [])]
        try:
            module = Runner(watchers).run(Pipeline("replay", (stage,)), module)
        except StageError as error:
            return Outcome("failure", error.message, step.name)
    if before is None:
        return Outcome("ok")
    tell("")
    from mlirstack.reduce.numbers import compared  # needs torch, and most failures do not

    return compared(before, module, task)
