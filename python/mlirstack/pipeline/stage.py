"""Stages and pipelines: the ordered table from which dumps, resume, override, bisect and reports all follow."""

from __future__ import annotations

from dataclasses import dataclass

from mlirstack.errors import PipelineError, UsageError
from mlirstack.ir.level import LEVELS, Level
from mlirstack.pipeline.registry import check_native, nearest
from mlirstack.pipeline.step import Pass, Step, pipeline_text


@dataclass(frozen=True)
class Stage:
    """One named stage: the level it leaves behind, the steps that get there, and why it is there.

    ``verify_each``: the module is verified after every step, not only after the last.  Names, options and nesting of native
    passes are checked on construction: :class:`PipelineError`.
    """

    name: str
    level_name: str
    steps: tuple[Step, ...]
    doc: str = ""
    verify_each: bool = True

    def __post_init__(self) -> None:
        if self.level_name not in LEVELS:
            raise PipelineError(
                f"stage '{self.name}': unknown level '{self.level_name}'{nearest(self.level_name, [*LEVELS])}"
            )
        for step in self.steps:
            if isinstance(step, Pass):
                try:
                    check_native(step.name, [*step.options], step.on.rsplit("(", 1)[-1])
                except PipelineError as error:
                    raise PipelineError(f"stage '{self.name}': {error.message}", hint=error.hint) from None

    @property
    def level(self) -> Level:
        """The level this stage leaves behind."""
        return LEVELS[self.level_name]

    def text(self) -> str:
        """The steps as pipeline text that mlirstack-opt accepts."""
        return pipeline_text(self.steps)


@dataclass(frozen=True)
class Pipeline:
    """A named, ordered table of stages."""

    name: str
    stages: tuple[Stage, ...]
    doc: str = ""

    def __post_init__(self) -> None:
        names = self.names()
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise PipelineError(f"pipeline '{self.name}': stage names must be unique: {', '.join(sorted(twice))}")

    def names(self) -> list[str]:
        """Stage names in order."""
        return [stage.name for stage in self.stages]

    def index(self, stage: str) -> int:
        """Position of a stage by name; :class:`UsageError` with the nearest names."""
        names = self.names()
        if stage not in names:
            raise UsageError(
                f"pipeline '{self.name}' has no stage '{stage}'{nearest(stage, names)}",
                hint=f"its stages: {', '.join(names)}",
            )
        return names.index(stage)

    def slice(self, first: str | None = None, last: str | None = None) -> Pipeline:
        """The part after stage ``first`` up to and including stage ``last``; either may be None."""
        begin = self.index(first) + 1 if first else 0
        end = self.index(last) + 1 if last else len(self.stages)
        if begin > end:
            raise UsageError(f"stage '{first}' comes after stage '{last}' in pipeline '{self.name}'")
        return Pipeline(self.name, self.stages[begin:end], self.doc)
