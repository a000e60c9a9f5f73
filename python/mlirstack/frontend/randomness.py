"""Random numbers in a model: found before decomposition, so that they carry the user's own words (dropout, rand)."""

from __future__ import annotations

import torch
from torch import fx

from mlirstack.errors import UnsupportedOp
from mlirstack.frontend.graph import node_source, target_name

_WITH_TRAIN_FLAG = {  # op -> position of the flag that turns randomness on
    "dropout": 2, "dropout_": 2, "native_dropout": 2, "feature_dropout": 2, "alpha_dropout": 2, "feature_alpha_dropout": 2,
    "rrelu": 3, "rrelu_": 3, "rrelu_with_noise": 4,
}  # fmt: skip


def random_ops(module: fx.GraphModule) -> tuple[UnsupportedOp, ...]:
    """The operations of ``module`` that draw random numbers and reach its outputs, each with the user's line."""
    found: list[UnsupportedOp] = []
    for child in module.modules():
        if not isinstance(child, fx.GraphModule):
            continue
        live = _live_nodes(child.graph)
        for node in child.graph.nodes:
            reason = _randomness(node) if node in live else None
            if reason is not None:
                found.append(UnsupportedOp(target_name(node), reason, node_source(node)))
    return tuple(found)


def _live_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Nodes that an output or a write into a tensor depends on."""
    pending = [node for node in graph.nodes if node.op == "output" or _writes(node)]
    live: set[fx.Node] = set()
    while pending:
        node = pending.pop()
        if node not in live:
            live.add(node)
            pending += node.all_input_nodes
    return live


def _writes(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _randomness(node: fx.Node) -> str | None:
    """Why the numbers of ``node`` cannot be eager's, or None if it draws none."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    name = target._schema.name.removeprefix("aten::")
    if name in _WITH_TRAIN_FLAG:
        flag = _WITH_TRAIN_FLAG[name]
        train = node.args[flag] if len(node.args) > flag else node.kwargs.get("train", node.kwargs.get("training", False))
        return "is random in training mode" if train else None
    if name in ("scaled_dot_product_attention",):
        dropout = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
        return f"drops attention weights at random (dropout_p={dropout})" if dropout else None
    if torch.Tag.nondeterministic_seeded in target.tags and not name.startswith(("_scaled_dot_product", "lstm", "gru")):
        return "draws random numbers"
    return None
