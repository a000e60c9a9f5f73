"""Machine code that a linker has moved: found again by everything but the addresses that it filled in.

Objects for processors are linked into IREE's own file, which keeps the bytes of every function as they are but for the
fields that relocations name.  Descriptions are plain data; light, for machines that hold no compiler.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from mlirstack.passes.elf import ElfObject

_FIELD = 4  # bytes that a relocation of position-independent x86-64 code fills in
_ANCHOR = 32  # bytes that a search begins with


def describe_code(data: bytes) -> dict[str, Any]:
    """The functions of an object, by name: how many bytes, where addresses will be, and what all others are."""
    elf = ElfObject.parse(data)
    found: dict[str, Any] = {}
    for symbol in elf.functions():
        code = elf.section_bytes(symbol.section)[symbol.value : symbol.value + symbol.size]
        inside = (offset - symbol.value for offset in elf.relocations(symbol.section))
        holes = sorted(offset for offset in inside if 0 <= offset < symbol.size)
        begin, end = _longest_piece(holes, symbol.size)
        anchor = code[begin : min(end, begin + _ANCHOR)].hex()
        found[symbol.name] = {
            "bytes": symbol.size, "holes": holes, "anchor": [begin, anchor], "sha256": _without(code, holes)
        }  # fmt: skip
    return found


def find_code(data: bytes, described: Mapping[str, Any]) -> int | None:
    """Where in ``data`` a function begins; None where it is not."""
    begin, anchor = described["anchor"]
    pattern, place = bytes.fromhex(anchor), -1
    while (place := data.find(pattern, place + 1)) >= 0:
        first = place - begin
        if first >= 0 and _without(data[first : first + described["bytes"]], described["holes"]) == described["sha256"]:
            return first
    return None


def _longest_piece(holes: list[int], size: int) -> tuple[int, int]:
    """Begin and end of the longest part without a hole."""
    begins, ends = [0, *(hole + _FIELD for hole in holes)], [*holes, size]
    return max(zip(begins, ends, strict=True), key=lambda piece: piece[1] - piece[0])


def _without(code: bytes, holes: Iterable[int]) -> str:
    """Checksum of ``code`` with zeros in its holes."""
    masked = bytearray(code)
    for hole in holes:
        masked[hole : hole + _FIELD] = bytes(_FIELD)
    return hashlib.sha256(masked).hexdigest()
