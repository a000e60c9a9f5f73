"""MLIR locations as plain Python data: which lines of the user's program an operation comes from.

A location goes in, the call stacks it holds come out, innermost line first.  torch-mlir gives every operation the stack of
Python calls that led to it; fusing operations fuses their locations, so that one operation can come from several lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mlirstack.bindings import ir
from mlirstack.errors import SourceLine

_LIBRARY = "/site-packages/torch/"  # frames inside torch itself say nothing to the user
_NOWHERE = ("-", "<eval_with_key>")  # text that was parsed from memory


@dataclass(frozen=True)
class Origin:
    """One place that an operation comes from: the calls that led to it, innermost first.

    The column of a line of a Torch model is the line of the FX node in the exported graph's text (0: none), because Torch
    knows no columns: see :class:`mlirstack.frontend.import_fx.ImportFx`.
    """

    frames: tuple[SourceLine, ...]

    @property
    def line(self) -> SourceLine:
        """The innermost line of the user's program; a line inside torch only if there is no other."""
        return next(iter(self.user_frames), self.frames[0])

    @property
    def user_frames(self) -> tuple[SourceLine, ...]:
        """The frames outside torch."""
        return tuple(frame for frame in self.frames if _LIBRARY not in frame.file)


def origins(location: Any) -> tuple[Origin, ...]:
    """The places that ``location`` (a Location, or its text) names, in order, each once; empty where it names none."""
    return _origins(str(location))


@lru_cache(maxsize=65536)
def _origins(text: str) -> tuple[Origin, ...]:
    body = text[4:-1] if text.startswith("loc(") else text
    stacks = (tuple(f for f in frames if f.file not in _NOWHERE) for frames in _Scanner(body).location())
    return tuple(dict.fromkeys(Origin(frames) for frames in stacks if frames))


def first_origin(location: Any) -> Origin | None:
    """The first of the :func:`origins` of a Location; the others, of which repeated layers have many, are not read."""
    stacks = (tuple(frame for frame in frames if frame.file not in _NOWHERE) for frames in _stacks(location))
    return next((Origin(frames) for frames in stacks if frames), None)


def _stacks(location: Any) -> Iterator[tuple[SourceLine, ...]]:
    """The call stacks that a Location holds, in order."""
    if isinstance(location, ir.FileLineColLoc):
        yield (SourceLine(location.filename, location.start_line, location.start_col),)
    elif isinstance(location, ir.CallSiteLoc):
        for callee in _one_or_more(_stacks(location.callee)):
            for caller in _one_or_more(_stacks(location.caller)):
                yield callee + caller
    elif isinstance(location, ir.FusedLoc):
        for part in location.locations:
            yield from _stacks(part)
    elif isinstance(location, ir.NameLoc):
        yield from _stacks(location.child_loc)


def _one_or_more(stacks: Iterator[tuple[SourceLine, ...]]) -> Iterator[tuple[SourceLine, ...]]:
    """``stacks``, or one of no calls where there is none."""
    yield next(stacks, ())
    yield from stacks


def names_a_line(location: Any) -> bool:
    """Does ``location`` have :func:`origins`?  Told without reading them."""
    if isinstance(location, ir.FileLineColLoc):
        return location.filename not in _NOWHERE
    if isinstance(location, ir.CallSiteLoc):
        return names_a_line(location.callee) or names_a_line(location.caller)
    if isinstance(location, ir.FusedLoc):
        return any(names_a_line(part) for part in location.locations)
    return isinstance(location, ir.NameLoc) and names_a_line(location.child_loc)


class OriginCache:
    """:func:`origins` of operations: a module has many of them, and few locations."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Origin, ...]] = {}

    def __call__(self, op: Any) -> tuple[Origin, ...]:
        """The places that ``op`` comes from."""
        return self.of(op.location)

    def of(self, location: Any) -> tuple[Origin, ...]:
        """The places that a location names."""
        key = location.attr  # equal locations are equal in Python, but do not hash equal
        if key not in self._known:
            self._known[key] = origins(location)
        return self._known[key]


def fused_location(locations: Iterable[Any], context: Any) -> Any:
    """One location that holds all of ``locations``; unknown if there is none."""
    distinct = list({location.attr: location for location in locations}.values())
    if len(distinct) == 1:
        return distinct[0]
    return ir.Location.fused(distinct, context=context) if distinct else ir.Location.unknown(context)


_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_NAMED = re.compile(_STRING.pattern + r"(?::(\d+)(?::(\d+))?(?: to [:\d]*)?)?")


class _Scanner:
    """Reads the text of a location (MLIR's grammar of location attributes), from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def location(self) -> list[tuple[SourceLine, ...]]:
        """The call stacks of the location that begins here."""
        if self._take("callsite("):
            callees = self.location()
            self._take(" at ")
            callers = self.location()
            self._take(")")
            return [callee + caller for callee in callees or [()] for caller in callers or [()]]
        if self._take("fused"):
            if self._take("<"):
                self._skip_metadata()
            self._take("[")
            found = []
            while not self._take("]"):
                found += self.location()
                if not self._take(", ") and not self.text.startswith("]", self.at):
                    break
            return found
        if self.text.startswith('"', self.at):
            return self._named()
        self.at += len("unknown")
        return []

    def _named(self) -> list[tuple[SourceLine, ...]]:
        """``"file":line:column``, also with an end, or ``"name"(location)``."""
        found = _NAMED.match(self.text, self.at)
        if found is None:  # no text of MLIR's
            self.at = len(self.text)
            return []
        self.at = found.end()
        name, line, column = found.groups()
        if line is None:
            inner = self.location() if self._take("(") else []
            self._take(")")
            return inner
        return [(SourceLine(name, int(line), int(column or 0)),)]

    def _take(self, word: str) -> bool:
        found = self.text.startswith(word, self.at)
        self.at += len(word) if found else 0
        return found

    def _skip_metadata(self) -> None:
        depth = 1
        while depth and self.at < len(self.text):
            string = _STRING.match(self.text, self.at)
            if string is not None:
                self.at = string.end()
                continue
            depth += {"<": 1, ">": -1}.get(self.text[self.at], 0)
            self.at += 1
