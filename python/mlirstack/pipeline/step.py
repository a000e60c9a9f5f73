"""Steps: what a stage is made of.

Four kinds, all frozen and all printable: a native MLIR pass (:class:`Pass`), an MLIR pass written in Python
(:class:`PythonPass`), a transform-dialect schedule (:class:`Schedule`), and a translation that leaves MLIR
(:class:`Translation`).  A step's spelling, ``name{option=value}``, is what ``mlirstack-opt`` accepts.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

OptionValue = bool | int | float | str | tuple[int, ...] | tuple[str, ...]


def option_text(value: OptionValue) -> str:
    """An option value in MLIR's spelling: true/false, comma-separated lists, quotes where white space needs them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(v) for v in value)
    text = str(value)
    return '"' + text.replace('"', '\\"') + '"' if any(c.isspace() for c in text) else text


def spelling(name: str, options: Mapping[str, OptionValue]) -> str:
    """``name`` or ``name{a=1 b=2}``."""
    if not options:
        return name
    return name + "{" + " ".join(f"{k}={option_text(v)}" for k, v in options.items()) + "}"


@dataclass(frozen=True)
class Pass:
    """A pass (or pass pipeline) registered in the MLIR bindings.

    ``on`` is the operation it is nested on inside the module, ``"func.func"`` for instance; empty for the module itself.
    """

    name: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    on: str = ""

    def text(self) -> str:
        """The spelling, without the nesting."""
        return spelling(self.name, self.options)


class _Step(ABC):
    """What the Python kinds share: the options are the dataclass fields, spelled with dashes."""

    name: ClassVar[str]

    def options(self) -> dict[str, OptionValue]:
        """Options that differ from their default, in MLIR's spelling."""
        given: dict[str, OptionValue] = {}
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if f.default is dataclasses.MISSING or value != f.default:
                given[f.name.replace("_", "-")] = value
        return given

    def text(self) -> str:
        """The spelling that mlirstack-opt accepts."""
        return spelling(self.name, self.options())


class PythonPass(_Step):
    """An MLIR pass in Python: a frozen dataclass whose fields are its options.

    The class docstring states the contract: what holds before, what holds after.
    """

    @abstractmethod
    def apply(self, module: Any) -> None:
        """Change ``module`` (an ``ir.Module``) in place; the module is verified afterwards."""


class Schedule(_Step):
    """A transform-dialect schedule, built by typed Python functions for the module at hand.

    ``entry_point`` is the named sequence that is applied.
    """

    entry_point: ClassVar[str] = "__transform_main"

    @abstractmethod
    def build(self, module: Any) -> str | None:
        """The text of a module with the entry point, or None where nothing in ``module`` asks for it."""


class Translation(_Step):
    """A translation out of MLIR: module → LLVM IR, LLVM IR → object, …"""

    @abstractmethod
    def translate(self, payload: Any) -> Any:
        """The next payload: ``str`` for text levels, ``bytes`` for binary ones."""

    def command(self, source: str) -> str | None:
        """A shell command that repeats the step on the file ``source``; None where mlirstack-opt does that."""
        return None

    def files(self, source: bytes | str) -> Mapping[str, bytes]:
        """What :meth:`command` reads beside the file that holds ``source``, by name."""
        return {}


Step = Pass | PythonPass | Schedule | Translation


def step_text(step: Step) -> str:
    """One step with its nesting: ``func.func(cse)``."""
    return f"{step.on}({step.text()})" if isinstance(step, Pass) and step.on else step.text()


def pipeline_text(steps: tuple[Step, ...]) -> str:
    """``builtin.module(…)`` over ``steps``; neighbours nested on the same operation share one anchor."""
    parts: list[str] = []
    anchor = ""
    for step in steps:
        on = step.on if isinstance(step, Pass) else ""
        if parts and on and on == anchor:
            parts[-1] = parts[-1][:-1] + "," + step.text() + ")"
        else:
            parts.append(step_text(step))
        anchor = on
    return f"builtin.module({','.join(parts)})"
