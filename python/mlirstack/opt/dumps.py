"""Dumps of IR between passes: only those of the passes asked for, and which pass a dump stood before."""

from __future__ import annotations

import re
from typing import NamedTuple

from mlirstack.opt.diagnostics import FRAME
from mlirstack.opt.flags import Invocation

_HEADER = re.compile(
    rb"// -----// IR Dump (Before|After) (\S+?)(?: Failed)?: ([\w.-]+)(.*?)"
    rb"(?: \('([\w.]+)' operation(?:: (@\S+))?\))? //----- //\s*$"
)
_REPORT = b"===-----"


class Dump(NamedTuple):
    """The header of a dump: when, the pass's class, its argument and options, and the op that it ran on if it says so."""

    when: str
    name: str
    argument: str
    options: str
    op: str | None
    symbol: str | None


def header(line: bytes) -> Dump | None:
    """The header that ``line`` is, or None."""
    match = _HEADER.match(line)
    if not match:
        return None
    when, name, argument, options, op, symbol = (g.decode() if g else "" for g in match.groups())
    return Dump(when, name, argument, options.strip(), op or None, symbol or None)


def is_filtered(invocation: Invocation) -> bool:
    """Are dumps of some passes only asked for?"""
    return bool(invocation.names("mlir-print-ir-before") or invocation.names("mlir-print-ir-after"))


class Filter:
    """Passes through what a process writes to stderr, except the dumps of passes that were not asked for."""

    def __init__(self, invocation: Invocation) -> None:
        self._wanted = {
            when: None if all_of else set(invocation.names(f"mlir-print-ir-{when.lower()}"))
            for when, all_of in (
                ("Before", invocation.on("mlir-print-ir-before-all")),
                ("After", invocation.on("mlir-print-ir-after-all")),
            )
        }
        self._showing = True
        self._in_message = False

    def wants(self, dump: Dump) -> bool:
        """Was this dump asked for?"""
        wanted = self._wanted[dump.when]
        return wanted is None or dump.argument in wanted

    def line(self, line: bytes) -> bytes:
        """What to show of the next line."""
        if line in FRAME:
            self._in_message = line == FRAME[0]
            self._showing = True  # a message ends a dump
            return b""
        if not self._in_message:
            dump = header(line)
            if dump:
                self._showing = self.wants(dump)
            elif line.startswith(_REPORT):
                self._showing = True
        return line if self._showing else b""
