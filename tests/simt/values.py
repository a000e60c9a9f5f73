"""Meanings of ops that make or pass on values: constants, selections, bits as another type."""

from __future__ import annotations

from typing import Any

import numpy as np

from .build import Op, Step, apply, meaning
from .kinds import Kind, constant, zero


def reinterpret(value: Any, source: Kind, target: Kind) -> Any:
    """The same bits as another type of the same size."""
    uniform = value.ndim == len(source.shape)
    raw = np.ascontiguousarray(value).reshape((1 if uniform else len(value), source.count)).view(target.dtype)
    shaped = raw.reshape((-1, *target.shape))
    return shaped[0] if uniform else shaped


@meaning("arith.bitcast", "llvm.bitcast", "vector.bitcast")
def _(op: Op) -> Step:
    (source,), target = op.operand_kinds, op.kind
    if not source.shape and not target.shape and source.dtype.kind != "b":
        return apply(op, lambda a: a.view(target.dtype))
    return apply(op, lambda a: reinterpret(a, source, target))


def choose_between(condition: Any, yes: Any, no: Any, rank: Any) -> Any:
    """``yes`` where the condition holds, else ``no``; the condition is one per thread or one per element."""
    if isinstance(rank, tuple):
        return tuple(choose_between(condition, *parts) for parts in zip(yes, no, rank, strict=True))
    if condition.ndim == 0:
        return yes if condition else no
    if condition.ndim == 1 and rank:  # one per thread, or one per element of a uniform vector: the threads come first
        condition = condition.reshape(-1, *(1,) * rank)
    return np.where(condition, yes, no)


@meaning("arith.select", "llvm.select")
def _(op: Op) -> Step:
    rank = op.kind.rank
    by_element = bool(op.operand_kinds[0].shape)
    if by_element:
        return apply(op, np.where)
    return apply(op, lambda c, a, b: choose_between(c, a, b, rank))


@meaning("arith.constant", "llvm.mlir.constant", "index.constant", "index.bool.constant")
def _(op: Op) -> Step:
    value, (result,) = constant(op.operation.attributes["value"]), op.results
    if value.dtype != op.kind.dtype:
        value = value.astype(op.kind.dtype)

    def step(frame: Any) -> None:
        frame.env[result] = value

    return step


@meaning("ub.poison", "llvm.mlir.undef", "llvm.mlir.poison", "llvm.mlir.zero", "llvm.mlir.null")
def _(op: Op) -> Step:
    value, (result,) = zero(op.kind), op.results

    def step(frame: Any) -> None:
        frame.env[result] = value

    return step
