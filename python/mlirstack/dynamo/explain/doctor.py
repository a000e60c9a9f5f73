"""The graph-break doctor: each break gets a category, its share of the run time, and an action.

The decisions are data (``decisions.toml``), so that what the report says can be read, and argued with, in one table.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlirstack.dynamo.explain.breaks import GraphBreak


@dataclass(frozen=True)
class Decision:
    """A row of the table: the conditions under which ``action`` is right, and how to do it."""

    action: str
    how: str
    skipped: bool | None = None
    share_below: float | None = None
    reason: str | None = None

    def holds(self, found: GraphBreak, share: float | None) -> bool:
        """Whether all conditions hold; a share that was not measured is below nothing."""
        if self.skipped is not None and found.skipped != self.skipped:
            return False
        if self.share_below is not None and (share is None or share >= self.share_below or found.skipped):
            return False
        return self.reason is None or re.search(self.reason, found.reason) is not None


@dataclass(frozen=True)
class Category:
    """A category of breaks: by torch's ids, else by patterns in its message or in the user's line."""

    name: str
    title: str
    ids: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True)
class Diagnosis:
    """A break with what to do about it.  ``cost_share`` of the run time (0 to 1) is None where it could not be measured."""

    found: GraphBreak
    category: str
    action: str
    how: str
    cost_share: float | None


@cache
def decision_table() -> tuple[Category, ...]:
    """The table, in the order in which it is tried."""
    data = tomllib.loads((Path(__file__).parent / "decisions.toml").read_text())
    return tuple(
        Category(
            entry["name"],
            entry["title"],
            frozenset(entry["ids"]),
            tuple(re.compile(pattern) for pattern in entry["patterns"]),
            tuple(Decision(**row) for row in entry["decision"]),
        )
        for entry in data["category"]
    )


def categorize(found: GraphBreak) -> Category:
    """The category of a break.  A pattern beats an id: ``print`` is an unsupported builtin, too."""
    table = decision_table()
    text = f"{found.reason} | {found.explanation} | {found.source}"
    specific, rest = table[:-1], table[-1]
    by_pattern = [category for category in specific if any(pattern.search(text) for pattern in category.patterns)]
    by_id = [category for category in specific if found.id in category.ids]
    if found.id in rest.ids:
        return rest
    return next(iter([*(c for c in by_pattern if c.name == "debug"), *by_id, *by_pattern]), rest)


def diagnose(breaks: Sequence[GraphBreak], shares: Mapping[int, float | None]) -> tuple[Diagnosis, ...]:
    """``shares``: share of the run time by the number of the break."""
    found = []
    for number, one in enumerate(breaks):
        category, share = categorize(one), shares.get(number)
        decision = next(row for row in category.decisions if row.holds(one, share))
        found.append(Diagnosis(one, category.name, decision.action, decision.how, share))
    return tuple(found)
