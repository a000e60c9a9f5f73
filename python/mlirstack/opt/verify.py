"""``--verify-diagnostics``: what was reported against the ``expected-*`` comments of the input.

``expected-error|warning|remark|note``, then optionally ``-re`` (``{{…}}`` inside the message is a regular expression) and
``@+N``, ``@-N``, ``@above``, ``@below``, ``@unknown``, then the message, or a part of it, in double braces.  One comment
may match several diagnostics; one that matches none, or a diagnostic that matches no comment, is a failure.
"""

from __future__ import annotations

import re
from typing import Any

from mlirstack.opt.diagnostics import emit, places, severity, snippet
from mlirstack.opt.source import Chunk, Place

_COMMENT = re.compile(r"expected-(error|note|remark|warning)(-re)? *(@([+-][0-9]+|above|below|unknown))? *\{\{(.*)\}\}$")
_OPERATION_NOTE = "see current operation: "


class _Expected:
    """One comment: severity, the line it speaks of (None: unknown location), the message, and where it stands itself."""

    def __init__(self, kind: str, line: int | None, message: str, pattern: re.Pattern[str] | None, at: Place) -> None:
        self.kind = kind
        self.line = line
        self.message = message
        self.pattern = pattern
        self.at = at
        self.matched = False

    def matches(self, message: str) -> bool:
        """Does the comment speak of this message?"""
        return bool(self.pattern.search(message)) if self.pattern else self.message in message


class Verifier:
    """A diagnostic handler that compares; :meth:`finish` says whether all is as expected."""

    def __init__(self, chunk: Chunk, level: str) -> None:
        self.name = chunk.source.name
        self.strict = level == "all"
        self.failed = False
        self.start = chunk.line
        text = chunk.source.data.decode("utf-8", "surrogateescape")
        self._lines = {self.name: text.split("\n")}
        self._expected: dict[str, list[_Expected]] = {self.name: self._scan(self.name, chunk.placed_text())}

    def __call__(self, diagnostic: Any) -> bool:
        self._process(severity(diagnostic), str(diagnostic.location), diagnostic.message)
        for note in diagnostic.notes:
            if not note.message.startswith(_OPERATION_NOTE):  # mlir-opt switches these off when it verifies
                self._process("note", str(note.location), note.message)
        return True

    def finish(self) -> bool:
        """Report the comments that matched nothing; True if there were none, nor any unexpected diagnostic."""
        for expected in (e for comments in self._expected.values() for e in comments if not e.matched):
            missing = f'expected {expected.kind} "{expected.message}" was not produced'
            if expected.line is None:
                self._fail(None, missing)
            else:
                self._fail(expected.at, missing, len(expected.message))
        return not self.failed

    def _scan(self, name: str, text: str) -> list[_Expected]:
        found: list[_Expected] = []
        above = 1  # the last line without a comment of its own
        below: list[_Expected] = []  # waiting for the next such line
        for number, line in enumerate(text.split("\n"), 1):
            match = _COMMENT.search(line.rstrip("\r"))
            if not match:
                above = number
                for expected in below:
                    expected.line = number
                below.clear()
                continue
            kind, regex, where, message = match[1], match[2], match[4], match[5]
            at = Place(name, number, match.start() + 1)
            pattern = self._pattern(message, at) if regex else None
            if regex and pattern is None:
                continue
            line_of: int | None = number
            if where == "unknown":
                line_of = None
            elif where == "above":
                line_of = above
            elif where and where != "below":
                line_of = number + int(where)
            expected = _Expected(kind, line_of, message, pattern, at)
            if where == "below":
                below.append(expected)
            found.append(expected)
        return found

    def _pattern(self, message: str, at: Place) -> re.Pattern[str] | None:
        parts: list[str] = []
        rest = message
        while rest:
            literal, opened, rest = rest.partition("{{")
            parts.append(re.escape(literal))
            if not opened:
                break
            regex, closed, rest = rest.partition("}}")
            if not closed:
                self._fail(at, "found start of regex with no end '}}'", len(message))
                return None
            try:
                re.compile(_posix(regex))
            except re.error as error:
                self._fail(at, f"invalid regex: {_llvm_word(error.msg)}", len(message))
                return None
            parts.append(f"(?:{_posix(regex)})")
        return re.compile("".join(parts))

    def _process(self, kind: str, location: str, message: str) -> None:
        found = places(location, self.name)
        place = found[0] if found else None
        if place and place.line == 0 and place.file == self.name and self.start > 1:  # the whole of a part
            place = place._replace(line=self.start)
        near: _Expected | None = None
        for expected in self._of_file(self.name if place is None else place.file):
            if expected.line != (None if place is None else place.line) or not expected.matches(message):
                continue
            if expected.kind == kind:
                expected.matched = True
                return
            near = expected
        if near is not None:
            self._fail(near.at, f"'{kind}' diagnostic emitted when expecting a '{near.kind}'")
        elif self.strict:
            self._fail(place, f"unexpected {kind}: {message}")

    def _of_file(self, name: str) -> list[_Expected]:
        """The comments of a file, which is read when the first diagnostic speaks of it (a schedule, for instance)."""
        if name not in self._expected:
            snippet(self._lines, Place(name, 1, 1))
            self._expected[name] = self._scan(name, "\n".join(self._lines[name]))
        return self._expected[name]

    def _fail(self, place: Place | None, message: str, width: int = 1) -> None:
        self.failed = True
        if place is None:
            emit(f"<unknown>:0: error: {message}\n")
        else:
            emit(f"{place.file}:{place.line}:{place.column}: error: {message}\n{snippet(self._lines, place, width)}")


_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "space": r"\s",
    "xdigit": "0-9a-fA-F", "punct": r"!-/:-@\[-`{-~",
}  # fmt: skip


_REGEX_ERRORS = {
    "missing ), unterminated subpattern": "parentheses not balanced",
    "unbalanced parenthesis": "parentheses not balanced",
    "unterminated character set": "brackets ([ ]) not balanced",
    "nothing to repeat": "repetition-operator operand invalid",
    "multiple repeat": "repetition-operator operand invalid",
    "min repeat greater than max repeat": "invalid repetition count(s)",
    "bad escape (end of pattern)": "trailing backslash (\\)",
}


def _llvm_word(message: str) -> str:
    """Python's message about a regular expression in LLVM's words."""
    return _REGEX_ERRORS.get(message, message)


def _posix(pattern: str) -> str:
    """A POSIX extended regular expression in Python's spelling: character classes; the rest is the same."""
    return re.sub(r"\[:(\w+):\]", lambda m: _CLASSES.get(m[1], m[0]), pattern)
