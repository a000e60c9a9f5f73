"""An object file in memory, ready to be called: linked by LLVM's JIT linker, without torch-mlir and without any compiler."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

from mlirstack.errors import BundleError, TargetUnavailableError
from mlirstack.passes import abi
from mlirstack.passes.elf import ElfObject
from mlirstack.passes.runtime_libraries import resolve
from mlirstack.targets.cpu.heap import keep_freed_memory

OBJECT_FILE, LLVMIR_FILE = "main.o", "main.ll"  # of an artifact

EntryPoint = Callable[[int], None]

_counter = itertools.count()
_lock = threading.Lock()
_linker: Any = None


def _jit() -> Any:
    """The process's one JIT linker: making one takes longer than linking an object."""
    global _linker  # noqa: PLW0603  (created when first used, kept for good)
    with _lock:
        if _linker is None:
            import llvmlite.binding as llvm

            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            # JITLink lays out an object in one piece; the older RuntimeDyld may put its code and constants more than 2 GiB
            # apart, where addresses fill up, and ends the process when a relocation does not reach.
            _linker = llvm.create_lljit_compiler(use_jit_link=True)
        return _linker


def module_abi(elf: ElfObject) -> abi.ModuleAbi:
    """The description of the entry points that stands in the object; :class:`BundleError` where there is none."""
    try:
        return abi.ModuleAbi.parse(elf.constant(abi.ABI_SYMBOL).rstrip(b"\0").decode())
    except (KeyError, ValueError) as error:
        raise BundleError(f"the object does not describe its entry points: {error}") from None


class LoadedObject:
    """An object file linked into this process, for as long as this lives.

    ``abi`` describes the entry points, ``entry(name)`` gives one: it takes the address of a frame.
    """

    def __init__(self, data: bytes) -> None:
        import llvmlite.binding as llvm

        elf = ElfObject.parse(data)
        self.abi = module_abi(elf)
        builder = llvm.JITLibraryBuilder().add_object_img(data)
        wanted = elf.undefined()
        if "malloc" in wanted:
            keep_freed_memory()
        for symbol in wanted:
            found = resolve(symbol)
            if found is None:
                raise TargetUnavailableError(f"no library of this machine has the symbol '{symbol}'")
            builder.import_symbol(symbol, found[1])
        for function in self.abi.functions:
            builder.export_symbol(abi.SYMBOL_PREFIX + function.name)
        try:
            self._tracker = builder.link(_jit(), f"mlirstack-{next(_counter)}")
        except RuntimeError as error:
            raise BundleError(f"the object cannot be linked: {error}") from None

    def entry(self, name: str) -> EntryPoint:
        """The entry point called ``name``; calls release the GIL."""
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        function: EntryPoint = prototype(self._tracker[abi.SYMBOL_PREFIX + name])
        return function
