"""The input of the tools: read whole, cut at split markers, and its lines for the snippets under diagnostics."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from mlirstack.opt.flags import FlagError

BYTECODE_MAGIC = b"ML\xefR"
_SUFFIX = 2  # characters of a split marker that may be missing in a near miss


class Place(NamedTuple):
    """A position in a file, line and column from 1 (0:0 for a whole file)."""

    file: str
    line: int
    column: int


class Source(NamedTuple):
    """An input: the name that locations show, its path (None: stdin), and its bytes."""

    name: str
    path: Path | None
    data: bytes

    @property
    def is_bytecode(self) -> bool:
        """Is it MLIR bytecode?"""
        return self.data.startswith(BYTECODE_MAGIC)


class Chunk(NamedTuple):
    """A part of a source: line and column (from 1) where it starts in the file, and its bytes."""

    source: Source
    line: int
    column: int
    data: bytes

    @property
    def whole(self) -> bool:
        """Is it the entire source?"""
        return len(self.data) == len(self.source.data)

    def text(self) -> str:
        """The chunk's own text."""
        return self.data.decode("utf-8", "surrogateescape")

    def placed_text(self) -> str:
        """The text after as many lines and columns as stand before it in the file, so that locations are the file's."""
        return "\n" * (self.line - 1) + " " * (self.column - 1) + self.text()


def read_source(name: str) -> Source:
    """Read a file, or stdin for '-'; :class:`FlagError` where it cannot be read."""
    if name == "-":
        return Source("<stdin>", None, sys.stdin.buffer.read())
    path = Path(name)
    try:
        return Source(name, path, path.read_bytes())
    except OSError as error:
        raise FlagError(f"cannot open input file '{name}': {error.strerror}") from None


def split(source: Source, marker: str | None) -> tuple[list[Chunk], list[Place]]:
    """The parts between split markers, and the near misses: where most of a marker stands.

    As in MLIR a marker may stand anywhere in a line; two characters less of it, one more of its last, or the end of the
    file right after it make a near miss.  The entire source is one part where ``marker`` is None, and bytecode always is.
    """
    if marker is None or source.is_bytecode:
        return [Chunk(source, 1, 1, source.data)], []
    data, whole = source.data, marker.encode()
    prefix = whole[:-_SUFFIX] or whole
    chunks: list[Chunk] = []
    near_misses: list[Place] = []
    start = at = 0
    while (at := data.find(prefix, at)) >= 0:
        end = at + len(whole)
        if data.startswith(whole, at) and end < len(data) and data[end] != whole[-1]:
            chunks.append(_chunk(source, start, at))
            start = end
        elif end < len(data):
            near_misses.append(Place(source.name, *_position(data, at + len(prefix))))
        at += len(prefix)
    chunks.append(_chunk(source, start, len(data)))
    return chunks, near_misses


def _position(data: bytes, offset: int) -> tuple[int, int]:
    return data.count(b"\n", 0, offset) + 1, offset - data.rfind(b"\n", 0, offset)


def _chunk(source: Source, start: int, end: int) -> Chunk:
    return Chunk(source, *_position(source.data, start), source.data[start:end])
