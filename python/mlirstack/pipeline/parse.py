"""Pass-pipeline text, ``builtin.module(a,func.func(b{x=1},c))``, to steps.

Native passes, Python passes, schedules and translations share one spelling.  White space between elements is harmless.
Errors carry a caret under the column.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn, get_type_hints

from mlirstack.errors import PipelineError
from mlirstack.pipeline.registry import load_step, python_steps
from mlirstack.pipeline.step import OptionValue, Pass, Step

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_SPACE = re.compile(r"\s*")


def parse_pipeline(text: str) -> tuple[Step, ...]:
    """Steps of ``text``; the outer ``builtin.module(…)`` may be left out.  Raises :class:`PipelineError`."""
    parser = _Parser(text)
    return tuple(parser.parse())


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        column = self.at if at is None else at
        line_start = self.text.rfind("\n", 0, column) + 1
        line = self.text[line_start:].split("\n", 1)[0]
        raise PipelineError(f"pass pipeline:1:{column + 1}: {message}\n  {line}\n  {' ' * (column - line_start)}^")

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match
        self.at = match.end()

    def peek(self) -> str:
        self.skip()
        return self.text[self.at : self.at + 1]

    def take(self, char: str) -> None:
        if self.peek() != char:
            self.fail(f"expected '{char}'" + (f", found '{self.peek()}'" if self.peek() else " before the end"))
        self.at += 1

    def parse(self) -> list[Step]:
        steps = self.elements("")
        if self.peek():
            self.fail(f"unexpected '{self.peek()}'")
        return steps

    def elements(self, anchor: str) -> list[Step]:
        steps: list[Step] = []
        if self.peek() in (")", ""):
            return steps
        while True:
            steps += self.element(anchor)
            if self.peek() != ",":
                return steps
            self.at += 1

    def element(self, anchor: str) -> list[Step]:
        self.skip()
        start = self.at
        match = _NAME.match(self.text, self.at)
        if not match:
            self.fail("expected a pass name")
        name = match.group()
        self.at = match.end()
        if self.peek() == "(":
            self.at += 1
            inner = self.elements("" if name == "builtin.module" and not anchor else f"{anchor}({name}" if anchor else name)
            self.take(")")
            return inner
        options = self.options() if self.peek() == "{" else {}
        if name in python_steps():
            if anchor:
                self.fail(f"'{name}' runs on the module, not on '{anchor}'", start)
            return [self.python_step(name, options, start)]
        return [Pass(name, options, anchor)]

    def options(self) -> dict[str, OptionValue]:
        """``{a=1 b="x y" c={nested}}``, values kept as written."""
        start = self.at
        self.at += 1
        found: dict[str, OptionValue] = {}
        while True:
            char = self.peek()
            if char == "":
                self.fail("'{' is never closed", start)
            if char == "}":
                self.at += 1
                return found
            match = re.compile(r"[\w-]+").match(self.text, self.at)
            if not match:
                self.fail("expected an option name")
            self.at = match.end()
            self.take("=")
            found[match.group()] = self.value()

    def value(self) -> str:
        start, depth, quote = self.at, 0, ""
        while self.at < len(self.text):
            char = self.text[self.at]
            if quote:
                quote = "" if char == quote else quote
            elif char in "\"'":
                quote = char
            elif char == "{":
                depth += 1
            elif depth and char == "}":
                depth -= 1
            elif not depth and (char.isspace() or char == "}"):
                break
            self.at += 1
        return self.text[start : self.at].strip("\"'")

    def python_step(self, name: str, options: dict[str, OptionValue], start: int) -> Step:
        cls = load_step(name)
        hints = get_type_hints(cls)
        values: dict[str, Any] = {}
        for key, value in options.items():
            attribute = key.replace("-", "_")
            if attribute not in cls.__dataclass_fields__:
                known = ", ".join(f.replace("_", "-") for f in cls.__dataclass_fields__) or "none"
                self.fail(f"'{name}' has no option '{key}' (its options: {known})", start)
            try:
                values[attribute] = _typed(str(value), hints[attribute])
            except ValueError:
                self.fail(f"'{value}' is not a valid value of '{name}' option '{key}'", start)
        try:
            step: Step = cls(**values)
        except TypeError:
            missing = [f for f in cls.__dataclass_fields__ if f not in values]
            self.fail(f"'{name}' needs the options {', '.join(missing)}", start)
        return step


def _typed(text: str, hint: Any) -> Any:
    if hint is bool:
        if text not in ("true", "false", "1", "0"):
            raise ValueError(text)
        return text in ("true", "1")
    if hint in (int, float, str):
        return hint(text)
    element = getattr(hint, "__args__", (str,))[0]
    return tuple(element(part) for part in text.split(",") if part)
