"""What became of a random graph on a target, and the sums over many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "refused", "wrong", "error", "died"]
STATUSES: tuple[Status, ...] = ("ok", "refused", "wrong", "error", "died")
FINDS: tuple[Status, ...] = ("wrong", "error", "died")
"""What must not be: a wrong answer, a failure that is no clear refusal, a dead process or one that hangs."""

EAGER = "eager"
"""The step of drawing graphs and of eager's own answers, as a worker process tells it."""


@dataclass(frozen=True)
class Result:
    """One graph on one target; ``decided`` is the share of elements that rounding alone does not decide."""

    status: Status
    reason: str | None = None
    decided: float = 1.0

    @property
    def is_find(self) -> bool:
        """Whether something is to be mended."""
        return self.status in FINDS


@dataclass(frozen=True)
class Numbered:
    """The result of graph ``number`` of the run's seed."""

    number: int
    target: str
    result: Result


def counts(results: Iterable[Numbered]) -> dict[str, dict[str, int]]:
    """For each target, how many graphs of each status."""
    found: dict[str, Counter[str]] = {}
    for one in results:
        found.setdefault(one.target, Counter())[one.result.status] += 1
    return {target: {status: counter[status] for status in STATUSES} for target, counter in found.items()}
