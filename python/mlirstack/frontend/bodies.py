"""Bodies of control flow made functions of their operands: no writes to operands, no memory shared with results.

Branches of ``cond`` and bodies of ``while_loop`` may write to tensors from outside, branches give operands or views of them
back (where no gradients are recorded; ``scan`` and ``map`` refuse both). torch.export captures that and cannot decompose it.
Here, before decomposition, a body that writes works on copies, which it returns; the graph around it writes them back, as
any other write. Results that share memory are copied.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mlirstack.errors import UnsupportedError, UnsupportedOp
from mlirstack.frontend.graph import (
    memory_of,
    node_source,
    output_node,
    place_of,
    placeholders,
    target_name,
    written_operands,
)

_MOST_NUMBERS = 64  # of a constant that is written out, an operation each
_FRESH = torch.ops.aten.lift_fresh_copy.default
_CLONE = torch.ops.aten.clone.default
_COPY = torch.ops.aten.copy_.default


@dataclass(frozen=True)
class _Form:
    """How an operation is called: positions of its bodies and lists of operands among its arguments.

    ``is_loop``: the first list is the state that the first body returns anew; a tensor that is read in every turn joins it
    where the body writes to it. Otherwise each written operand is one more result.
    """

    bodies: tuple[int, ...]
    operands: tuple[int, ...]
    is_loop: bool = False


_FORMS = {
    "cond": _Form(bodies=(1, 2), operands=(3,)),
    "while_loop": _Form(bodies=(1, 0), operands=(2, 3), is_loop=True),
}


def make_bodies_functional(module: fx.GraphModule) -> None:
    """Rewrite the control flow of ``module``, bodies inside of bodies first.

    Raises :class:`UnsupportedError` where memory that a result shares in eager is written to later, and where the condition
    of a loop writes.
    """
    for child in module.children():
        if isinstance(child, fx.GraphModule):
            _write_out_numbers(child)
            make_bodies_functional(child)
    taken: set[str] = set()
    forms = {node: _form(node) for node in module.graph.nodes}
    for node, form in forms.items():
        if form is not None:
            _Call(module, node, form, taken).rewrite()
    if any(forms.values()):
        module.graph.lint()
        module.recompile()


def _form(node: fx.Node) -> _Form | None:
    return _FORMS.get(str(node.target)) if isinstance(node.target, torch._ops.HigherOrderOperator) else None


def _write_out_numbers(body: fx.GraphModule) -> None:
    """Let ``body`` make the constants that it holds: torch cannot decompose control flow whose bodies hold any.

    Raises :class:`UnsupportedError` for large ones, which would be an operation for each element.
    """
    for node in body.graph.find_nodes(op="call_function", target=_FRESH):
        held: Any = node.args[0]
        value = getattr(body, str(held.target), None) if held.op == "get_attr" else None
        if type(value) is not torch.Tensor:
            continue
        if value.numel() > _MOST_NUMBERS:
            place = UnsupportedOp("torch.tensor", f"{value.numel()} numbers, written in a body", node_source(node))
            raise UnsupportedError(
                "a body of control flow holds a large constant",
                (place,),
                hint="make it in __init__: self.register_buffer(...)",
            )
        with body.graph.inserting_before(node):
            made = _made(body.graph, value)
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        body.graph.erase_node(node)
        if not held.users:
            body.graph.erase_node(held)
    read = {node.target for node in body.graph.find_nodes(op="get_attr")}
    for name in [name for name, _ in body.named_buffers(recurse=False) if name not in read]:
        delattr(body, name)
    body.recompile()


def _made(graph: fx.Graph, value: torch.Tensor) -> fx.Node:
    """The numbers of ``value``, written out."""
    options: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
    numbers = value.flatten().tolist()
    if len(numbers) < 2:
        return graph.call_function(torch.ops.aten.full.default, (list(value.shape), *(numbers or [0])), options)
    parts = [graph.call_function(torch.ops.aten.full.default, ([1], number), options) for number in numbers]
    row = graph.call_function(torch.ops.aten.cat.default, (parts,))
    return graph.call_function(torch.ops.aten.view.default, (row, list(value.shape)))


class _Call:
    """One operation of control flow, its bodies and its operands."""

    def __init__(self, module: fx.GraphModule, node: fx.Node, form: _Form, taken: set[str]) -> None:
        self.module, self.node, self.form = module, node, form
        self.bodies = [_own_body(module, node, i, taken) for i in form.bodies]
        arguments: tuple[Any, ...] = node.args
        self.lists: list[list[Any]] = [list(arguments[i]) for i in form.operands]

    @property
    def operands(self) -> list[Any]:
        """In the order of the bodies' placeholders."""
        return [operand for group in self.lists for operand in group]

    def rewrite(self) -> None:
        writes = [_written(body) for body in self.bodies]
        written = sorted({index for indices in writes for index in indices})
        returning = self.bodies[:1] if self.form.is_loop else self.bodies  # a condition gives no more than its flag
        shared = {index for body in returning for index in _returned(body)}
        self._separate_operands(written)
        if shared:
            self._refuse_later_writes([self.operands[index] for index in shared])
        if self.form.is_loop and any(writes[1:]):
            raise self._refused("the condition of a loop writes to what it reads")
        if written:
            self._return_writes(written)
        for body in self.bodies:
            _separate_results(body)
            body.graph.lint()
            body.recompile()

    def _return_writes(self, written: list[int]) -> None:
        operands = [self.operands[index] for index in written]
        if not self.form.is_loop:
            self._write(operands, self._with_copies(self.bodies, written, at=len(self.node.meta["val"])))
            return
        count = len(self.lists[0])
        if written[0] < count:
            raise self._refused("the body of a loop writes to the state that it is given")
        results = self._with_copies(self.bodies[:1], written, at=count)
        for body in self.bodies:
            nodes = placeholders(body.graph)
            for index in reversed(written):
                nodes[count - 1].append(nodes[index])
        read = [operand for i, operand in enumerate(self.lists[1]) if count + i not in written]
        self.lists = [[*self.lists[0], *operands], read]
        self._update_operands()
        self.node.kwargs = {k: v for k, v in self.node.kwargs.items() if k != "mutated_arg_indices"}
        self._write(operands, results)

    def _with_copies(self, bodies: Sequence[fx.GraphModule], written: list[int], at: int) -> list[int]:
        """Let ``bodies`` return copies of the ``written`` operands too, behind all ``at`` results; their indices."""
        for body in bodies:
            copies = _work_on_copies(body, written)
            output_node(body.graph).args = ((*_results(body), *copies),)
        made = [self.operands[index].meta["val"].clone() for index in written]
        self.node.meta["val"] = (*self.node.meta["val"], *made)
        return list(range(at, at + len(written)))

    def _write(self, operands: list[fx.Node], results: list[int]) -> None:
        graph, before = self.module.graph, self.node
        for operand, result in zip(operands, results, strict=True):
            with graph.inserting_after(before):
                value = graph.call_function(operator.getitem, (self.node, result))
            with graph.inserting_after(value):
                before = graph.call_function(_COPY, (operand, value))
            value.meta = {**place_of(self.node), "val": self.node.meta["val"][result]}
            before.meta = {**place_of(self.node), "val": operand.meta["val"]}

    def _separate_operands(self, written: list[int]) -> None:
        """Copy operands that share memory with one before: torch takes none that do."""
        seen: dict[int, int] = {}
        index, changed = 0, False
        for group in self.lists:
            for i, operand in enumerate(group):
                storage = memory_of(operand)
                if storage is not None and seen.setdefault(storage, index) != index:
                    if index in written or seen[storage] in written:
                        raise self._refused("a body writes to an operand that shares memory with another operand")
                    group[i], changed = _clone(self.module.graph, operand, self.node), True
                index += 1
        if changed:
            self._update_operands()

    def _update_operands(self) -> None:
        for position, group in zip(self.form.operands, self.lists, strict=True):
            self.node.update_arg(position, tuple(group))

    def _refuse_later_writes(self, operands: Iterable[Any]) -> None:
        """In eager such a write would be seen through the result, or through the operand."""
        parts = [user for user in self.node.users if user.target is operator.getitem]
        memory = {memory_of(node) for node in (*operands, *parts)} - {None}
        node = self.node.next
        while node.op != "output":
            if any(memory_of(target) in memory for target in written_operands(node)):
                raise self._refused("gives an operand or a view of it back, and one of the two is written to later")
            node = node.next

    def _refused(self, reason: str) -> UnsupportedError:
        return UnsupportedError(
            "control flow that shares memory with the model around it",
            (UnsupportedOp(target_name(self.node), reason, node_source(self.node)),),
            hint="copy with .clone(): operands before they are handed in, results before they are returned",
        )


def _own_body(module: fx.GraphModule, node: fx.Node, position: int, taken: set[str]) -> fx.GraphModule:
    """The body that ``node`` has at ``position``; one of its own where an operation before has the same."""
    attribute = node.args[position]
    assert isinstance(attribute, fx.Node)
    name = str(attribute.target)
    body = getattr(module, name)
    if name in taken:
        body = copy.deepcopy(body)
        name = f"{name}_of_{node.name}"
        setattr(module, name, body)
        with module.graph.inserting_before(node):
            own = module.graph.get_attr(name)
        own.meta = dict(attribute.meta)
        node.update_arg(position, own)
    taken.add(name)
    assert isinstance(body, fx.GraphModule)
    return body


def _written(body: fx.GraphModule) -> list[int]:
    """Which operands ``body`` writes to."""
    written = {memory_of(target) for node in body.graph.nodes for target in written_operands(node)} - {None}
    return [i for i, node in enumerate(placeholders(body.graph)) if memory_of(node) in written]


def _results(body: fx.GraphModule) -> list[Any]:
    given = output_node(body.graph).args[0]
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _returned(body: fx.GraphModule) -> list[int]:
    """Which operands ``body`` gives back, or views of."""
    given = {memory_of(result) for result in _results(body)} - {None}
    return [i for i, node in enumerate(placeholders(body.graph)) if memory_of(node) in given]


def _work_on_copies(body: fx.GraphModule, written: list[int]) -> list[fx.Node]:
    """Let ``body`` write to copies of operands instead; the copies."""
    nodes = placeholders(body.graph)
    copies = []
    for index in written:
        made = _clone(body.graph, nodes[index], nodes[-1].next)
        made.meta["val"] = nodes[index].meta["val"]  # the same memory for all who look at it here
        nodes[index].replace_all_uses_with(made, delete_user_cb=functools.partial(operator.is_not, made))
        copies.append(made)
    return copies


def _separate_results(body: fx.GraphModule) -> None:
    """Copy results that share memory with an operand or with a result before."""
    output = output_node(body.graph)
    seen = {memory_of(node) for node in placeholders(body.graph)} - {None}
    given = _results(body)
    for i, result in enumerate(given):
        storage = memory_of(result)
        if storage in seen:
            given[i] = _clone(body.graph, result, output)
        elif storage is not None:
            seen.add(storage)
    output.args = (tuple(given) if isinstance(output.args[0], (list, tuple)) else given[0],)


def _clone(graph: fx.Graph, node: fx.Node, before: fx.Node) -> fx.Node:
    with graph.inserting_before(before):
        made = graph.call_function(_CLONE, (node,))
    made.meta = {**place_of(node if node.meta.get("stack_trace") else before), "val": node.meta["val"].clone()}
    return made
