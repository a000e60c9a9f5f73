"""Printing, writing and reading modules: the one place that does it.

Two views of a module exist: text for people, with large constants elided, and bytecode for replay, complete.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from mlirstack.bindings import ir
from mlirstack.errors import Diagnostic, UsageError
from mlirstack.ir.diagnostics import collect_diagnostics

ELIDE_ELEMENTS = 16  # constants with more elements print as dense_resource<__elided__>
BYTECODE_MAGIC = b"ML\xefR"


def module_text(
    module: Any,
    *,
    elide: bool = True,
    locations: bool = False,
    generic: bool = False,
    verified: bool = False,
    local: bool = False,
) -> str:
    """MLIR text of ``module``; an invalid module is printed in the generic form instead of crashing the printer.

    ``verified`` says that the module is known to be valid, which saves asking.  ``local`` prints a function as if it stood
    alone: values are numbered from its begin.
    """
    limits: dict[str, int] = (
        {"large_elements_limit": ELIDE_ELEMENTS, "large_resource_limit": ELIDE_ELEMENTS} if elide else {}
    )
    text: str = module.operation.get_asm(
        enable_debug_info=locations,
        print_generic_op_form=generic or not (verified or is_valid(module)),
        assume_verified=True,
        use_local_scope=local,
        **limits,
    )
    # Attributes of unknown dialects are printed as they are, machine code of kernels inside IREE's modules among them.
    return elided(text) if elide and _HEXADECIMAL in text else text


_HEXADECIMAL = 'dense<"0x'
_LARGE_CONSTANT = re.compile(r'dense<"0x[0-9A-F]{8,}">')
_RESOURCES = re.compile(r"\{-#.*?#-\}\n?", re.DOTALL)


def elided(text: str) -> str:
    """``text`` with constants in hexadecimal form, the large ones, replaced as MLIR's own printer does it."""
    return _RESOURCES.sub("", _LARGE_CONSTANT.sub("dense_resource<__elided__>", text))


def is_valid(module: Any) -> bool:
    """What the MLIR verifier says."""
    return verification_failure(module) is None


def verification_failure(module: Any) -> tuple[Diagnostic, ...] | None:
    """What the MLIR verifier finds wrong with ``module``; None if it is valid."""
    with collect_diagnostics(module.context) as diagnostics:
        try:
            valid = bool(module.operation.verify())
        except ir.MLIRError:
            valid = False
    return None if valid else tuple(diagnostics)


def module_bytecode(module: Any) -> bytes:
    """The complete module as MLIR bytecode, locations included."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def parse_module(source: str | bytes, context: Any, *, name: str = "<string>") -> Any:
    """Parse MLIR text or bytecode; raises :class:`UsageError` with MLIR's own message and position.

    Bytecode comes from a stage, which was checked when it was written: it may hold ops of IREE, unknown to these bindings.
    """
    if isinstance(source, bytes):
        context.allow_unregistered_dialects = True
    with collect_diagnostics(context) as diagnostics:
        try:
            return ir.Module.parse(source, context)
        except ir.MLIRError as error:
            first = next((d for d in diagnostics if d.severity == "error"), None)
            where = f"{name}:{first.source.line}:{first.source.column}" if first and first.source else name
            raise UsageError(f"{where}: {first.message if first else error}", hint="the file must be valid MLIR") from None


def read_module(path: Path, context: Any) -> Any:
    """Read a .mlir or .mlirbc file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if data.startswith(BYTECODE_MAGIC):
        return parse_module(data, context, name=str(path))
    try:
        return parse_module(data.decode(), context, name=str(path))
    except UnicodeDecodeError:
        raise UsageError(f"{path} is neither MLIR text nor MLIR bytecode") from None


def clone_module(module: Any) -> Any:
    """A copy of ``module`` in the same context."""
    return ir.Module.parse(module_bytecode(module), module.context)
