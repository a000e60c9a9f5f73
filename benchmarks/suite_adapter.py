"""Adapter for suites that others wrote: compiles a model for the inputs of one call, random numbers allowed.

Such suites compare random numbers by their statistics, so a program that draws numbers of its own can pass them; models
that draw none are compiled as ever.  ``docs/coverage.md`` has the commands.
"""

from __future__ import annotations

from typing import Any

import torch

import mlirstack as ms


def compile(model: torch.nn.Module, inputs: tuple[Any, ...], target: str = "cpu", route: str = "auto") -> Any:
    """A callable that answers ``model(*inputs)``; see :func:`mlirstack.compile`."""
    return ms.compile(model, inputs, target=target, route=route, allow_random=True)
