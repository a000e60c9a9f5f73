"""Versions of everything a result depends on, read from package metadata without importing the packages."""

from __future__ import annotations

import os
import platform
import sys

DISTRIBUTIONS = (
    "mlirstack", "torch", "torch-mlir", "iree-base-compiler", "iree-base-runtime", "llvmlite", "numpy",
    "nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-nvdisasm", "cuda-bindings",
)  # fmt: skip


def versions() -> dict[str, str]:
    """``{distribution: version}``, "not installed" where it is missing, and Python's own version."""
    installed = _installed()
    return {"python": platform.python_version()} | {name: installed.get(name, "not installed") for name in DISTRIBUTIONS}


def _installed() -> dict[str, str]:
    """All distributions on the path, from the names of their ``.dist-info`` folders: importlib.metadata costs 40 ms."""
    found: dict[str, str] = {}
    for directory in reversed(sys.path):
        if not os.path.isdir(directory):  # noqa: PTH112
            continue
        for entry in os.listdir(directory):  # noqa: PTH208
            if entry.endswith(".dist-info"):
                name, _, version = entry.removesuffix(".dist-info").partition("-")
                found[name.lower().replace("_", "-")] = version
    return found
