"""``associative_scan`` as torch computes it without a compiler: pairs are combined, in as many steps as its size has bits.

In mode "generic" torch.export writes that out itself; in mode "pointwise" an operation with a body is left in the graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.associative_scan import generic_associative_scan
from torch.fx.experimental.proxy_tensor import make_fx

from mlirstack.errors import UnsupportedError, UnsupportedOp
from mlirstack.frontend.graph import fake_mode, graph_modules, node_source
from mlirstack.frontend.replace_nodes import inline

_SCAN = torch.ops.higher_order.associative_scan


def rewrite_associative_scans(module: fx.GraphModule) -> None:
    """Replace each of ``module`` and of the bodies of its control flow, in place.

    Raises :class:`UnsupportedError` where the number of steps is dynamic.
    """
    for child in graph_modules(module):
        scans = child.graph.find_nodes(op="call_function", target=_SCAN)
        for node in scans:
            _replace(child, node)
        if scans:
            child.graph.lint()
            child.recompile()


def _replace(module: fx.GraphModule, node: fx.Node) -> None:
    arguments: Any = node.args
    body, stepped, read = arguments
    if not isinstance(stepped[0].meta["val"].shape[0], int):
        place = UnsupportedOp("associative_scan", "a dynamic number of steps", node_source(node))
        raise UnsupportedError("control flow of a dynamic length", (place,))
    combine: Any = getattr(module, body.target)
    tensors = [x for x in (*stepped, *read) if isinstance(x, fx.Node)]
    # The body takes single steps; of what it only reads there is no step.
    axes = (0,) * (2 * len(stepped)) + (None,) * len(read)
    mapped = torch.vmap(lambda *operands: tuple(combine(*operands)), in_dims=axes)

    def scan(*operands: torch.Tensor) -> Any:
        given = iter(operands)
        steps = [next(given) for _ in stepped]
        fixed = [next(given) if isinstance(x, fx.Node) else x for x in read]
        return tuple(generic_associative_scan(mapped, steps, additional_inputs=tuple(fixed)))  # type: ignore[no-untyped-call]

    mode = fake_mode(tensors)
    assert mode is not None, "a scan reads a tensor"
    try:
        with torch.no_grad(), mode:
            traced = make_fx(scan)(*(x.meta["val"] for x in tensors))
    except Exception as error:  # torch.vmap has not all operations
        place = UnsupportedOp("associative_scan", str(error).splitlines()[0], node_source(node))
        raise UnsupportedError("a body that cannot be mapped over pairs of steps", (place,)) from error
    inline(module.graph, node, traced, tensors)
