"""What a command line asks to run, as pipeline elements: native passes as text, Python steps as objects.

Single flags, ``--pass-pipeline``, ``--pipeline`` and ``--run-reproducer`` all end up here, and nest as mlir-opt nests them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from mlirstack.opt.flags import SCHEDULE, FlagError, Invocation, PassFlag
from mlirstack.pipeline.table import native_passes
from mlirstack.steps import STEPS, register_steps

if TYPE_CHECKING:
    from mlirstack.pipeline.step import Step

MODULE = "builtin.module"
REPRODUCER = "mlir_reproducer"
_REPRODUCER = re.compile(r"mlir_reproducer\s*:\s*\{(.*?)\n?\s*\}\s*\}", re.DOTALL)


class Element(NamedTuple):
    """One element below the anchor: native text with its nesting, or a Python step; ``text`` is its spelling."""

    text: str
    step: Step | None = None


class Plan(NamedTuple):
    """What to run.  ``anchored`` is native text with an anchor of its own; otherwise ``elements`` run on the top op."""

    elements: tuple[Element, ...] = ()
    anchored: str | None = None
    stage: str | None = None

    @property
    def empty(self) -> bool:
        """Is there nothing to run?"""
        return not self.elements and self.anchored is None

    def text(self, anchor: str = MODULE) -> str:
        """Pipeline text, anchor included."""
        return self.anchored if self.anchored is not None else f"{anchor}({','.join(e.text for e in self.elements)})"


def plans(invocation: Invocation, anchor: str = MODULE, reproducer: str | None = None) -> list[Plan]:
    """The plans of a command line, in order: one, or with ``--pipeline`` one for each stage.

    ``anchor`` is the name of the top-level op; :class:`FlagError` for flags that exclude each other,
    :class:`~mlirstack.errors.MlirstackError` where Python steps or a pipeline are wrong.
    """
    text, table = invocation.text("pass-pipeline"), invocation.text("pipeline")
    given = [f"--{f}" for f in ("pass-pipeline", "pipeline") if invocation(f) is not None]
    if text is not None and invocation.passes:
        raise FlagError("<unknown>:0: error: '-pass-pipeline' option can't be used with individual pass options")
    if len(given) > 1:
        raise FlagError(f"error: {' and '.join(given)} exclude each other")
    found: list[Plan] = []
    if reproducer is not None:
        found.append(_of_text(reproducer))
    if text is not None:
        found.append(_of_text(text))
    if table is not None:
        found += _of_table(invocation, table)
    if invocation.passes:
        found.append(Plan(tuple(e for flag in invocation.passes for e in _of_flag(flag, anchor, invocation))))
    return found


def reproducer_of(text: str) -> str | None:
    """The pipeline in the ``mlir_reproducer`` resource of a module's text; None where there is none."""
    section = _REPRODUCER.search(text)
    pipeline = re.search(r'pipeline\s*:\s*"((?:[^"\\]|\\.)*)"', section[1] if section else "")
    return re.sub(r'\\(["\\])', r"\1", pipeline[1]) if pipeline else None


def _of_flag(flag: PassFlag, anchor: str, invocation: Invocation) -> tuple[Element, ...]:
    if flag.name == SCHEDULE:
        return _of_schedule(flag.options, invocation)
    text = f"{flag.name}{{{flag.options}}}" if flag.options else flag.name
    if flag.name in STEPS:
        return _steps_of(text)
    wanted = native_passes().get(flag.name, {"anchor": ""})["anchor"]
    return (Element(text if wanted in ("", anchor) else f"{wanted}({text})"),)


def _of_text(text: str) -> Plan:
    if STEPS.keys().isdisjoint(re.findall(r"[\w-]+", text)):
        return Plan(anchored=text)
    return Plan(_steps_of(text))


def _steps_of(text: str) -> tuple[Element, ...]:
    from mlirstack.pipeline.parse import parse_pipeline

    register_steps()
    return elements(parse_pipeline(text))


def elements(steps: tuple[Step, ...]) -> tuple[Element, ...]:
    """Steps as elements; neighbours nested on the same operation share one anchor."""
    from mlirstack.pipeline.step import Pass

    found: list[Element] = []
    nest = ""
    for step in steps:
        if not isinstance(step, Pass):
            found.append(Element(step.text(), step))
            nest = ""
            continue
        closing = ")" * (step.on.count("(") + 1)
        if step.on and step.on == nest:
            found[-1] = Element(f"{found[-1].text[: -len(closing)]},{step.text()}{closing}")
        else:
            found.append(Element(f"{step.on}({step.text()}{closing}" if step.on else step.text()))
        nest = step.on
    return tuple(found)


def _of_table(invocation: Invocation, table: str) -> list[Plan]:
    from mlirstack.targets.registry import create_target

    register_steps()
    pipeline = create_target(table).pipeline(str(invocation("route")), "fx")
    part = pipeline.slice(first=invocation.text("from"), last=invocation.text("to"))
    return [Plan(elements(stage.steps), stage=f"{pipeline.name}: {stage.name}") for stage in part.stages]


def _of_schedule(file: str, invocation: Invocation) -> tuple[Element, ...]:
    from pathlib import Path

    if not Path(file).is_file():
        raise FlagError(f"cannot open transform schedule '{file}': No such file or directory")
    if re.search(r"[\s{}\"']", file):
        raise FlagError(f"error: the name of a schedule must be free of spaces, quotes and braces: {file}")
    entry = invocation.text("transform-entry-point")
    return (
        Element(f"transform-preload-library{{transform-library-paths={file}}}"),
        Element(f"transform-interpreter{{entry-point={entry}}}"),
    )
