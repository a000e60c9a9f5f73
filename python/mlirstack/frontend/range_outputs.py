"""Ranges written into a tensor of another shape: eager keeps the shape of ``out`` where the number of elements fits.

torch.export takes ``out`` for resized to one dimension, and the answer would have another shape than eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from mlirstack.frontend.graph import calls

aten = torch.ops.aten

# Overload with ``out`` → the call that gives the same numbers.
_RANGES: dict[Any, Callable[..., tuple[Any, tuple[Any, ...]]]] = {
    aten.arange.out: lambda end: (aten.arange.start_step, (0, end, 1)),
    aten.arange.start_out: lambda start, end, step=1: (aten.arange.start_step, (start, end, step)),
    aten.linspace.out: lambda start, end, steps: (aten.linspace.default, (start, end, steps)),
}


def rewrite_range_outputs(module: fx.GraphModule) -> None:
    """Make such a call in ``module`` a range that is viewed in the shape of its ``out`` and copied there, in place."""
    rewritten = False
    for node in list(calls(module)):
        rule, out = _RANGES.get(node.target), node.kwargs.get("out")
        if rule is None or not isinstance(out, fx.Node):
            continue
        target = out.meta["val"]
        if target.dim() == 1 or target.numel() != node.meta["val"].numel():
            continue
        op, arguments = rule(*node.args)
        with node.graph.inserting_before(node):
            numbers = node.graph.call_function(op, arguments, {"dtype": target.dtype})
            shaped = node.graph.call_function(aten.view.default, (numbers, list(target.shape)))
        for new in (numbers, shaped):
            new.meta["stack_trace"] = node.meta.get("stack_trace")
        # The node stays, because the signature of the program knows it by name.
        node.target, node.args, node.kwargs = aten.copy_.default, (out, shaped), {}
        node.meta["val"] = target
        rewritten = True
    if rewritten:  # generating the code of a graph takes as long as tracing some of its nodes
        module.recompile()
