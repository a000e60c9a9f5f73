"""Random numbers in a model: found before decomposition, so that they carry the user's own words (dropout, rand)."""

from __future__ import annotations

import torch
from torch import fx

from mlirstack.errors import UnsupportedOp
from mlirstack.frontend.graph import graph_modules, node_source, target_name

# Not every overload of these carries torch's tag for ops that draw random numbers.
_DROPOUTS = (
    "dropout", "dropout_", "native_dropout", "feature_dropout", "feature_dropout_", "alpha_dropout", "alpha_dropout_",
    "feature_alpha_dropout", "feature_alpha_dropout_",
)  # fmt: skip
_TRAIN_FLAGS = ("train", "training")
_PROBABILITIES = ("p", "dropout", "dropout_p")


def random_ops(module: fx.GraphModule) -> tuple[UnsupportedOp, ...]:
    """The operations of ``module`` that draw random numbers and reach its outputs, each with the user's line."""
    found: list[UnsupportedOp] = []
    for child in graph_modules(module):
        live = _live_nodes(child.graph)
        for node in child.graph.nodes:
            reason = _randomness(node) if node in live else None
            if reason is not None:
                found.append(UnsupportedOp(target_name(node), reason, node_source(node)))
    return tuple(found)


def remaining_random_ops(module: fx.GraphModule) -> tuple[UnsupportedOp, ...]:
    """The operations of a decomposed ``module`` whose numbers no decomposition could draw."""
    place = "is random inside of control flow"
    found: list[UnsupportedOp] = []
    for child in graph_modules(module):
        for node in child.graph.nodes:
            if child is not module and getattr(node.target, "namespace", "") == "mlirstack":
                found.append(UnsupportedOp(target_name(node), place, node_source(node)))
            elif torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                found.append(
                    UnsupportedOp(target_name(node), "draws numbers of a kind that is not replaced", node_source(node))
                )
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
    if name not in _DROPOUTS and torch.Tag.nondeterministic_seeded not in target.tags:
        return None
    flags = _given(node, target, _TRAIN_FLAGS)
    probabilities = _given(node, target, _PROBABILITIES)
    # Dropout, recurrent layers and attention have a switch or a probability that turns randomness off.
    if any(flag is False for flag in flags) or any(p == 0 for p in probabilities if isinstance(p, (int, float))):
        return None
    return "is random in training mode" if flags else "draws random numbers"


def _given(node: fx.Node, target: torch._ops.OpOverload, names: tuple[str, ...]) -> list[object]:
    """What ``node`` gives for the parameters of ``target`` called ``names``, defaults included."""
    values: list[object] = []
    for position, parameter in enumerate(target._schema.arguments):
        if parameter.name in names:
            default = parameter.default_value if parameter.has_default_value() else None
            values.append(node.args[position] if position < len(node.args) else node.kwargs.get(parameter.name, default))
    return values
