"""Modules of another build of MLIR: bytecode that only that build reads, with the text it printed.

IREE's compiler has dialects that these bindings do not know.  What it leaves behind after a phase is passed on as bytecode,
complete and with locations, and shown as text; both were written by the same run of the tool.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ForeignModule:
    """A module of another tool: ``bytecode`` is complete, ``text`` is for people, large constants elided.

    ``aside`` is what the tool has written beside it, where that is another module.
    """

    bytecode: bytes = field(repr=False)
    text: str = field(repr=False)
    aside: bytes | None = field(default=None, repr=False)
