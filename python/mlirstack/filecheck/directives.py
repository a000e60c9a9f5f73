"""FileCheck tests as data: RUN lines with the prefixes they check, and directives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = ("NEXT", "SAME", "NOT", "DAG", "LABEL", "EMPTY")
_RUN = re.compile(r"\bRUN:\s*(.*?)\s*(\\)?$")
_PREFIXES = re.compile(r"--?check-prefix(?:es)?[= ]\s*([\w,-]+)")


@dataclass(frozen=True)
class RunLine:
    """One RUN command: its line in the file (from 1), its text with continuations joined, the prefixes that it checks."""

    line: int
    command: str
    prefixes: tuple[str, ...]

    @property
    def producer(self) -> str:
        """The command up to ``| FileCheck``."""
        return re.split(r"\|\s*FileCheck\b", self.command)[0].strip()


def run_lines(text: str) -> list[RunLine]:
    """All RUN commands of a test; ``prefixes`` is empty where no FileCheck is run."""
    found: list[RunLine] = []
    pending, start = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        match = _RUN.search(line)
        if not match:
            continue
        start = start or number
        pending = f"{pending} {match[1]}".strip()
        if match[2]:
            continue
        prefixes: list[str] = []
        for part in re.split(r"\|\||&&|;|\|", pending):
            if re.search(r"(?:^|\s)FileCheck\b", part):
                given = [p for group in _PREFIXES.findall(part) for p in group.split(",") if p]
                prefixes += given or ["CHECK"]
        found.append(RunLine(start, pending, tuple(prefixes)))
        pending, start = "", 0
    return found


def is_directive(word: str, prefixes: set[str]) -> bool:
    """Is ``word`` (without its colon) a directive of one of ``prefixes``?"""
    for prefix in prefixes:
        if word == prefix:
            return True
        suffix = word.removeprefix(f"{prefix}-")
        if suffix != word and (suffix in SUFFIXES or re.fullmatch(r"COUNT-\d+", suffix)):
            return True
    return False


def test_files(paths: list[Path]) -> list[Path]:
    """The FileCheck tests at and below ``paths``: ``.mlir`` and ``.test`` files outside of Inputs and Output folders."""
    found: list[Path] = []
    for path in paths:
        candidates = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in (".mlir", ".test"))
        found += [c for c in candidates if path.is_file() or not {"Inputs", "Output"} & set(c.relative_to(path).parts)]
    return found
