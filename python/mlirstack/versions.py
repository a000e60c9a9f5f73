"""Versions of everything a result depends on, read from package metadata without importing the packages."""

from __future__ import annotations

import importlib.metadata
import platform

DISTRIBUTIONS = ("mlirstack", "torch", "torch-mlir", "iree-base-compiler", "iree-base-runtime", "llvmlite", "numpy")


def versions() -> dict[str, str]:
    """``{distribution: version}``, "not installed" where it is missing, and Python's own version."""
    found = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
