"""The sums that a thread holds after the main loop, and where they belong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.schedules.cuda.values import Int


@dataclass(frozen=True)
class Sums:
    """Runs of neighbouring columns: (row, column, values) each, relative to (``row``, ``column``) of the block's results."""

    row: Int
    column: Int
    pieces: tuple[tuple[int, int, tuple[Any, ...]], ...]
