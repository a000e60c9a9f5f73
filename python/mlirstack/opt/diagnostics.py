"""Diagnostics on stderr as MLIR's tools print them: ``file:line:column: severity: message``, the line, and a caret."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mlirstack.opt.source import Place, Source

_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_CALL_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|callsite\(|\(|\)| at ')
_ANONYMOUS = "-"  # the file name of a buffer that was parsed without one
_OPERATION_NOTE = "see current operation: "
_DEPTH = 10  # of a printed call stack


FRAME = (b"\x01\n", b"\x02\n")
_framed = False


def frame_messages() -> None:
    """From now on mark what :func:`emit` writes, for :mod:`mlirstack.opt.dumps` to tell it from dumps of IR."""
    global _framed  # noqa: PLW0603
    _framed = True


def emit(text: str) -> None:
    """Write to stderr without a buffer, in order with what native code writes there."""
    data = text.encode("utf-8", "surrogateescape")
    if _framed:
        data = FRAME[0] + data + FRAME[1]
    while data:
        data = data[os.write(2, data) :]


def severity(diagnostic: Any) -> str:
    """'error', 'warning', 'remark' or 'note'."""
    return str(diagnostic.severity).rsplit(".", 1)[-1].lower()


def places(location: Any, source_name: str) -> list[Place | None]:
    """The position of a location, followed by those of its callers; None where a caller is unknown.

    The anonymous buffer stands for the source.  Of several call stacks, fused into one location, the first counts.
    """
    text: str | None = str(location)
    found: list[Place | None] = []
    while text is not None and len(found) <= _DEPTH:
        match = _FILE.search(text)
        if match:
            file = match[1].replace('\\"', '"')
            found.append(Place(source_name if file == _ANONYMOUS else file, int(match[2]), int(match[3])))
        elif not found:
            break
        else:
            found.append(None)
        text = _caller(text)
    return found


def _caller(text: str) -> str | None:
    """The location after the `` at `` of the first ``callsite(… at …)`` in ``text``; None where there is none."""
    tokens = _CALL_TOKEN.finditer(text)
    if not any(token[0] == "callsite(" for token in tokens):  # moves on behind it
        return None
    depth, start = 1, 0
    for token in tokens:
        depth += token[0].endswith("(") - (token[0] == ")")
        if token[0] == " at " and depth == 1:
            start = token.end()
        elif depth == 0:
            return text[start : token.start()]
    return None


def snippet(lines: dict[str, list[str]], place: Place, width: int = 1) -> str:
    """The line of a place with a caret under its column; empty where the file cannot be read."""
    if place.file not in lines:
        try:
            lines[place.file] = Path(place.file).read_text("utf-8", "surrogateescape").split("\n")
        except (OSError, ValueError):
            lines[place.file] = []
    if not 0 < place.line <= len(lines[place.file]):
        return ""
    line = lines[place.file][place.line - 1].rstrip("\r")
    before = line[: max(place.column - 1, 0)].expandtabs(8)
    return f"{line.expandtabs(8)}\n{' ' * len(before)}^{'~' * (width - 1)}\n"


class Printer:
    """A diagnostic handler that prints; ``errors`` counts the errors it saw."""

    def __init__(self, source: Source, *, verbosity: str = "remarks", notes: bool = True, operation: bool = True) -> None:
        self.source = source
        self.shown = {"errors": ("error",), "warnings": ("error", "warning")}.get(verbosity, ("error", "warning", "remark"))
        self.notes = notes
        self.operation = operation
        self.errors = 0
        self._lines: dict[str, list[str]] = {}
        if not source.is_bytecode:
            self._lines[source.name] = source.data.decode("utf-8", "surrogateescape").split("\n")

    def __call__(self, diagnostic: Any) -> bool:
        kind = severity(diagnostic)
        self.errors += kind == "error"
        if kind not in self.shown:
            return True
        location = str(diagnostic.location)
        self.print(location, kind, diagnostic.message, callers=True)
        for note in diagnostic.notes if self.notes else ():
            if note.message.startswith(_OPERATION_NOTE) and not self.operation:
                continue
            place = str(note.location)
            self.print(place, "note", note.message, show_line=place != location)
            location = place
        return True

    def print(self, location: str, kind: str, message: str, *, show_line: bool = True, callers: bool = False) -> None:
        """Print one message at a location given as MLIR text."""
        found = places(location, self.source.name)
        if not found or found[0] is None:
            where = "" if location in ("loc(unknown)", "") else f"{location}: "
            emit(f"<unknown>:0: {kind}: {where}{message}\n")
            return
        self.at(found[0], kind, message, show_line)
        for caller in found[1:] if callers else ():
            if caller is None:
                emit("<unknown>:0: note: called from\n")
            else:
                self.at(caller, "note", "called from", True)

    def at(self, place: Place, kind: str, message: str, show_line: bool = True) -> None:
        """Print one message at a place, with the line that stands there."""
        line = snippet(self._lines, place) if show_line else ""
        emit(f"{place.file}:{place.line}:{place.column}: {kind}: {message}\n{line}")
