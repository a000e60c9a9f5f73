"""The version of IREE's VM bytecode in a vmfb, read without IREE: a module of another version must not reach the runtime."""

from __future__ import annotations

import importlib.metadata
import struct

from mlirstack.errors import BundleError

_IDENTIFIER = b"IREE"  # of the flatbuffer; an archive header may stand before it
_SEARCHED = 4096  # bytes
_VERSION_FIELD = 13  # of BytecodeModuleDef in IREE's schema bytecode_module_def.fbs

# Series of the runtime → the version that it reads (IREE_VM_BYTECODE_VERSION_MAJOR and _MINOR).
_READ_BY = {"3.13": (17, 0)}


def bytecode_version(vmfb: bytes) -> tuple[int, int]:
    """Major and minor version of the bytecode; :class:`BundleError` where this is no vmfb."""
    at = vmfb.find(_IDENTIFIER, 0, _SEARCHED)
    try:
        if at < 4:
            raise ValueError("it holds no IREE flatbuffer")
        start = at - 4
        root = start + struct.unpack_from("<I", vmfb, start)[0]
        table = root - struct.unpack_from("<i", vmfb, root)[0]
        size = struct.unpack_from("<H", vmfb, table)[0]
        entry = 4 + 2 * _VERSION_FIELD
        offset = struct.unpack_from("<H", vmfb, table + entry)[0] if entry < size else 0
        version = struct.unpack_from("<I", vmfb, root + offset)[0] if offset else 0
    except (struct.error, ValueError) as error:
        raise BundleError(f"this is no module of IREE: {error}", hint="copy or build the bundle again") from None
    return version >> 16, version & 0xFFFF


def bytecode_read_here() -> tuple[int, int] | None:
    """The version that the installed runtime reads; None where it is not installed, or of an unknown series."""
    try:
        installed = importlib.metadata.version("iree-base-runtime")
    except importlib.metadata.PackageNotFoundError:
        return None
    return _READ_BY.get(".".join(installed.split(".")[:2]))
