"""Torch models down the whole MLIR stack, one visible level at a time.

The names below load what they need on first use: ``import mlirstack`` itself imports neither torch nor MLIR.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlirstack.api import bisect, compare, compile, lower
    from mlirstack.bundle.load import load
    from mlirstack.deploy.build import build
    from mlirstack.dynamo.explain.explain import explain
    from mlirstack.lowering import Lowering

__version__ = "0.1.0"

_LAZY = {
    "Lowering": "mlirstack.lowering",
    "bisect": "mlirstack.api",
    "build": "mlirstack.deploy.build",
    "compare": "mlirstack.api",
    "compile": "mlirstack.api",
    "explain": "mlirstack.dynamo.explain.explain",
    "load": "mlirstack.bundle.load",
    "lower": "mlirstack.api",
}

__all__ = ["Lowering", "__version__", "bisect", "build", "compare", "compile", "explain", "load", "lower"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'mlirstack' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
