"""A lint for FileCheck tests: directives that FileCheck silently takes for comments.

Reported are misspelt directives and prefixes (``CHEKC:``, ``CHECK-NXT:``, ``CHECK_NEXT:``), directives without their colon,
directives of a prefix that no RUN line checks, prefixes that no directive uses, and files without a RUN line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mlirstack.filecheck.directives import SUFFIXES, is_directive, run_lines

_WORD = re.compile(r"^(\s*(?://|#|;)?\s*)([A-Z][A-Z0-9_]*(?:[-_][A-Za-z0-9]+)*)(\s*:)?(?=\s|$)")
_RESERVED = (
    "RUN",
    "REQUIRES",
    "UNSUPPORTED",
    "XFAIL",
    "DEFINE",
    "REDEFINE",
    "END",
    "ALLOW_RETRIES",
    "TODO",
    "FIXME",
    "NOTE",
)
_CLOSE = 2  # edits at which a word is taken for a misspelt one


@dataclass(frozen=True)
class Finding:
    """One mistake, with its place (line and column from 1)."""

    path: Path
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.message}"


def lint(path: Path) -> list[Finding]:
    """All mistakes of one test file."""
    text = path.read_text("utf-8", "replace")
    runs = run_lines(text)
    if not runs:
        return [Finding(path, 1, 1, "no RUN line: the file tests nothing")]
    prefixes = {prefix for run in runs for prefix in run.prefixes}
    used: set[str] = set()
    found: list[Finding] = []
    for number, line in enumerate(text.split("\n"), 1):
        match = _WORD.match(line)
        if not match:
            continue
        word, has_colon = match[2], bool(match[3])
        if is_directive(word, prefixes):
            if has_colon:
                used |= {p for p in prefixes if is_directive(word, {p})}
            elif word not in prefixes or match[1].strip():
                found.append(Finding(path, number, match.start(2) + 1, f"'{word}' without a colon is a comment"))
            continue
        message = _mistake(word, has_colon, prefixes) if word not in _RESERVED else None
        if message:
            found.append(Finding(path, number, match.start(2) + 1, message))
    for run in runs:
        found += [
            Finding(path, run.line, 1, f"no directive uses prefix '{prefix}' of this RUN line")
            for prefix in dict.fromkeys(run.prefixes)
            if prefix not in used
        ]
    return sorted(found, key=lambda f: (f.line, f.column))


def _mistake(word: str, has_colon: bool, prefixes: set[str]) -> str | None:
    """What is wrong with a word that is no directive; None where it may well be plain text."""
    normal = word.upper().replace("_", "-")
    if is_directive(normal, prefixes):
        return f"'{word}' is no directive: write {normal}:"
    for prefix in sorted(prefixes, key=len, reverse=True):
        if normal.startswith(f"{prefix}-"):
            suffix = normal.removeprefix(f"{prefix}-")
            close = min(SUFFIXES, key=lambda s: _distance(suffix, s))
            hint = f": did you mean {prefix}-{close}?" if _distance(suffix, close) <= _CLOSE else ""
            if has_colon or hint:
                return f"'{word}' is no directive{hint}"
    base, _, suffix = normal.rpartition("-")
    if suffix not in SUFFIXES:
        base, suffix = normal, ""
    if not has_colon:
        return None
    for prefix in sorted(prefixes):
        if len(prefix) > _CLOSE + 1 and base != prefix and _distance(base, prefix) <= _CLOSE:
            return f"'{word}' is no directive: did you mean {prefix}{'-' + suffix if suffix else ''}?"
    if len(base) > _CLOSE and _distance(base, "RUN") == 1:
        return f"'{word}' is no directive: did you mean RUN?"
    if suffix or base == "CHECK":
        return f"no RUN line checks prefix '{base}'"
    return None


def _distance(left: str, right: str) -> int:
    """Edits between two words: insertion, deletion, replacement, exchange of neighbours (optimal string alignment)."""
    rows = [list(range(len(right) + 1))]
    for i, a in enumerate(left, 1):
        row = [i]
        for j, b in enumerate(right, 1):
            cost = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
