"""Where the tensors of a graph lie: no matter of the levels below, which know no devices.

Decompositions make their constants beside their operands, wherever these are; the importer is told of one device alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.node import Argument, map_aggregate
from torch.utils import _pytree as pytree

from mlirstack.frontend.graph import calls

aten = torch.ops.aten


def with_constants_in_place(rule: Callable[..., Any]) -> Callable[..., Any]:
    """``rule``, with tensors that it makes of numbers on the device of its operands; what it says itself holds."""

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        elsewhere = next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), None)
        if elsewhere is None:
            return rule(*args, **kwargs)
        with elsewhere:
            return rule(*args, **kwargs)

    return decomposition


def forget_devices(module: fx.GraphModule) -> None:
    """Say "cpu" wherever ``module`` names a device, and copy where it moves a tensor to another, in place.

    torch-mlir converts no operation that makes a tensor elsewhere.
    """
    for node in calls(module):
        if node.target is torch.ops.prims.device_put.default:
            node.target, node.args, node.kwargs = aten.clone.default, node.args[:1], {}
        node.args = map_aggregate(node.args, _here)
        node.kwargs = map_aggregate(node.kwargs, _here)


def _here(argument: Argument) -> Argument:
    return torch.device("cpu") if isinstance(argument, torch.device) else argument
