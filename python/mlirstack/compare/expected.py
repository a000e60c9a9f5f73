"""Expected failures: what is known not to work, with the reason, in one side table.

A model that fails as expected is no news; a model that fails unexpectedly or passes unexpectedly is, so that progress and
regressions both show as a difference of ``expected_failures.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from mlirstack.compare.results import Report, Status, TargetResult
from mlirstack.errors import UsageError

Outcome = Literal["pass", "expected failure", "unexpected failure", "unexpected pass", "unavailable"]


@dataclass(frozen=True)
class ExpectedFailure:
    """``model`` on ``target`` is known to end with ``status``, for ``reason``."""

    model: str
    target: str
    status: Status
    reason: str


ExpectedFailures = Mapping[tuple[str, str], ExpectedFailure]


@dataclass(frozen=True)
class Verdict:
    """A result seen against the table."""

    model: str
    target: str
    outcome: Outcome
    reason: str | None

    @property
    def ok(self) -> bool:
        """Whether things are as the table says."""
        return self.outcome in ("pass", "expected failure", "unavailable")


def load_expected_failures(path: Path | None = None) -> ExpectedFailures:
    """Read the table: mlirstack's own, or another of the same form.  :class:`UsageError` where it is malformed."""
    source = path or files("mlirstack.compare") / "expected_failures.toml"
    try:
        entries = tomllib.loads(source.read_text()).get("failure", [])
        failures = [ExpectedFailure(**entry) for entry in entries]
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise UsageError(f"{source}: {error}") from error
    table: dict[tuple[str, str], ExpectedFailure] = {}
    for failure in failures:
        key = (failure.model, failure.target)
        if key in table:
            raise UsageError(f"{source} lists {failure.model} on {failure.target} twice")
        if failure.status not in ("mismatch", "error") or not failure.reason:
            raise UsageError(
                f"{source}: {failure.model} on {failure.target} needs status 'mismatch' or 'error', and a reason"
            )
        table[key] = failure
    return table


def judge(report: Report, expected: ExpectedFailures) -> tuple[Verdict, ...]:
    """One verdict per target of a report; eager, the reference, has none."""
    return tuple(judge_result(report.model, result, expected) for result in report.results if result.target != "eager")


def judge_result(model: str, result: TargetResult, expected: ExpectedFailures) -> Verdict:
    """See one result against the table.  Failing in another way than expected is an unexpected failure.

    What the table says of a target, ``cuda``, holds for all its architectures: ``cuda:sm_90a``.
    """
    failure = expected.get((model, result.target)) or expected.get((model, result.target.partition(":")[0]))
    if result.status == "unavailable":
        return Verdict(model, result.target, "unavailable", result.error)
    if failure is None:
        return Verdict(model, result.target, "pass" if result.status == "ok" else "unexpected failure", result.error)
    if result.status == "ok":
        return Verdict(model, result.target, "unexpected pass", f"expected to fail: {failure.reason}")
    if result.status != failure.status:
        reason = f"expected {failure.status} ({failure.reason}), got {result.status}: {result.error}"
        return Verdict(model, result.target, "unexpected failure", reason)
    return Verdict(model, result.target, "expected failure", failure.reason)
