"""The only file that names the MLIR Python bindings.

Everything else in mlirstack says ``from mlirstack.bindings import ir, PassManager``.  By default the bindings are those of
the torch-mlir wheel, which hold all of upstream MLIR plus the torch dialects; ``MLIRSTACK_BINDINGS=mlir`` selects a
standalone ``mlir`` package for tools that need no importer.  Loading takes about 0.2 s, most of it NumPy, and imports no
torch; :func:`core` loads the native part alone, which is all that mlirstack-opt needs, in a third of that.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

PACKAGE = os.environ.get("MLIRSTACK_BINDINGS", "torch_mlir")
DISTRIBUTION = {"torch_mlir": "torch-mlir"}.get(PACKAGE, PACKAGE)


def _load(submodule: str) -> ModuleType:
    try:
        return importlib.import_module(f"{PACKAGE}.{submodule}")
    except ModuleNotFoundError as error:
        from mlirstack.errors import MissingDependencyError

        raise MissingDependencyError(
            f"the MLIR bindings '{PACKAGE}.{submodule}' are not installed",
            hint=f"pip install {DISTRIBUTION} (the pinned version is in constraints.txt), then run 'mlirstack doctor'",
        ) from error


if TYPE_CHECKING:
    ir: Any
    PassManager: Any


def __getattr__(name: str) -> Any:
    # Loaded on first use: whoever asks only for core() pays for nothing else.
    if name == "ir":
        value = _load("ir")
    elif name == "PassManager":
        value = _load("passmanager").PassManager
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = value
    return value


def core() -> tuple[Any, Any]:
    """The native modules ``(ir, passmanager)`` without the Python conveniences around them and without NumPy."""
    native = _load("_mlir_libs._mlir")
    return native.ir, native.passmanager


@cache
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


def fx_node_importer() -> Any:
    """torch-mlir's ``GraphNodeImporter`` class, made to be extended by methods ``_import_hop_NAME``; imports torch."""
    return _load("extras.fx_importer").GraphNodeImporter


def fx_decomposition_table() -> dict[Any, Any]:
    """torch-mlir's default table of decompositions for ``ExportedProgram.run_decompositions``; imports torch."""
    return dict(_load("extras.fx_decomp_util").get_decomposition_table())


def onnx_importer() -> Any:
    """torch-mlir's module that imports ONNX models; imports onnx."""
    return _load("extras.onnx_importer")


def new_context() -> Any:
    """A context in which every dialect and pass of the bindings is registered.

    Multithreading is off: nested pass managers over a handful of kernels gain nothing from it, and diagnostics arrive in
    order.  Error diagnostics go to handlers (``emit_error_diagnostics``), where :mod:`mlirstack.ir.diagnostics` picks them
    up, instead of being swallowed by the exception.
    """
    context = core()[0].Context()
    context.enable_multithreading(False)
    context.emit_error_diagnostics = True
    _register_torch(context, load=True)
    load_unregistered_dialects(context, UNREGISTERED_DIALECTS)
    return context


def lazy_context() -> Any:
    """A context that loads a dialect when the parser or a pass first needs it, as mlir-opt's does; 1 ms instead of 10."""
    context = core()[0].Context(load_on_create_dialects=[])
    context.enable_multithreading(False)
    context.emit_error_diagnostics = True
    _register_torch(context, load=False)
    return context


def _register_torch(context: Any, *, load: bool) -> None:
    if PACKAGE == "torch_mlir":
        _load("_mlir_libs._torchMlir").register_dialect(context, load=load)


# Dialects that the bindings hold but do not register: the pipeline that brings them in as dialects it depends on.
_LOADED_BY = {
    "stablehlo": "func.func(convert-torch-to-stablehlo)",
    "chlo": "func.func(convert-torch-to-stablehlo)",
    "tm_tensor": "func.func(convert-torch-to-tmtensor)",
    "torch_c": "torch-func-backend-type-conversion",
}
UNREGISTERED_DIALECTS = tuple(_LOADED_BY) if PACKAGE == "torch_mlir" else ()


def load_unregistered_dialects(context: Any, names: tuple[str, ...]) -> None:
    """Load dialects out of :data:`UNREGISTERED_DIALECTS` into ``context``."""
    ir_module, passes = core()
    with context, ir_module.Location.unknown():
        for pipeline in dict.fromkeys(_LOADED_BY[name] for name in names):
            passes.PassManager.parse(f"builtin.module({pipeline})").run(ir_module.Module.create().operation)


def translate_to_llvm_ir(operation: Any) -> str:
    """LLVM IR text of a module in the LLVM dialect; the process dies where an op has no translation."""
    with operation.context:
        return str(_load("_mlir_libs._mlirDialectsLLVM").translate_module_to_llvmir(operation))


def version() -> str:
    """Version of the distribution that the bindings come from."""
    import importlib.metadata

    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def library_path() -> Path:
    """The shared library that holds MLIR itself (used to list the registered passes)."""
    package = Path(str(_load("_mlir_libs").__file__)).parent.parent
    candidates = sorted((package / "_mlir_libs").glob("lib*CAPI.so*"))
    if not candidates:
        from mlirstack.errors import MissingDependencyError

        raise MissingDependencyError(f"no MLIR library beside {package}", hint="reinstall the bindings")
    return candidates[0]
