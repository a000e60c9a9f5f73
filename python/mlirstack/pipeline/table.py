"""The names of all passes: the table of the bindings' passes, and the Python steps registered so far.

Apart from :mod:`mlirstack.pipeline.registry`, which checks and extends it, because mlirstack-opt needs the names before it
knows whether it needs anything else.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("registered_passes.json")
_python_steps: dict[str, str] = {}


def register_step(name: str, loader: str) -> None:
    """Make a Python pass, schedule or translation known under ``name``; ``loader`` is ``"package.module:Class"``."""
    _python_steps[name] = loader


def python_steps() -> dict[str, str]:
    """All registered Python steps, ``{name: "package.module:Class"}``; listing them imports nothing."""
    return dict(_python_steps)


@cache
def native_passes() -> dict[str, dict[str, Any]]:
    """``{pass: {"anchor": op it runs on, "options": [names]}}`` for the pinned bindings."""
    table: dict[str, dict[str, Any]] = json.loads(TABLE.read_text())
    return table
