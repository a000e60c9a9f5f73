"""The dialect samples as lit tests: the configuration of lit_tests/, and Python samples besides."""

# ruff: noqa: F821 (lit defines config and lit_config)

from pathlib import Path

here = Path(__file__).parent
lit_config.load_config(config, str(here.parent / "lit_tests" / "lit.cfg.py"))
config.name = "dialects"
config.suffixes = [".mlir", ".py"]
config.excludes = ["Inputs", "Output", "lit.cfg.py"]
config.test_source_root = str(here)
config.test_exec_root = str(here / "Output")
