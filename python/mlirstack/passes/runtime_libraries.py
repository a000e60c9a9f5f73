"""The shared libraries that compiled code may call into, and which of them holds a given symbol.

Every external symbol of an object is resolved here, before anything is called: an unresolved one is an error with its name,
not a jump to address zero.
"""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

OPENMP = "libomp.so"
LIBRARIES = ("libc.so.6", "libm.so.6", "libmvec.so.1", "libgcc_s.so.1", OPENMP)


def _path(library: str) -> str:
    """OpenMP comes from the wheel cmeel-libomp, everything else from the system."""
    bundled = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix" / "lib" / OPENMP
    return str(bundled) if library == OPENMP and bundled.is_file() else library


@cache
def _open(library: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(_path(library), mode=ctypes.RTLD_LOCAL)
    except OSError:
        return None


def resolve(symbol: str) -> tuple[str, int] | None:
    """``(library, address)`` of a symbol in the first library that has it, or None."""
    for library in LIBRARIES:
        # OpenMP's runtime starts a thread pool of its own: it is loaded only where its symbols are asked for.
        if library == OPENMP and not symbol.startswith(("__kmpc_", "omp_")):
            continue
        handle = _open(library)
        function = getattr(handle, symbol, None) if handle is not None else None
        address = ctypes.cast(function, ctypes.c_void_p).value if function is not None else None
        if address:
            return library, address
    return None


def missing(symbols: Iterable[str]) -> list[str]:
    """Those of ``symbols`` that no library has."""
    return [symbol for symbol in symbols if resolve(symbol) is None]


def needed(symbols: Iterable[str]) -> list[str]:
    """The libraries that hold ``symbols``, in the order of :data:`LIBRARIES`."""
    found = {resolved[0] for symbol in symbols if (resolved := resolve(symbol))}
    return [library for library in LIBRARIES if library in found]
