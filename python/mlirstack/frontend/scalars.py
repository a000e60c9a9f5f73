"""Python arithmetic on numbers that were read from tensors, in terms that the importer has an op for."""

from __future__ import annotations

import math
import operator

import torch
from torch import fx

aten = torch.ops.aten


def rewrite_scalar_calls(graph: fx.Graph) -> None:
    """Replace ``sym_float``, ``sym_ite``, ``trunc`` and the like by ATen's scalar ops, in place."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is torch.sym_float:
            _replace_float(graph, node)
        elif node.target is math.trunc:
            node.target = aten.Int.Scalar
        elif node.target is torch.sym_ite:
            _replace_choice(graph, node)
        elif node.target is aten._local_scalar_dense.default and isinstance(node.meta.get("val"), torch.SymBool):
            node.target = aten.Bool.Tensor
        elif node.target is operator.ne and _kinds(node) == (float, int):
            node.target = aten.ne.float_int
        elif node.target is operator.ne and _kinds(node) == (float, float) and _converted(node.args[1]) is not None:
            node.target, node.args = aten.ne.float_int, (node.args[0], _converted(node.args[1]))
        elif node.target is operator.ne and node.args[1] == 0.0 and isinstance(node.args[1], float):
            node.target, node.args = aten.Bool.float, node.args[:1]


def _kinds(node: fx.Node) -> tuple[type, ...]:
    """Which Python numbers the operands of ``node`` that are computed stand for."""
    kinds = {torch.SymFloat: float, torch.SymInt: int, torch.SymBool: bool}
    found = [a.meta.get("val") for a in node.args if isinstance(a, fx.Node)]
    return tuple(kinds.get(type(value), type(value)) for value in found)


def _converted(value: object) -> fx.Node | None:
    """The computed integer that ``value`` is the float of, or None."""
    if not isinstance(value, fx.Node) or value.target is not aten.Float.Scalar:
        return None
    (operand,) = value.args
    return operand if isinstance(operand, fx.Node) and isinstance(operand.meta.get("val"), torch.SymInt) else None


def _replace_float(graph: fx.Graph, node: fx.Node) -> None:
    (operand,) = node.args
    if isinstance(operand, fx.Node) and isinstance(operand.meta.get("val"), (float, torch.SymFloat)):
        node.replace_all_uses_with(operand)
        graph.erase_node(node)
    else:
        node.target = aten.Float.Scalar


def _replace_choice(graph: fx.Graph, node: fx.Node) -> None:
    """``sym_ite(b, x, y)`` of integers is ``y + int(b) * (x - y)``."""
    condition, chosen, other = node.args
    if not isinstance(chosen, int) or not isinstance(other, int):
        return  # the importer refuses it, with its line
    with graph.inserting_before(node):
        value = _call(graph, node, aten.Int.bool, condition)
        if chosen - other != 1:
            value = _call(graph, node, operator.mul, value, chosen - other)
        if other:
            value = _call(graph, node, operator.add, value, other)
    node.replace_all_uses_with(value)
    graph.erase_node(node)


def _call(graph: fx.Graph, like: fx.Node, target: object, *args: object) -> fx.Node:
    call = graph.call_function(target, args)  # type: ignore[arg-type]
    call.meta = dict(like.meta)
    return call
