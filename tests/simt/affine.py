"""Meanings of affine maps."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .build import Op, Step, apply, meaning
from .faults import Unsupported


def affine_function(expression: Any, dimensions: int) -> Callable[[list[Any]], Any]:
    """An affine expression as a function of its operands (dimensions, then symbols)."""
    name = type(expression).__name__
    if name == "AffineConstantExpr":
        value = np.int64(expression.value)
        return lambda operands: value
    if name in ("AffineDimExpr", "AffineSymbolExpr"):
        position = expression.position + (dimensions if name == "AffineSymbolExpr" else 0)
        return lambda operands: operands[position]
    left, right = affine_function(expression.lhs, dimensions), affine_function(expression.rhs, dimensions)
    combine = {
        "AffineAddExpr": operator.add,
        "AffineMulExpr": operator.mul,
        "AffineModExpr": operator.mod,
        "AffineFloorDivExpr": operator.floordiv,
        "AffineCeilDivExpr": lambda a, b: -((-a) // b),
    }[name]
    return lambda operands: combine(left(operands), right(operands))


@meaning("affine.apply", "affine.min", "affine.max")
def _(op: Op) -> Step:
    affine_map = op.attribute("map")
    functions = [affine_function(e, affine_map.n_dims) for e in affine_map.results]
    fold = {"affine.apply": None, "affine.min": np.minimum, "affine.max": np.maximum}[op.operation.name]

    def compute(*operands: Any) -> Any:
        values = [function(list(operands)) for function in functions]
        result = values[0]
        for value in values[1:]:
            result = fold(result, value)
        return result

    if len(op.operands) == 0:
        raise Unsupported("affine ops without operands")
    return apply(op, compute)


@meaning("affine.linearize_index")
def _(op: Op) -> Step:
    count = op.attribute("operandSegmentSizes")[0]
    static = op.attribute("static_basis")
    dynamic = iter(op.operands[count:])
    basis = [next(dynamic) if size < 0 else None for size in static]

    def step(frame: Any) -> None:
        sizes = [np.int64(s) if n is None else frame.env[n] for s, n in zip(static, basis, strict=True)]
        total = frame.env[op.operands[0]]
        for number, size in zip(op.operands[1:count], sizes[len(sizes) - count + 1 :], strict=True):
            total = total * size + frame.env[number]
        frame.env[op.results[0]] = total

    return step


@meaning("affine.delinearize_index")
def _(op: Op) -> Step:
    static = op.attribute("static_basis")
    dynamic = iter(op.operands[1:])
    basis = [next(dynamic) if size < 0 else None for size in static]

    def step(frame: Any) -> None:
        sizes = [np.int64(s) if n is None else frame.env[n] for s, n in zip(static, basis, strict=True)]
        rest = frame.env[op.operands[0]]
        inner = sizes[len(sizes) - len(op.results) + 1 :]
        for result, size in zip(reversed(op.results[1:]), reversed(inner), strict=True):
            frame.env[result] = rest % size
            rest = rest // size
        frame.env[op.results[0]] = rest

    return step
