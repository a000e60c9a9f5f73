"""Reading a relocatable ELF64 object: sections, symbols, relocations.  Bytes come in, plain records go out; no tool of the
system is needed, so an object can be inspected wherever it is loaded."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mlirstack.errors import BundleError

_SYMTAB, _RELA = 2, 4
_FUNCTION = 2
_UNDEFINED = 0


@dataclass(frozen=True)
class Section:
    """One section: its bytes' place in the file, and which section ``info`` a relocation section applies to."""

    name: str
    kind: int
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True)
class Symbol:
    """One symbol: ``value`` is its offset in section number ``section`` (0: undefined)."""

    name: str
    value: int
    size: int
    section: int
    is_function: bool


@dataclass(frozen=True)
class Relocation:
    """At ``offset`` of the section it applies to, the address of ``symbol`` plus ``addend`` is filled in."""

    offset: int
    symbol: str
    addend: int


@dataclass(frozen=True)
class ElfObject:
    """A parsed object; :meth:`parse` makes one."""

    data: bytes
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]

    @staticmethod
    def parse(data: bytes) -> ElfObject:
        """Parse the bytes of a little-endian ELF64 relocatable object; :class:`BundleError` for anything else."""
        if data[:6] != b"\x7fELF\x02\x01":
            raise BundleError("not a 64-bit little-endian ELF object")
        try:
            sections = _sections(data)
            return ElfObject(data, sections, _symbols(data, sections))
        except (struct.error, IndexError) as error:
            raise BundleError(f"damaged ELF object: {error}") from None

    def section_bytes(self, index: int) -> bytes:
        """The content of one section."""
        section = self.sections[index]
        return self.data[section.offset : section.offset + section.size]

    def undefined(self) -> tuple[str, ...]:
        """Names that the object needs from elsewhere, sorted."""
        return tuple(sorted(s.name for s in self.symbols if s.section == _UNDEFINED and s.name))

    def functions(self) -> list[Symbol]:
        """Defined functions by section and address."""
        found = [s for s in self.symbols if s.is_function and s.section != _UNDEFINED]
        return sorted(found, key=lambda s: (s.section, s.value))

    def constant(self, name: str) -> bytes:
        """The bytes of a defined data symbol; KeyError if there is none."""
        for symbol in self.symbols:
            if symbol.name == name and symbol.section != _UNDEFINED:
                content = self.section_bytes(symbol.section)
                return content[symbol.value : symbol.value + symbol.size]
        raise KeyError(name)

    def relocations(self, section: int) -> dict[int, Relocation]:
        """Relocations that apply to section number ``section``, by offset."""
        found: dict[int, Relocation] = {}
        for candidate in self.sections:
            if candidate.kind != _RELA or candidate.info != section:
                continue
            for at in range(candidate.offset, candidate.offset + candidate.size, 24):
                offset, info, addend = struct.unpack_from("<QQq", self.data, at)
                symbol = self.symbols[info >> 32]
                name = symbol.name or self.sections[symbol.section].name
                found[offset] = Relocation(offset, name, addend)
        return found


def _name(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def _sections(data: bytes) -> tuple[Section, ...]:
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_size) for i in range(count)]
    names = data[headers[names_index][4] : headers[names_index][4] + headers[names_index][5]]
    return tuple(Section(_name(names, h[0]), h[1], h[4], h[5], h[6], h[7]) for h in headers)


def _symbols(data: bytes, sections: tuple[Section, ...]) -> tuple[Symbol, ...]:
    found: list[Symbol] = []
    for section in sections:
        if section.kind != _SYMTAB:
            continue
        strings = sections[section.link]
        names = data[strings.offset : strings.offset + strings.size]
        for at in range(section.offset, section.offset + section.size, 24):
            name, info, _, index, value, size = struct.unpack_from("<IBBHQQ", data, at)
            # Index 0xFFF1 and above is reserved: absolute and common symbols belong to no section.
            found.append(Symbol(_name(names, name), value, size, min(index, len(sections)), info & 15 == _FUNCTION))
    return tuple(found)
