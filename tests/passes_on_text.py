"""Passes on a module given as text: the module after them, and what the tests of passes ask of it."""

from __future__ import annotations

from typing import Any

from mlirstack.bindings import new_context
from mlirstack.ir.text import parse_module
from mlirstack.pipeline.runner import run_steps
from mlirstack.pipeline.step import Step


def after(text: str, *steps: Step) -> Any:
    """The verified module that ``steps`` make of ``text``."""
    module = run_steps(steps, parse_module(text, new_context()))
    assert module.operation.verify()
    return module


def op_names(of: Any) -> list[str]:
    """Names of the ops in the body of a function, their regions left out."""
    return [op.operation.name for op in of.regions[0].blocks[0].operations]
