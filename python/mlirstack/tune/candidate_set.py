"""A directory of built candidates, as data: what ``mlirstack tune build`` leaves and ``mlirstack tune run`` measures.

``problems.json`` lists the problems; each has a directory with its module (``problem.mlir``) and one bundle per candidate,
named by its number.  Needs no MLIR.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlirstack.errors import UsageError

FORMAT = 1
INDEX, MODULE = "problems.json", "problem.mlir"

Entry = dict[str, Any]  # {"name": emitter, parameter: value, …}, as in a tuning table


@dataclass(frozen=True)
class StoredCandidate:
    """A schedule; ``skipped`` says why it could not be built, None if it was."""

    choice: Entry
    skipped: str | None = None


@dataclass(frozen=True)
class StoredProblem:
    """A problem in ``directory``; the first candidate is the schedule that is taken without measurements."""

    directory: str
    key: str
    bucket: str
    model: str
    candidates: tuple[StoredCandidate, ...]


@dataclass(frozen=True)
class CandidateSet:
    """All problems for one architecture."""

    arch: str
    problems: tuple[StoredProblem, ...]

    def write(self, directory: Path) -> None:
        """Write ``problems.json``."""
        data = {"format": FORMAT, **dataclasses.asdict(self)}
        (directory / INDEX).write_text(json.dumps(data, indent=1) + "\n")

    @staticmethod
    def read(directory: Path) -> CandidateSet:
        """Inverse of :meth:`write`; :class:`UsageError` where there is none, or of another version."""
        file = directory / INDEX
        try:
            data = json.loads(file.read_text())
            version = data["format"]
            if version == FORMAT:
                return CandidateSet(data["arch"], tuple(_problem(entry) for entry in data["problems"]))
        except FileNotFoundError:
            hint = "build one: mlirstack tune build MODEL --out DIR"
            raise UsageError(f"{directory} holds no candidates: no {INDEX}", hint=hint) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"cannot read {file}: {error}", hint="build the candidates again") from error
        raise UsageError(f"{file} has format {version}, this version reads {FORMAT}", hint="build the candidates again")


def describe(choice: Entry) -> str:
    """A choice in one line: ``rows threads=256 unroll=2``."""
    return " ".join([str(choice["name"]), *(f"{key}={value}" for key, value in choice.items() if key != "name")])


def _problem(data: dict[str, Any]) -> StoredProblem:
    return StoredProblem(**{**data, "candidates": tuple(StoredCandidate(**entry) for entry in data["candidates"])})
