"""Rules of a decomposition table: each knows where it applies, and leaves all other calls to what stood there before."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

Decomposition = Callable[..., Any]
"""Called as the operator is; returns what stands in its place, or NotImplemented where it stays."""


def extend(table: dict[Any, Decomposition], op: Any, rule: Decomposition) -> None:
    """Decompose ``op`` by ``rule``; where that gives NotImplemented, as ``table`` says already."""
    earlier = table.get(op)
    if earlier is None:
        table[op] = rule
        return

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        result = rule(*args, **kwargs)
        return earlier(*args, **kwargs) if result is NotImplemented else result

    table[op] = decomposition


def not_itself(rule: Decomposition) -> Decomposition:
    """``rule``, which leaves alone the calls that it makes itself: it may write the operator that it stands for."""
    is_running: ContextVar[bool] = ContextVar("is_running", default=False)

    @functools.wraps(rule)
    def once(*args: Any, **kwargs: Any) -> Any:
        if is_running.get():
            return NotImplemented
        token = is_running.set(True)
        try:
            return rule(*args, **kwargs)
        finally:
            is_running.reset(token)

    return once
