"""What a bisection found, as plain frozen data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["ok", "wrong", "crash", "error", "timeout", "needs a device", "built", "not executed"]
How = Literal["eager", "plain path", "rest of the table", "artifact"]
"""How a stage was executed: the exported graph by eager; lowered by the plain path; by the stages behind it in its own
table, unoptimized; or as what the target has built."""
BY_REST: How = "rest of the table"

# What only the stages behind it take any further: levels of a GPU and of IREE.  Not here: listings.
CONTINUED_LEVELS = ("tiles", "gpu", "nvvm", "llvmir", "ptx", "cubin", "iree", "program")

WRONG = ("wrong", "crash", "timeout")  # an answer that is not eager's, or none at all
RAN = ("ok", *WRONG)


@dataclass(frozen=True)
class Verdict:
    """How the module after one stage (or one pass) does when it is executed.

    ``status``: "ok"; "wrong" (outside of ``tolerance``); "crash" and "timeout" (of the process that executed it); "error"
    (the plain path cannot lower it, or a check of the model failed); "needs a device"; "built" (to be executed where there
    is one); "not executed" (it only shows what another holds).  ``reason`` says why, for all but "ok"; ``symptom`` names a
    known kind of wrong number; ``how`` says how it was executed, where it was.
    """

    name: str
    status: Status
    rel_l2: float | None = None
    tolerance: float | None = None
    reason: str | None = None
    symptom: str | None = None
    level: str = ""
    seconds: float = 0.0
    how: How | None = None

    @property
    def is_wrong(self) -> bool:
        """Was it executed, without eager's answer?"""
        return self.status in WRONG


@dataclass(frozen=True)
class StageFile:
    """What a stage left, complete, in a dump."""

    name: str
    level: str
    file: Path


@dataclass(frozen=True)
class OpFinding:
    """The first op whose value is not the reference's, or the first kernel that makes the answer wrong.

    ``confirmed``: with ``instead`` in its place, the answer is right.
    """

    stage: str
    op: str
    text: str
    location: str | None
    rel_l2: float
    confirmed: bool
    instead: str = "the right value"


@dataclass(frozen=True)
class Bisection:
    """Every stage against eager in ``precision``.

    ``first_wrong_stage`` is the first that was executed and is wrong; ``suspects`` are that stage and those right before it
    that could not be executed, and those behind it that it was executed through and that may be to blame as well.
    ``passes`` are those of the first wrong stage, one verdict each, where it was narrowed, or where it is only executed
    through others, those from it on, each with what happens without it; ``guilty`` names the wrong one of them, and
    ``pass_note`` says more about it, or which ones stay suspect.  ``failure``: the lowering ended early, with this message.
    ``reproducer`` is a directory that 'mlirstack reproduce' and 'mlirstack reduce' read.
    """

    model: str
    target: str
    route: str
    reference: str
    stages: tuple[Verdict, ...]
    first_wrong_stage: str | None = None
    suspects: tuple[str, ...] = ()
    passes: tuple[Verdict, ...] = ()
    guilty: str | None = None
    pass_note: str | None = None
    op: OpFinding | None = None
    op_note: str | None = None
    failure: str | None = None
    reproducer: Path | None = None

    @property
    def ok(self) -> bool:
        """Is every stage that was executed right, down to the end?"""
        return self.exit_status == 0

    @property
    def exit_status(self) -> int:
        """0: all right; 1: a stage is wrong; 3: the lowering failed, nothing could be executed, or not the end of it."""
        if self.first_wrong_stage is not None:
            return 1
        failed = self.failure or not self.right_down_to or any(stage.status == "error" for stage in self.beyond)
        return 3 if failed else 0

    @property
    def right_down_to(self) -> str | None:
        """The last stage that is right."""
        return next((stage.name for stage in reversed(self.stages) if stage.status == "ok"), None)

    @property
    def beyond(self) -> tuple[Verdict, ...]:
        """The stages behind the last right one of which nothing is known; listings are not among them."""
        names = [stage.name for stage in self.stages]
        start = names.index(self.right_down_to) + 1 if self.right_down_to else 0
        return tuple(stage for stage in self.stages[start:] if stage.status in ("error", "needs a device", "built"))

    def __getitem__(self, stage: str) -> Verdict:
        """The verdict on one stage; KeyError if there is none."""
        for verdict in self.stages:
            if verdict.name == stage:
                return verdict
        raise KeyError(stage)


def first_wrong(verdicts: tuple[Verdict, ...]) -> tuple[str | None, tuple[str, ...]]:
    """The first wrong verdict's name, and the names of the suspects: it, and what was not executed right before it."""
    between: list[str] = []
    for verdict in verdicts:
        if verdict.is_wrong:
            return verdict.name, (*between, verdict.name)
        between = [] if verdict.status == "ok" else [*between, verdict.name]
    return None, ()


def behind(verdicts: Sequence[Verdict], wrong: str, control: Callable[[Verdict], Verdict]) -> tuple[str, ...]:
    """The stages behind ``wrong`` that it was executed through and that may be to blame.

    None where the same stages lead from what is before it to the right answer; ``control`` executes that in this way.
    """
    at = [verdict.name for verdict in verdicts].index(wrong)
    if at == 0 or verdicts[at].how != BY_REST:
        return ()
    before = verdicts[at - 1]
    if (before if before.how == BY_REST else control(before)).status == "ok":
        return ()
    return tuple(verdict.name for verdict in verdicts[at + 1 :] if verdict.level in CONTINUED_LEVELS)
