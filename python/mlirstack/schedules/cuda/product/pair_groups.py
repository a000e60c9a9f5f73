"""Which ops are two products of one left factor whose results meet: what
:mod:`mlirstack.schedules.cuda.product.paired` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions

Takes = Callable[[Sequence[Any]], bool]


def pair_groups(operations: Sequence[Any], takes: Takes) -> list[list[Any]]:
    """The largest group around every elementwise op among ``operations`` (of one block, in order) in which two products of
    one left factor meet, as far as ``takes`` accepts it.

    All results in a group but that of its last op are read by the group alone.
    """
    order = {op: position for position, op in enumerate(operations)}
    groups: list[list[Any]] = []
    taken: set[Any] = set()
    for op in operations:
        for one, other in _met(op, order):
            group = sorted({*one, *other, op}, key=lambda member: order[member])
            if not taken.intersection(group) and takes(group):
                group += _following(group, order, takes, taken)
                groups.append(group)
                taken.update(group)
    return groups


def _met(op: Any, order: dict[Any, int]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Two products that have an input in common, each with the elementwise ops from there to ``op``."""
    if not _is_elementwise(op):
        return
    producers = dict.fromkeys(functions.defining_op(value) for value in op.operands)
    chains = [chain for producer in producers if (chain := _chain(producer, op, order))]
    for position, one in enumerate(chains):
        for other in chains[position + 1 :]:
            if set(list(one[0].operands)[:2]) & set(list(other[0].operands)[:2]):
                yield one, other


def _chain(op: Any, user: Any, order: dict[Any, int]) -> list[Any]:
    """A product and elementwise ops after it, the last one ``op``, each read by the next alone; empty if there is none."""
    if op is None or op not in order or _users(op) != {user}:
        return []
    if _is_product(op):
        return [op]
    producers = [functions.defining_op(value) for value in op.operands] if _is_elementwise(op) else []
    return next(([*chain, op] for producer in producers if (chain := _chain(producer, op, order))), [])


def _following(group: Sequence[Any], order: dict[Any, int], takes: Takes, taken: set[Any]) -> list[Any]:
    """Elementwise ops, each the only one that reads the one before it."""
    found: list[Any] = []
    while (user := _only_user([*group, *found][-1])) is not None and user in order and user not in taken:
        if not _is_elementwise(user) or not takes([*group, *found, user]):
            break
        found.append(user)
    return found


def _is_product(op: Any) -> bool:
    maps = _maps(op)
    return len(maps) == 3 and len(op.results) == 1 and len(maps[-1].results) < maps[-1].n_dims


def _is_elementwise(op: Any) -> bool:
    maps = _maps(op)
    return bool(maps) and op.name != "linalg.fill" and len(maps[-1].results) == maps[-1].n_dims


def _maps(op: Any) -> list[Any]:
    if op is None or not op.name.startswith("linalg."):
        return []
    maps = dialect("linalg").get_indexing_maps(op)
    return [ir.AffineMapAttr(affine).value for affine in maps] if maps is not None else []


def _only_user(op: Any) -> Any | None:
    """The op that alone reads the result, in the same block."""
    users = _users(op)
    user = next(iter(users)) if len(users) == 1 else None
    return user if user is not None and user.block == op.block else None


def _users(op: Any) -> set[Any]:
    return {use.owner.operation for use in op.results[0].uses} if len(op.results) == 1 else set()
