"""lit configuration of lit_tests/ and dialect_samples/: the tools come from this environment.

Features: ``iree``, ``cuda`` (ptxas) and ``device`` (a GPU) by what is there; ``fast`` with ``lit -Dfast=1``, which leaves
out the tests that say ``UNSUPPORTED: fast``.  Each run of a tool has a time limit of its own.
"""

# ruff: noqa: F821 (lit defines config and lit_config)

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import lit.formats

TOOLS = ("mlirstack-opt", "mlirstack-translate", "mlirstack-run")
TIME_LIMIT_S = 300  # a hang, on a machine that is ten times slower than usual as well

config.name = "mlirstack"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "Output"]
config.test_source_root = str(Path(__file__).parent)
config.test_exec_root = str(Path(__file__).parent / "Output")

binaries = Path(sys.executable).parent
config.environment["PATH"] = os.pathsep.join([str(binaries), os.environ.get("PATH", "")])
for name in TOOLS:
    config.substitutions.append((rf"(?<![\w/.-]){name}(?![\w-])", f"timeout {TIME_LIMIT_S} {binaries / name}"))
config.substitutions.append(("%python", sys.executable))
# From tensors to buffers, functions included.
config.substitutions.append(
    (
        "%bufferize",
        "--one-shot-bufferize='bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map'",
    )
)
# From loops, vectors and buffers to the LLVM dialect, for samples that run.
config.substitutions.append(
    (
        "%to_llvm",
        "--refback-munge-memref-copy --convert-vector-to-scf --convert-linalg-to-loops --lower-affine --convert-scf-to-cf "
        "--expand-strided-metadata "
        "--lower-affine --convert-vector-to-llvm --convert-to-llvm --reconcile-unrealized-casts",
    )
)

if importlib.util.find_spec("iree") and importlib.util.find_spec("iree.compiler"):
    config.available_features.add("iree")
if shutil.which("ptxas") or (importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cu13")):
    config.available_features.add("cuda")
if Path("/dev/nvidiactl").exists():
    config.available_features.add("device")
if lit_config.params.get("fast"):
    config.available_features.add("fast")
