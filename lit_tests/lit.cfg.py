"""lit configuration: every .mlir file below is a test; mlirstack-opt and FileCheck come from this environment."""

import os
import sys
from pathlib import Path

import lit.formats

config.name = "mlirstack"  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir", ".test"]  # noqa: F821
config.test_source_root = str(Path(__file__).parent)  # noqa: F821
config.test_exec_root = str(Path(__file__).parent / "Output")  # noqa: F821
path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
config.environment["PATH"] = path  # noqa: F821
