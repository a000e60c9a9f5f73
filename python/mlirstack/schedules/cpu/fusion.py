"""Fusing a chain of ops into one loop over rows: softmax, layer norm, and elementwise ops with several users.

The last op is tiled, its producers are fused into the loops.  Only loops that index the result of *every* producer are
tiled, so nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlirstack.schedules.linalg_ops import LinalgOp


@dataclass(frozen=True)
class FusionPlan:
    """``terminal``: position of the last op; ``loops``: its loops that are tiled; ``members``: for each fused op, by
    position, which of its loops follows which loop of the terminal (own loop → terminal's loop)."""

    terminal: int
    loops: tuple[int, ...]
    members: Mapping[int, Mapping[int, int]]


def plan_fusion(ops: Sequence[LinalgOp]) -> FusionPlan | None:
    """The fusion of all of ``ops`` into loops over the last one, or None where they do not form one chain."""
    position = {op.op: i for i, op in enumerate(ops)}
    terminals = [i for i, op in enumerate(ops) if not _used_inside(op, position)]
    if len(terminals) != 1 or len(ops) < 2 or len(ops[terminals[0]].outputs) != 1:
        return None
    terminal = terminals[0]
    members: dict[int, dict[int, int]] = {terminal: {d: d for d in ops[terminal].parallel}}
    for index in range(terminal, -1, -1):  # users come after producers, so each op's loops are known when it is reached
        if index not in members:
            return None
        for operand in ops[index].operands:
            producer = position.get(getattr(operand.value, "owner", None))
            if producer is None:
                continue
            if len(ops[producer].outputs) != 1 or not operand.plain or not ops[producer].outputs[0].plain:
                return None
            follows = {
                own: members[index][used]
                for own, used in zip(ops[producer].outputs[0].dims, operand.dims, strict=True)
                if own is not None and used is not None and used in members[index]
            }
            agreed = _agreed(members.get(producer, follows), follows)
            if agreed is None:
                return None
            members[producer] = agreed
    shared = set(ops[terminal].parallel)
    for index, follows in members.items():
        if not ops[index].is_fill:
            shared &= set(follows.values())
    return FusionPlan(terminal, tuple(sorted(shared)), members) if shared else None


def _agreed(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int] | None:
    """The loops that two users of an op tile alike; None where they would tile one loop in different ways."""
    both = {own: follows for own, follows in one.items() if own in other}
    return both if all(other[own] == follows for own, follows in both.items()) else None


def _used_inside(op: LinalgOp, position: Mapping[object, int]) -> bool:
    users = [use.owner.operation for result in op.op.results for use in result.uses]
    return any(user in position for user in users) and all(user in position for user in users)
