"""What a comparison found, as plain frozen data: one result per target, one report per model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from mlirstack.compare.accuracy import Accuracy, OutputAccuracy, Precision
from mlirstack.compare.timing import Timing

Status = Literal["ok", "mismatch", "error", "unavailable"]


@dataclass(frozen=True)
class TargetResult:
    """One target against eager.

    ``status``: "ok"; "mismatch" (it ran and is wrong); "error" (it did not compile or did not run); "unavailable" (this
    machine cannot run it).  ``error`` says why, for all but "ok".  ``rel_l2``, ``max_abs`` and ``tolerance`` are those of
    the output that is wrong or closest to it; ``ratio_vs_eager`` is eager's median over this target's: above 1 is faster
    than eager.
    """

    target: str
    status: Status
    route: str | None = None
    rel_l2: float | None = None
    max_abs: float | None = None
    tolerance: float | None = None
    compile_s: float | None = None
    median_s: float | None = None
    ratio_vs_eager: float | None = None
    error: str | None = None
    min_s: float | None = None
    outputs: tuple[OutputAccuracy, ...] = ()


@dataclass(frozen=True)
class Report:
    """All targets on one model, against eager in ``precision``; ``note`` says why it is not float64 where it is not."""

    model: str
    results: tuple[TargetResult, ...]
    precision: Precision
    note: str | None = None
    threads: int = 1

    @property
    def ok(self) -> bool:
        """Whether every target that this machine has compiled, ran and was right."""
        return all(result.status in ("ok", "unavailable") for result in self.results)

    @property
    def exit_status(self) -> int:
        """0: right; 1: a target gave a wrong answer; 3: a target gave none."""
        found = {result.status for result in self.results}
        return 1 if "mismatch" in found else 3 if "error" in found else 0

    def __getitem__(self, target: str) -> TargetResult:
        """The result of one target; KeyError if it was not asked for."""
        for result in self.results:
            if result.target == target:
                return result
        raise KeyError(target)


def judged(target: str, accuracy: Accuracy, *, route: str | None = None, compile_s: float | None = None) -> TargetResult:
    """The result of a target that ran."""
    worst = accuracy.worst
    return TargetResult(
        target,
        "ok" if accuracy.ok else "mismatch",
        route=route,
        rel_l2=worst.rel_l2 if worst else 0.0,
        max_abs=worst.max_abs if worst else 0.0,
        tolerance=worst.tolerance if worst else 0.0,
        compile_s=compile_s,
        error=accuracy.reason,
        outputs=accuracy.outputs,
    )


def timed(result: TargetResult, timing: Timing, eager: Timing) -> TargetResult:
    """The result with its run time and the ratio to eager's."""
    return replace(result, median_s=timing.median_s, min_s=timing.min_s, ratio_vs_eager=eager.median_s / timing.median_s)
