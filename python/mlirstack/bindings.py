"""The only file that names the MLIR Python bindings.

Everything else in mlirstack says ``from mlirstack.bindings import ir, PassManager``.  By default the bindings are those of
the torch-mlir wheel, which hold all of upstream MLIR plus the torch dialects; ``MLIRSTACK_BINDINGS=mlir`` selects a
standalone ``mlir`` package for tools that need no importer.  Loading takes about 0.1 s and imports no torch.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mlirstack.errors import MissingDependencyError

PACKAGE = os.environ.get("MLIRSTACK_BINDINGS", "torch_mlir")
DISTRIBUTION = {"torch_mlir": "torch-mlir"}.get(PACKAGE, PACKAGE)


def _load(submodule: str) -> ModuleType:
    try:
        return importlib.import_module(f"{PACKAGE}.{submodule}")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"the MLIR bindings '{PACKAGE}.{submodule}' are not installed",
            hint=f"pip install {DISTRIBUTION} (the pinned version is in constraints.txt), then run 'mlirstack doctor'",
        ) from error


if TYPE_CHECKING:
    ir: Any
    PassManager: Any
else:
    ir = _load("ir")
    PassManager = _load("passmanager").PassManager


def dialect(name: str) -> Any:
    """The builder module of one dialect, e.g. ``dialect("linalg")``; ``dialect("transform.structured")`` for a part."""
    return _load(f"dialects.{name}")


def rewrite() -> Any:
    """The module of rewrite patterns and dialect conversion."""
    return _load("rewrite")


def execution_engine(module: Any, opt_level: int, shared_libraries: tuple[str, ...] = ()) -> Any:
    """A new MLIR ExecutionEngine over an LLVM-dialect module, with object dumping enabled."""
    engine = _load("execution_engine").ExecutionEngine
    return engine(module, opt_level=opt_level, shared_libs=list(shared_libraries), enable_object_dump=True)


def fx_importer() -> Any:
    """torch-mlir's ``FxImporter`` class; imports torch."""
    return _load("extras.fx_importer").FxImporter


def fx_decomposition_table() -> dict[Any, Any]:
    """torch-mlir's default table of decompositions for ``ExportedProgram.run_decompositions``; imports torch."""
    return dict(_load("extras.fx_decomp_util").get_decomposition_table())


def new_context() -> Any:
    """A context in which every dialect and pass of the bindings is registered.

    Multithreading is off: nested pass managers over a handful of kernels gain nothing from it, and diagnostics arrive in
    order.  Error diagnostics go to handlers (``emit_error_diagnostics``), where :mod:`mlirstack.ir.diagnostics` picks them
    up, instead of being swallowed by the exception.
    """
    context = ir.Context()
    context.enable_multithreading(False)
    context.emit_error_diagnostics = True
    if PACKAGE == "torch_mlir":
        dialect("torch").register_dialect(context)
    return context


def version() -> str:
    """Version of the distribution that the bindings come from."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def library_path() -> Path:
    """The shared library that holds MLIR itself (used to list the registered passes)."""
    package = Path(str(ir.__file__)).parent
    candidates = sorted((package / "_mlir_libs").glob("lib*CAPI.so*"))
    if not candidates:
        raise MissingDependencyError(f"no MLIR library beside {package}", hint="reinstall the bindings")
    return candidates[0]
