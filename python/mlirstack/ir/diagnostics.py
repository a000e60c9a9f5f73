"""MLIR diagnostics and locations as plain Python data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlirstack.errors import Diagnostic, SourceLine

_FILE_LOCATION = re.compile(r'"([^"]+)":(\d+):(\d+)')


def source_line(location: Any) -> SourceLine | None:
    """The innermost ``file:line`` of an MLIR location (a Location, or its text), or None where there is none.

    torch-mlir writes the whole Python stack as nested call sites, innermost first.  Frames inside torch itself say
    nothing to the user and are passed over when another frame is there.
    """
    found = [SourceLine(f, int(line), int(column)) for f, line, column in _FILE_LOCATION.findall(str(location))]
    for candidate in found:
        if "/site-packages/torch/" not in candidate.file and candidate.file not in ("-", "<eval_with_key>"):
            return candidate
    return found[0] if found else None


def _convert(diagnostic: Any) -> Diagnostic:
    severity = str(diagnostic.severity).rsplit(".", 1)[-1].lower()
    location = str(diagnostic.location)
    return Diagnostic(
        severity, diagnostic.message, location, source_line(location), tuple(_convert(n) for n in diagnostic.notes)
    )


@contextmanager
def collect_diagnostics(context: Any) -> Iterator[list[Diagnostic]]:
    """Collect all diagnostics that ``context`` emits inside the block, instead of printing them to stderr."""
    collected: list[Diagnostic] = []

    def handler(diagnostic: Any) -> bool:
        collected.append(_convert(diagnostic))
        return True

    handle = context.attach_diagnostic_handler(handler)
    try:
        yield collected
    finally:
        handle.detach()
