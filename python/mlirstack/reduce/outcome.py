"""How an attempt ends, what is expected of it, and when two ends are the same failure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["ok", "failure", "crash", "timeout", "wrong", "invalid"]

# What a smaller module changes in a message: types, numbers, names of values and symbols.
_DETAILS = re.compile(r"!?[\w.]*<[^<>]*(?:<[^<>]*>[^<>]*)*>|[%@#][\w.$-]+|\b\d+(?:\.\d+)?(?:x\d+)*\b|\s+")


@dataclass(frozen=True)
class Outcome:
    """The end of one attempt.

    "ok": nothing fails; "failure": a pass, the verifier or the condition of a level does, with ``message`` and, where it is
    known, ``pass_name``; "crash": the process died of ``message``, a signal; "wrong": executed, the answer after the passes
    is off by ``rel_l2``; "invalid": the module cannot be tried at all.
    """

    kind: Kind
    message: str = ""
    pass_name: str | None = None
    rel_l2: float | None = None

    def text(self) -> str:
        """One line for people."""
        where = f"pass '{self.pass_name}': " if self.pass_name else ""
        if self.kind == "crash":
            return f"{where}crash with {self.message}"
        if self.kind == "wrong":
            return f"{where}wrong numbers: {self.message}"
        return where + (self.message.splitlines()[0] if self.message else self.kind)


@dataclass(frozen=True)
class Expectation:
    """What counts as the same failure: the kind, the pass if it is known, and ``text``.

    ``exact``: ``text`` was given by the user and must stand in the message; otherwise it is a message whose types, numbers
    and names may differ.
    """

    kind: Kind
    text: str = ""
    pass_name: str | None = None
    exact: bool = False

    def matches(self, outcome: Outcome) -> bool:
        """Is it the same failure?"""
        if outcome.kind != self.kind:
            return False
        if self.pass_name and outcome.pass_name and self.pass_name != outcome.pass_name:
            return False
        if self.exact:
            return self.text in outcome.message
        if self.kind in ("crash", "failure"):
            return essence(outcome.message) == essence(self.text)
        return True

    @staticmethod
    def of(outcome: Outcome, text: str | None = None) -> Expectation:
        """Expect this outcome again; with ``text``, any message that contains it."""
        if text is not None:
            return Expectation(outcome.kind, text, None, exact=True)
        return Expectation(outcome.kind, outcome.message, outcome.pass_name)


def essence(message: str) -> str:
    """The first line of a message without what a smaller module changes in it."""
    first = message.strip().splitlines()[0] if message.strip() else ""
    return _DETAILS.sub(" ", first).strip()


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Plain data."""
    return {key: value for key, value in vars(outcome).items() if value is not None}
