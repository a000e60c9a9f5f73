"""Which pass names and options exist: those of the MLIR bindings, and those that mlirstack adds in Python.

The bindings offer no listing, so the names are found by offering every string in the MLIR library that could be one to
the pass-pipeline parser (seconds) and kept in ``registered_passes.json``; a test compares the file with the wheel.  A name
that is not in the file is still offered to the bindings before it is refused, so newer wheels work.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from mlirstack.errors import PipelineError, UsageError
from mlirstack.pipeline.table import TABLE, native_passes, python_steps, register_step

__all__ = ["check_native", "load_step", "native_passes", "nearest", "python_steps", "register_step", "scan", "update_table"]


def load_step(name: str) -> Any:
    """The class of the Python step ``name``; KeyError if there is none."""
    module, _, attribute = python_steps()[name].rpartition(":")
    return getattr(_of_file(Path(module)) if module.endswith(".py") else importlib.import_module(module), attribute)


def _of_file(file: Path) -> ModuleType:
    """The module in a Python file of the user's, imported once."""
    name = f"mlirstack_user_{file.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(file):
        return known
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's own code may raise anything
        del sys.modules[name]
        raise UsageError(f"{file} raised {type(error).__name__}: {error}") from error
    return module


def nearest(name: str, candidates: list[str]) -> str:
    """``"; nearest: a, b, c"`` or an empty string."""
    close = difflib.get_close_matches(name, candidates, n=3, cutoff=0.5)
    return f"; nearest: {', '.join(close)}" if close else ""


def check_native(name: str, options: list[str], on: str) -> None:
    """Raise :class:`PipelineError` unless the bindings have pass ``name`` with ``options`` on operation ``on``."""
    entry = native_passes().get(name) or probe(name)
    if entry is None:
        raise PipelineError(
            f"unknown pass '{name}'{nearest(name, [*native_passes(), *python_steps()])}",
            hint="'mlirstack-opt --list-passes' prints all of them",
        )
    for option in options:
        if option not in entry["options"] and not _accepts(name, on or entry["anchor"] or "builtin.module", option):
            known = ", ".join(entry["options"]) or "none"
            raise PipelineError(
                f"pass '{name}' has no option '{option}'{nearest(option, entry['options'])}", hint=f"its options: {known}"
            )
    anchor, wanted = entry["anchor"], on or "builtin.module"
    if anchor not in ("", wanted):
        raise PipelineError(f"pass '{name}' runs on '{anchor}', not on '{wanted}'", hint=f"write {anchor}({name})")


@cache
def _accepts(name: str, anchor: str, option: str) -> bool:
    """Ask the bindings for an option that no listing shows: of a pipeline of passes, or a list that is empty by default."""
    from mlirstack.bindings import PassManager, new_context

    with new_context(), _silent_stderr():
        for value in ("", "1"):
            try:
                PassManager.parse(f"{anchor}({name}{{{option}={value}}})")
            except ValueError:
                continue
            return True
    return False


def probe(name: str) -> dict[str, Any] | None:
    """Ask the bindings for one pass: its anchor ('' for any operation) and options; None if it does not exist."""
    from mlirstack.bindings import PassManager, new_context

    with new_context(), _silent_stderr():
        return _probe_in_context(PassManager, name)


def _probe_in_context(pass_manager: Any, name: str) -> dict[str, Any] | None:
    anchors = ["builtin.module", "func.func"]
    accepted: list[str] = []
    options: list[str] = []
    for anchor in anchors:
        try:
            printed = str(pass_manager.parse(f"{anchor}({name})"))
        except ValueError as error:
            if "does not refer to a registered" in str(error):
                return None
            restricted = re.search(r"restricted to '([^']+)'", str(error))
            if restricted and restricted[1] not in anchors:
                anchors.append(restricted[1])
            continue
        accepted.append(anchor)
        inner = printed[len(anchor) + 1 : -1]
        if not re.fullmatch(re.escape(name) + r"(\{.*\})?", inner, re.DOTALL):
            break  # a pipeline of several passes; LLVM aborts when it is offered to an operation it does not fit
        options += re.findall(r"(?:^|[\s{])([A-Za-z][A-Za-z0-9_-]*)=", inner[len(name) :])
    if not accepted:
        return None
    return {"anchor": "" if len(accepted) > 1 else accepted[0], "options": sorted(set(options))}


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """LLVM's option parser writes to file descriptor 2 directly."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


def scan() -> dict[str, dict[str, Any]]:
    """Every pass of the installed bindings, found as the module docstring says."""
    from mlirstack.bindings import PassManager, library_path, new_context

    data = library_path().read_bytes()
    names: set[str] = set()
    for match in re.finditer(rb"[a-z][a-z0-9_-]*(?=\0)", data):
        word = match.group().decode()
        # The linker merges a string with the tail of a longer one, so every tail is a candidate.
        tails = (word[i:] for i in range(min(len(word) - 2, 64)))
        names.update(tail for tail in tails if re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", tail))
    found: dict[str, dict[str, Any]] = {}
    with new_context(), _silent_stderr():
        for name in sorted(names):
            entry = _probe_in_context(PassManager, name)
            if entry is not None:
                found[name] = entry
    return found


def update_table() -> None:
    """Write ``registered_passes.json`` anew from the installed bindings."""
    lines = [f"  {json.dumps(name)}: {json.dumps(entry, sort_keys=True)}" for name, entry in sorted(scan().items())]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    update_table()
