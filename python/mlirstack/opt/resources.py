"""External resources of a module's text (``{-# external_resources: {…} #-}``), which mlir-opt hands through to its output.

The bindings drop them with a warning.  In goes the input's text, out come the resources and an output text that holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

DROPPED = "ignoring unknown external resources for "  # how the bindings' warning begins
Resources = dict[str, dict[str, str]]  # owner, then key, to the value as written

_BEGIN = re.compile(r"^[ \t]*\{-#", re.MULTILINE)
_TOKEN = re.compile(r'//[^\n]*|"(?:[^"\\]|\\.)*"|[^\s{}:,"/#]+|[{}:,]')


def external_resources(text: str) -> Resources:
    """The external resources of a module that MLIR accepts; empty where it has none."""
    sections = list(_BEGIN.finditer(text))
    if not sections or "external_resources" not in text:
        return {}
    tokens = iter(t for t in _TOKEN.findall(text, sections[-1].end()) if not t.startswith("//"))
    for token in tokens:
        if token == "external_resources":
            next(tokens, ""), next(tokens, "")  # the colon and the brace
            return {owner: entries for owner, entries in _entries(tokens) if isinstance(entries, dict)}
    return {}


def _entries(tokens: Iterator[str]) -> Iterator[tuple[str, str | dict[str, str]]]:
    """``key: value, … }`` behind an opening brace, a value being a word, a string or such entries again."""
    for key in tokens:
        if key == ",":
            continue
        if key == "}" or next(tokens, "") != ":":
            return
        value = next(tokens, "")
        if value != "{":
            yield key, value
        else:
            yield key, {name: text for name, text in _entries(tokens) if isinstance(text, str)}


def with_resources(text: str, resources: Resources, limit: int | None) -> str:
    """A module's text with ``resources`` in its metadata section, as MLIR prints them.

    Values of more than ``limit`` characters are left out, and owners of nothing else with them.
    """
    owners = []
    for owner, entries in resources.items():
        lines = [f"      {key}: {value}" for key, value in entries.items() if limit is None or len(value) <= limit]
        if lines:
            owners.append(f"    {owner}: {{\n" + ",\n".join(lines) + "\n    }")
    if not owners:
        return text
    section = "  external_resources: {\n" + ",\n".join(owners) + "\n  }\n#-}\n"
    body = text.rstrip()
    if body.endswith("#-}"):  # dialect resources stand there already
        return f"{body.removesuffix('#-}').rstrip()},\n{section}"
    return f"{body}\n\n{{-#\n{section}"
