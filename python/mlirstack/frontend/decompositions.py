"""Decompositions of ATen ops that torch.export applies before the graph is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mlirstack.bindings import fx_decomposition_table


def decomposition_table() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """The table for ``ExportedProgram.run_decompositions``."""
    return fx_decomposition_table()
