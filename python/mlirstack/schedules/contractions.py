"""Contractions as plain data: which loops are batch, rows, columns and summation, which operand is which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.schedules.linalg_ops import LinalgOp, Operand

_PRODUCTS = {"arith.addf": "arith.mulf", "arith.addi": "arith.muli"}
_WIDENING = frozenset({"arith.extf", "arith.extsi", "arith.extui", "arith.sitofp", "arith.uitofp"})


@dataclass(frozen=True)
class Widening:
    """One conversion of a factor to a wider type: an arith op and the type it leaves."""

    op: str
    type: Any


@dataclass(frozen=True)
class Contraction:
    """``out[batch, rows, columns] += lhs[batch, rows, sums] * rhs[batch, columns, sums]``, loops by number.

    The right-hand side is the operand along whose loops the output is contiguous; of a convolution it is the filter, and
    the output of one with channels first is contiguous along rows.  The widenings convert the elements of an
    operand to the type of the output, in which the products are summed.
    """

    op: LinalgOp
    lhs: Operand
    rhs: Operand
    lhs_widening: tuple[Widening, ...]
    rhs_widening: tuple[Widening, ...]
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    sums: tuple[int, ...]

    @property
    def out(self) -> Operand:
        """The output."""
        return self.op.outputs[0]


def contraction(op: LinalgOp | None) -> Contraction | None:
    """``op`` as a contraction, or None: a sum of products of two inputs of static shape.

    Loop indices are plain, except for the left-hand side of a convolution, through which windows slide.
    """
    if op is None or not op.static or len(op.inputs) != 2 or len(op.outputs) != 1 or not op.outputs[0].dims:
        return None
    if not op.reductions or not op.outputs[0].plain:
        return None
    widenings = _factors(op)
    if widenings is None:
        return None
    out = set(op.outputs[0].dims)
    inner = op.outputs[0].dims[-1]
    sliding = [operand for operand in op.inputs if operand.windows]
    sides = sliding or [operand for operand in op.inputs if inner not in operand.loops]
    if len(sides) != 1:
        return None
    lhs = sides[0]
    rhs = next(operand for operand in op.inputs if operand is not lhs)
    left, right = set(lhs.loops), set(rhs.loops)
    if not rhs.plain or not (lhs.plain or lhs.windows) or any((d in left) != (d in right) for d in op.reductions):
        return None
    if not out <= left | right:  # the same product several times over
        return None
    order = [d for d in op.outputs[0].dims if d is not None]
    return Contraction(
        op,
        lhs,
        rhs,
        widenings[0 if lhs is op.inputs[0] else 1],
        widenings[0 if rhs is op.inputs[0] else 1],
        batch=tuple(d for d in order if d in left and d in right and d in out),
        rows=tuple(d for d in order if d not in right),
        columns=tuple(d for d in order if d not in left),
        sums=op.reductions,
    )


def _factors(op: LinalgOp) -> list[tuple[Widening, ...]] | None:
    """How each input is widened before it is multiplied; None where the body is no sum of products of the two inputs."""
    combiners = op.combiners
    if combiners is None or combiners[0] not in _PRODUCTS:
        return None
    block = op.op.regions[0].blocks[0]
    accumulator = block.arguments[len(block.arguments) - 1]
    total = list(block.operations)[-1].operands[0].owner
    terms = [term for term in total.operation.operands if term != accumulator]
    if len(terms) != 1 or not _is_op(terms[0].owner) or terms[0].owner.operation.name != _PRODUCTS[combiners[0]]:
        return None
    traced = [_trace(factor) for factor in terms[0].owner.operation.operands]
    found: list[tuple[Widening, ...]] = []
    for argument in list(block.arguments)[:2]:
        chains = [chain for source, chain in traced if source == argument]
        if len(chains) != 1:
            return None
        found.append(chains[0])
    return found


def _trace(value: Any) -> tuple[Any, tuple[Widening, ...]]:
    """What ``value`` is widened from, and how, first conversion first."""
    chain: list[Widening] = []
    while _is_op(value.owner) and value.owner.operation.name in _WIDENING:
        chain.insert(0, Widening(value.owner.operation.name, value.type))
        value = value.owner.operation.operands[0]
    return value, tuple(chain)


def _is_op(owner: Any) -> bool:
    return isinstance(owner, (ir.Operation, ir.OpView))
