"""The page made from the dialect samples is current, and everything that must have a lit test has one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mlirstack.steps import STEPS
from mlirstack.targets.registry import create_target, target_names

ROOT = Path(__file__).parent.parent
# Steps on what is no MLIR text: an exported graph, an object of memory.
WITHOUT_TEXT = {"mlirstack-import-fx"}


def test_page_of_the_dialect_samples_is_current() -> None:
    command = [sys.executable, str(ROOT / "docs" / "make_dialects.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (result.stderr, result.returncode) == ("", 0)


def test_every_python_step_has_a_lit_test() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "lit_tests").rglob("*.mlir"))
    runs = "\n".join(line for line in tests.split("\n") if "RUN:" in line)
    through_stages = {
        step.name
        for target in target_names()
        for stage in create_target(target).pipeline("tosa", "fx").stages
        if f"--pipeline={target} " in runs and f"--to={stage.name} " in runs
        for step in stage.steps
    }
    untested = {name for name in STEPS if f"--{name} " not in runs and f"--{name}=" not in runs}
    assert untested - through_stages - WITHOUT_TEXT == set()


def test_every_stage_has_a_lit_test() -> None:
    runs = "".join(path.read_text() for path in (ROOT / "lit_tests" / "pipelines").glob("*.mlir"))
    for target in target_names():
        for stage in create_target(target).pipeline("tosa", "fx").names():
            # fx and torch begin with a graph in Python; object and cubin are files that asm and sass show.
            if stage not in ("fx", "torch", "object", "cubin"):
                assert f"--to={stage} " in runs, f"no lit test of stage '{stage}' of {target}"
