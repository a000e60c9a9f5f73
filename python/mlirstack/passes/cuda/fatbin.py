"""Fat binaries: machine code for several architectures, and PTX for those that come later, as one image for the driver.

Written by NVIDIA's fatbinary.  The container is a header, and entries of a header and an image each; they are read here
without a tool, so that what runs on a device can be listed.
"""

from __future__ import annotations

import shlex
import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from mlirstack.errors import BundleError, StageError
from mlirstack.passes.cuda.toolkit import program
from mlirstack.pipeline.tool import run_tool

MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of the header, bytes of all entries
_ENTRY = struct.Struct("<HHIQI")  # kind, version, bytes of the header, bytes of the image, those of it that are compressed
_ARCH = struct.Struct("<I")  # 80 of sm_80 …
_ARCH_OFFSET = 28  # … in an entry
_PTX, _ELF = 1, 2


class Image(NamedTuple):
    """An entry: PTX or a cubin, and the architecture as a number (80 of sm_80).  ``data`` may be compressed (PTX is)."""

    is_cubin: bool
    arch: int
    data: bytes


def make_fatbin(cubins: Mapping[str, bytes], ptx: Mapping[str, str]) -> bytes:
    """One fat binary of cubins by architecture, and PTX by architecture for devices that come later.

    ``{"sm_90a": …}``.  The driver takes the cubin that fits its device, else it compiles the PTX.
    """
    with tempfile.TemporaryDirectory(prefix="mlirstack-fatbin-") as folder:
        directory = Path(folder)
        images = []
        for kind, files in (("elf", cubins), ("ptx", {arch: text.encode() for arch, text in ptx.items()})):
            for arch, data in files.items():
                (directory / f"{arch}.{kind}").write_bytes(data)
                images.append(f"--image3=kind={kind},sm={arch.removeprefix('sm_')},file={arch}.{kind}")
        command = [str(program("fatbinary")), "-64", "--create=output.fatbin", *images]
        tool = run_tool(command, directory=directory, timeout=60)
        if tool.failure is not None:
            raise StageError(f"fatbinary {tool.failure}: {tool.stderr.strip()}", stage="cubin", hint=shlex.join(command))
        return (directory / "output.fatbin").read_bytes()


def read_fatbin(data: bytes) -> list[Image]:
    """What a fat binary holds, in its order; :class:`BundleError` where it is none."""
    try:
        return list(_images(data))
    except struct.error as error:
        raise BundleError(f"the fat binary is damaged: {error}") from None


def is_fatbin(data: bytes) -> bool:
    """Does this begin as a fat binary does?"""
    return data[:4] == MAGIC.to_bytes(4, "little")


def _images(data: bytes) -> Iterator[Image]:
    magic, _, place, size = _HEADER.unpack_from(data)
    if magic != MAGIC or place + size > len(data):
        raise struct.error("its header is another, or it is cut short")
    end = place + size
    while place < end:
        kind, _, header, length, _ = _ENTRY.unpack_from(data, place)
        (arch,) = _ARCH.unpack_from(data, place + _ARCH_OFFSET)
        if header < _ENTRY.size:
            raise struct.error("an entry is shorter than its header")
        start = place + header
        if kind in (_PTX, _ELF):
            yield Image(kind == _ELF, arch, data[start : start + length])
        place = start + length
