"""Schedules from a file: a transform-dialect module that someone wrote by hand, as a step of a stage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mlirstack.errors import UsageError
from mlirstack.pipeline.step import Schedule


@dataclass(frozen=True)
class ScheduleFile(Schedule):
    """Applies the named sequence ``entry`` of the transform-dialect module in ``path`` to the whole module.

    :class:`UsageError` where the file cannot be read; a schedule that does not parse or does not fit fails its stage.
    """

    name: ClassVar[str] = "mlirstack-schedule-file"
    path: str
    entry: str = Schedule.entry_point

    def build(self, module: Any) -> str:
        """The text of the file."""
        try:
            return Path(self.path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read schedule {self.path}: {error}") from error

    @property
    def entry_point(self) -> str:  # type: ignore[override]
        """The sequence to apply."""
        return self.entry
