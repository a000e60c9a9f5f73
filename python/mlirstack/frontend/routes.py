"""Which way a program goes to linalg, and why: TOSA first where it tells the truth, linalg where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlirstack.errors import StageError, UnsupportedError, UnsupportedOp, UsageError
from mlirstack.frontend.program import Program


@dataclass(frozen=True)
class Route:
    """The route to try, why, and the route to try when it fails (None: there is no other)."""

    name: str
    reason: str
    fallback: str | None = None


def choose_route(program: Program, requested: str = "auto") -> Route:
    """The route for ``program``; raises :class:`UnsupportedError` for random numbers."""
    drawn = getattr(program.payload, "random_ops", ())
    if drawn:
        raise UnsupportedError(f"{program.name}: the model draws random numbers", drawn)
    if requested == "auto":
        return Route("tosa", "TOSA first", "linalg")
    if requested not in ("tosa", "linalg"):
        raise UsageError(f"unknown route '{requested}'")
    return Route(requested, "asked for")


def route_failure_reason(error: StageError) -> str:
    """One line: op, dtypes, the user's line."""
    return f"{error.location or 'unknown line'}: {error.message.splitlines()[0]}"


def unsupported_ops(program: Program, failures: Sequence[StageError]) -> tuple[UnsupportedOp, ...]:
    """All operations that no route can express."""
    return ()
