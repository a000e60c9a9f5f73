"""Debug lines past MLIR: in LLVM IR, in PTX, in x86-64 objects and in cubins.

Lines of a listing go in; for each line (counted from 1) come out the function it is in and the line of the model that the
compiler gave it.  Machine code is looked up by address in the DWARF line table of the object it was disassembled from.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from mlirstack.errors import MissingDependencyError, SourceLine
from mlirstack.passes.elf import ElfObject


@dataclass(frozen=True)
class Located:
    """Function and source line of each line that has one, and how many lines of code there are in all."""

    lines: dict[int, tuple[str, SourceLine | None]] = field(repr=False)
    total: int


# -------------------------------------------------------------------------------------------------------------- LLVM IR


def of_llvm_ir(text: list[str]) -> Located:
    """``!dbg`` of each instruction, by the metadata at the end of the text."""
    nodes = {name: body for line in text if line.startswith("!") for name, _, body in [line.partition(" = ")]}
    resolved: dict[str, SourceLine | None] = {}
    found: dict[int, tuple[str, SourceLine | None]] = {}
    function, total = "", 0
    for number, line in enumerate(text, 1):
        if line.startswith("define "):
            function = line.partition("@")[2].partition("(")[0].strip('"')
        elif line.startswith("}"):
            function = ""
        elif function and line.startswith("  "):
            total += 1
            name = line.rpartition("!dbg ")[2].split(",")[0].strip() if "!dbg " in line else ""
            if name in nodes:
                if name not in resolved:
                    resolved[name] = _location(nodes, nodes[name])
                found[number] = (function, resolved[name])
    return Located(found, total)


def _location(nodes: dict[str, str], body: str) -> SourceLine | None:
    """The line that a ``!DILocation`` names, with the file of its scope."""
    fields = _fields(body)
    file = _file_of(nodes, fields.get("scope", ""))
    return SourceLine(file, int(fields.get("line", 0)), int(fields.get("column", 0))) if file else None


def _file_of(nodes: dict[str, str], scope: str) -> str:
    fields = _fields(nodes.get(scope, ""))
    file = _fields(nodes.get(fields.get("file", ""), ""))
    name, folder = file.get("filename", "").strip('"'), file.get("directory", "").strip('"')
    return f"{folder}/{name}" if folder else name


def _fields(body: str) -> dict[str, str]:
    """``!DIFile(filename: "a", directory: "b")`` as a dict."""
    inner = body.partition("(")[2].rpartition(")")[0]
    pairs = (part.partition(": ") for part in inner.split(", "))
    return {key: value for key, _, value in pairs}


# ------------------------------------------------------------------------------------------------------------------ PTX


def of_ptx(text: list[str]) -> Located:
    """``.loc`` holds for the instructions that follow it in the same function."""
    files = dict(_ptx_files(text))
    found: dict[int, tuple[str, SourceLine | None]] = {}
    function, at, total = "", None, 0
    for number, line in enumerate(text, 1):
        words = line.split()
        if not words:
            continue
        if ".entry" in words or ".func" in words:
            word = ".entry" if ".entry" in words else ".func"
            function, at = line.partition(word)[2].strip().split("(")[0].strip(), None
        elif words[0] == ".loc":
            at = SourceLine(files.get(words[1], ""), int(words[2]), int(words[3].rstrip(",")))
        elif words[-1].endswith(";") and not words[0].startswith((".", "//")):
            total += 1
            if at is not None:
                found[number] = (function, at)
    return Located(found, total)


def _ptx_files(text: list[str]) -> Iterator[tuple[str, str]]:
    for line in text:
        if line.startswith("\t.file\t"):
            number, _, name = line.removeprefix("\t.file\t").partition(" ")
            yield number, name.strip().strip('"')


# --------------------------------------------------------------------------------------------------------- machine code


class LineTable:
    """What a line table says about addresses: an entry holds up to the next one."""

    def __init__(self, rows: Iterable[tuple[int, SourceLine | None]]) -> None:
        self._lines = dict(rows)  # of several rows at one address the last one holds
        self._addresses = sorted(self._lines)

    def at(self, address: int) -> SourceLine | None:
        """The line of the instruction at ``address``; None where the table does not reach."""
        position = bisect_right(self._addresses, address)
        return self._lines[self._addresses[position - 1]] if position else None


def of_assembly(text: list[str], data: bytes) -> Located:
    """Lines of an x86-64 listing (``  1f: mov …`` below ``function:``), by the line table of object ``data``."""
    table = object_lines(data)
    starts = {symbol.name: symbol.value for symbol in ElfObject.parse(data).functions()}
    found: dict[int, tuple[str, SourceLine | None]] = {}
    function, total = "", 0
    for number, line in enumerate(text, 1):
        if line.endswith(":") and not line.startswith(" "):
            function = line[:-1]
        elif function in starts and line.startswith("  "):
            total += 1
            offset = line.partition(":")[0].strip()
            found[number] = (function, table.at(starts[function] + int(offset, 16)))
    return Located(found, total)


def of_sass(text: list[str], cubin: bytes, ptx: Located) -> Located:
    """Lines of an nvdisasm listing (``/*0010*/ …`` in section ``.text.kernel``): address to line of PTX to line of model."""
    tables = cubin_lines(cubin)
    found: dict[int, tuple[str, SourceLine | None]] = {}
    table, function, total = LineTable(()), "", 0
    for number, line in enumerate(text, 1):
        stripped = line.strip()
        if stripped.startswith(".text.") and stripped.endswith(":"):
            function = stripped.removeprefix(".text.")[:-1]
            table = tables.get(function, LineTable(()))
        elif stripped.startswith("/*") and function:
            total += 1
            in_ptx = table.at(int(stripped[2:].partition("*/")[0], 16))
            if in_ptx is not None and in_ptx.line in ptx.lines:
                found[number] = (function, ptx.lines[in_ptx.line][1])
    return Located(found, total)


def object_lines(data: bytes) -> LineTable:
    """The line table of a relocatable object with one section of code; addresses count from its begin."""
    information = _elf(data).get_dwarf_info()
    rows: list[tuple[int, SourceLine | None]] = []
    for unit in information.iter_CUs():
        program = information.line_program_for_CU(unit)
        if program is not None:
            folder = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
            rows += _rows(program, folder.value.decode() if folder else "")
    return LineTable(rows)


def cubin_lines(cubin: bytes) -> dict[str, LineTable]:
    """For each kernel of a cubin that ptxas made with -lineinfo: address to line of the PTX.

    Section ``.nv_debug_line_sass`` is a DWARF line program; its addresses are relocated against the kernels.
    """
    elf = _elf(cubin)
    section = elf.get_section_by_name(".nv_debug_line_sass")
    # Up to sm_8x relocations have no addend.
    names = (".rela.nv_debug_line_sass", ".rel.nv_debug_line_sass")
    relocations = next((found for found in map(elf.get_section_by_name, names) if found is not None), None)
    if section is None or relocations is None:
        return {}
    symbols = elf.get_section_by_name(".symtab")
    # One relocation a sequence, where its address stands; they are listed in any order.
    by_place = sorted(relocations.iter_relocations(), key=lambda relocation: relocation["r_offset"])
    kernels = [symbols.get_symbol(relocation["r_info_sym"]).name for relocation in by_place]
    sequences: list[list[tuple[int, SourceLine | None]]] = [[]]
    for row in _rows(_line_program(section.data())):
        sequences[-1].append(row)
        if row[1] is None:  # the end of a kernel
            sequences.append([])
    return {kernel: LineTable(rows) for kernel, rows in zip(kernels, sequences, strict=False)}


def _line_program(data: bytes) -> Any:
    """The one line program in ``data``, which no compile unit refers to."""
    from elftools.common.utils import struct_parse
    from elftools.dwarf.lineprogram import LineProgram
    from elftools.dwarf.structs import DWARFStructs

    stream = io.BytesIO(data)
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8)
    header = struct_parse(structs.Dwarf_lineprog_header, stream, 0)
    end = header["unit_length"] + structs.initial_length_field_size()
    return LineProgram(header, stream, structs, stream.tell(), end)


def _rows(program: Any, folder: str = "") -> Iterator[tuple[int, SourceLine | None]]:
    """Address and line of each row, None where a sequence ends; ``folder`` is that of the compile unit."""
    files = _files(program.header, folder)
    for entry in program.get_entries():
        state = entry.state
        if state is not None:
            at = None if state.end_sequence else SourceLine(files.get(state.file, ""), state.line, state.column)
            yield state.address, at


def _files(header: Any, folder: str) -> dict[int, str]:
    """Paths by number: up to version 4 of DWARF files and folders count from 1, and folder 0 is that of the unit."""
    first = 1 if header["version"] < 5 else 0
    folders = {0: folder, **dict(enumerate((name.decode() for name in header["include_directory"]), first))}
    files = {}
    for number, entry in enumerate(header["file_entry"], first):
        path = PurePosixPath(folders.get(entry.dir_index, "")) / entry.name.decode()
        files[number] = str(path)
    return files


def _elf(data: bytes) -> Any:
    try:
        from elftools.elf.elffile import ELFFile
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "pyelftools, which reads line tables, is not installed", hint="pip install pyelftools"
        ) from None
    return ELFFile(io.BytesIO(data))
