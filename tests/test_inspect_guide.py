"""The commands of docs/inspect.md, "Finding a miscompile", do what the page says, in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "inspect.md"

pytestmark = [pytest.mark.portable, pytest.mark.slow]


def test_the_miscompile_is_found_reduced_and_replayed(tmp_path: Path) -> None:
    section = PAGE.read_text().split("# Finding a miscompile")[1]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (tmp_path / "drop_clamp.py").write_text(code)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "MLIRSTACK_PASSES": str(tmp_path / "drop_clamp.py"),
    }
    asked = 0
    for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *expected = part.splitlines()
            if command.startswith("export "):
                assert command == "export MLIRSTACK_PASSES=$PWD/drop_clamp.py"
                continue
            run = subprocess.run(
                ["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
            )
            said = " ".join(run.stdout.split())
            assert run.returncode == (1 if " bisect " in command else 0), f"{command}\n{run.stdout}{run.stderr}"
            for line in expected:
                assert " ".join(line.split()) in said, f"{command}: '{line}' is not in\n{run.stdout}"
            asked += 1
    assert asked == 6
    ops = re.findall(r"\b(?:arith|linalg|tensor|math)\.\w+", (tmp_path / "small.mlir").read_text().split("\n", 3)[3])
    assert len(ops) < 10
