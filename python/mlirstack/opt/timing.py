"""``--mlir-timing``: the bindings' report, completed by what the tool itself did, as a tree, a list or JSON."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_ROW = re.compile(r"^\s*(\d+\.\d+) \(\s*[\d.]+%\)  ( *)(\S.*)$")
_WIDTH = 80
_RULE = f"==={'-' * 73}==="


class _Row(NamedTuple):
    depth: int
    name: str
    seconds: float


@contextmanager
def stderr_to_file() -> Iterator[list[bytes]]:
    """Collect what is written to file descriptor 2 inside the block: the list holds it afterwards."""
    collected: list[bytes] = []
    saved = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield collected
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            collected.append(file.read())


class Report:
    """Collects rows; :meth:`text` prints them."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._rows: list[_Row] = []

    def add(self, name: str, seconds: float) -> None:
        """A row of the tool's own."""
        self._rows.append(_Row(0, name, seconds))

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Take in the report that the bindings print inside the block."""
        with stderr_to_file() as written:
            yield
        for line in written[0].decode().splitlines():
            match = _ROW.match(line)
            if match and match[3] not in ("Rest", "Total"):
                self._rows.append(_Row(len(match[2]) // 2, match[3], float(match[1])))

    def text(self, display: str, form: str) -> str:
        """The report: ``display`` is tree or list, ``form`` text or json."""
        total = max(time.perf_counter() - self._started, 1e-9)
        rest = _Row(0, "Rest", max(total - sum(row.seconds for row in self._rows if not row.depth), 0.0))
        rows = self._listed(total) if display == "list" else self._rows
        if form == "json":
            return _json([*rows, rest, _Row(0, "Total", total)], total)
        lines = [
            _RULE,
            "... Execution time report ...".center(_WIDTH).rstrip(),
            _RULE,
            f"  Total Execution Time: {total:.4f} seconds",
            "",
            "  ----Wall Time----  ----Name----",
        ]
        for row in [*rows, rest, _Row(0, "Total", total)]:
            lines.append(f"  {row.seconds:8.4f} ({100 * row.seconds / total:5.1f}%)  {'  ' * row.depth}{row.name}")
        return "\n".join(lines) + "\n"

    def _listed(self, total: float) -> list[_Row]:
        sums: dict[str, float] = {}
        for row in self._rows:
            sums[row.name] = sums.get(row.name, 0.0) + row.seconds
        ordered = sorted(sums.items(), key=lambda item: -item[1])
        return [_Row(0, "root", total), *(_Row(0, name, seconds) for name, seconds in ordered)]


def _json(rows: list[_Row], total: float) -> str:
    """MLIR's JSON: an array of nested records; the last two, Rest and Total, have no list of passes."""
    text = "[\n"
    for row, following in zip(rows, [*rows[1:], _Row(0, "", 0.0)], strict=True):
        pad = "  " * row.depth
        duration = f'"wall": {{"duration": {row.seconds:8.4f}, "percentage": {100 * row.seconds / total:5.1f}}}'
        text += f'{pad}{{{duration}, "name": "{row.name}"'
        if row.name in ("Rest", "Total"):
            text += "},\n" if row.name == "Rest" else "}\n"
            continue
        text += ', "passes": [\n'
        for depth in range(row.depth, following.depth - 1, -1):
            text += "  " * depth + "{}]},\n"
    return text + "]\n"
