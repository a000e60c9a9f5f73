"""Python arithmetic on numbers that were read from tensors, in terms that the importer has an op for."""

from __future__ import annotations

import math
import operator
from typing import Any

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
        elif isinstance(node.target, torch._ops.OpOverload):
            _make_operands_tensors(graph, node)
        else:
            _rewrite_sizes(graph, node)


def _rewrite_sizes(graph: fx.Graph, node: fx.Node) -> None:
    """Arithmetic of sizes that has no op of its own."""
    if node.target in (torch.sym_max, torch.sym_min) and _all_integers(node):
        _replace_extremum(graph, node)
    elif node.target is operator.mod and _all_integers(node):
        _replace_remainder(graph, node)
    elif node.target is torch.sym_sqrt or (node.target is operator.pow and node.args[1] == 0.5):
        _replace_root(node)


def _make_operands_tensors(graph: fx.Graph, node: fx.Node) -> None:
    """A computed number in the place of a tensor becomes one, of the dtype that such a number is taken for.

    torch calls the overload for two tensors also where one operand is a size; the importer has no such op.
    """
    operands = [a.meta.get("val") for a in node.args if isinstance(a, fx.Node)]
    tensors = [value for value in operands if isinstance(value, torch.Tensor)]
    if not tensors:
        return
    for position, (argument, given) in enumerate(zip(node.target._schema.arguments, node.args, strict=False)):  # type: ignore[union-attr]
        is_number = isinstance(given, fx.Node) and isinstance(given.meta.get("val"), (torch.SymInt, torch.SymFloat))
        if not is_number or not isinstance(argument.type, torch.TensorType):
            continue
        dtype = torch.result_type(tensors[0], 1.0 if isinstance(given.meta["val"], torch.SymFloat) else 1)  # type: ignore[union-attr]
        with graph.inserting_before(node):
            number = graph.call_function(aten.full.default, ([], given), {"dtype": dtype})
        number.meta = {key: value for key, value in node.meta.items() if key != "tensor_meta"}
        number.meta["val"] = tensors[0].new_empty((), dtype=dtype)
        node.update_arg(position, number)


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


def _all_integers(node: fx.Node) -> bool:
    values = [a.meta.get("val") if isinstance(a, fx.Node) else a for a in node.args]
    return all(isinstance(value, (int, torch.SymInt)) for value in values)


def _replace_extremum(graph: fx.Graph, node: fx.Node) -> None:
    """``max(x, y)`` of integers is ``y + int(x >= y) * (x - y)``, ``min(x, y)`` the same with ``x <= y``."""
    x, y = node.args
    with graph.inserting_before(node):
        compare = operator.ge if node.target is torch.sym_max else operator.le
        is_first = _call(graph, node, compare, x, y)
        sizes: list[Any] = [a.meta["val"] if isinstance(a, fx.Node) else a for a in (x, y)]
        is_first.meta["val"] = compare(*sizes)
        number = _call(graph, node, aten.Int.bool, is_first)
        difference = _call(graph, node, operator.sub, x, y)
        value = _call(graph, node, operator.add, _call(graph, node, operator.mul, number, difference), y)
    node.replace_all_uses_with(value)
    graph.erase_node(node)


def _replace_remainder(graph: fx.Graph, node: fx.Node) -> None:
    """``x % y`` of integers is ``x - x // y * y``, whose sign is that of ``y``."""
    x, y = node.args
    with graph.inserting_before(node):
        whole = _call(graph, node, operator.mul, _call(graph, node, operator.floordiv, x, y), y)
        value = _call(graph, node, operator.sub, x, whole)
    node.replace_all_uses_with(value)
    graph.erase_node(node)


def _replace_root(node: fx.Node) -> None:
    """The square root of an integer has an op of its own; that of a computed real number is left to the importer."""
    operand = node.args[0]
    integer = _converted(operand) or operand
    if isinstance(integer, fx.Node) and isinstance(integer.meta.get("val"), torch.SymInt):
        node.target, node.args = aten.sqrt.int, (integer,)


def _call(graph: fx.Graph, like: fx.Node, target: object, *args: object) -> fx.Node:
    call = graph.call_function(target, args)  # type: ignore[arg-type]
    call.meta = dict(like.meta)
    return call
