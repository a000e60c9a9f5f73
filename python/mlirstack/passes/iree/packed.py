"""Modules whose parameters are packed when a bundle is built, not when it is loaded.

IREE computes what depends on parameters alone (layouts for matrix products, transposes) when a module is loaded, and it can
split that off: one module that computes it once, the encoder, and one that reads the result from an archive of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_AS_WRITTEN = re.compile(r"[ !#-\[\]-~]*")  # what MLIR prints without escapes


@dataclass(frozen=True)
class PackedModule:
    """A vmfb (``data``) that reads what its ``encoder``, a vmfb for the machine that builds, makes of the parameters.

    ``strings`` are the literals of the host program, among them the names of the parameters that it reads as they are.
    """

    data: bytes
    encoder: bytes = field(repr=False)
    strings: frozenset[str] = field(repr=False)

    def reads(self, names: Collection[str]) -> list[str]:
        """Which of the parameters it reads as they are; one too many where a name is spelled with escapes."""
        return [name for name in names if name in self.strings or not _AS_WRITTEN.fullmatch(name)]


def strings_of(text: str) -> frozenset[str]:
    """The string literals of a module, as they are written."""
    return frozenset(_STRING.findall(text))
