"""Observers that need no disk: dialect post-condition, verification, and snapshots of what every stage left behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlirstack.bindings import ir, new_context
from mlirstack.errors import StageError
from mlirstack.ir.diagnostics import source_line
from mlirstack.ir.foreign import ForeignModule
from mlirstack.ir.ops import first_op
from mlirstack.ir.text import module_text, parse_module, verification_failure
from mlirstack.pipeline.runner import Observer, StageOutput, StageRun, sha256
from mlirstack.pipeline.stage import Stage


class LevelCheck(Observer):
    """The dialects a level allows are a post-condition: a stage that leaks another dialect fails right there."""

    def after(self, run: StageRun, output: StageOutput) -> None:
        """Raise :class:`StageError` naming the first op that must not be there, with its source line."""
        payload, allowed = output.payload, run.stage.level.dialects
        if not isinstance(payload, ir.Module) or allowed is None:
            return
        if all(name.split(".", 1)[0] in allowed for name in output.ops):  # counted once for all observers
            return
        leaked = first_op(payload, lambda op: op.name.split(".", 1)[0] not in allowed)
        if leaked is not None:
            raise StageError(
                f"'{leaked.name}' must not be left at level '{run.stage.level.name}'",
                stage=run.stage.name,
                op=leaked.name,
                location=source_line(leaked.location),
                hint=f"a stage of level '{run.stage.level.name}' may leave: {', '.join(sorted(allowed))}",
            )


class Verification(Observer):
    """Runs the MLIR verifier on what is put in place of what a stage leaves; the runner has verified what stages leave."""

    def after(self, run: StageRun, output: StageOutput) -> None:
        """Raise :class:`StageError` with the verifier's diagnostics."""
        is_new = output.replaced and isinstance(output.payload, ir.Module)
        diagnostics = verification_failure(output.payload) if is_new else None
        if diagnostics is not None:
            first = next((d for d in diagnostics if d.severity == "error"), None)
            raise StageError(
                first.message if first else "the module is invalid",
                stage=run.stage.name,
                location=first.source if first else None,
                diagnostics=diagnostics,
            )


@dataclass(frozen=True)
class StageResult:
    """What one stage left behind: ``data`` is complete (MLIR bytecode, or the text or bytes of a level past MLIR).

    ``foreign_text`` is what another MLIR tool printed, where ``data`` is the bytecode of that tool.
    """

    index: int
    stage: Stage
    seconds: float
    data: bytes | str = field(repr=False)
    ops: dict[str, int] = field(default_factory=dict, repr=False)
    schedules: dict[str, str] = field(default_factory=dict, repr=False)
    foreign_text: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The stage's name."""
        return self.stage.name

    @property
    def sha256(self) -> str:
        """Hash of :attr:`data`."""
        return sha256(self.data)

    @property
    def text(self) -> str:
        """Readable text, large constants elided; bytes of a binary level cannot be shown and raise ValueError."""
        if isinstance(self.data, str):
            return self.data
        if self.foreign_text is not None:
            return self.foreign_text
        return module_text(self.module())

    def module(self) -> Any:
        """The complete module, parsed anew in a context of its own; ValueError past MLIR."""
        if not self.stage.level.is_module:
            raise ValueError(f"stage '{self.name}' leaves {self.stage.level.doc}, not an MLIR module")
        return parse_module(self.data, new_context(), name=self.name)


class Snapshots(Observer):
    """Keeps what every stage left behind, in order, in :attr:`results`."""

    def __init__(self) -> None:
        self.results: list[StageResult] = []
        self._schedules: dict[str, str] = {}

    def before(self, run: StageRun) -> None:
        """Forget the schedules of the stage before."""
        self._schedules = {}

    def schedule(self, run: StageRun, name: str, text: str) -> None:
        """Keep a schedule's text with its stage."""
        self._schedules[name] = text

    def after(self, run: StageRun, output: StageOutput) -> None:
        """Keep a complete copy."""
        foreign = output.payload.text if isinstance(output.payload, ForeignModule) else None
        self.results.append(
            StageResult(run.index, run.stage, output.seconds, output.data, output.ops, self._schedules, foreign)
        )
