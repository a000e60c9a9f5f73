"""The loop nest around one linalg op: which loops become vectors, which step by one, where the ragged end is cut off.

Elementwise ops and reductions use it, alone or inside a fused row loop.  A ragged size is split into a part that the tile
divides and a rest of static size, so every vector has exactly the size it needs and nothing is masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.schedules.linalg_ops import LinalgOp, coefficient, expression_loops
from mlirstack.schedules.transform import Handle, Script


@dataclass(frozen=True)
class Unrolling:
    """How many vector registers one vector of the schedule spans.

    ``elementwise``: independent vectors in flight; ``accumulators``: partial results of a reduction, enough to hide the
    latency of an addition (4 cycles, two a cycle on current x86).
    """

    elementwise: int = 2
    accumulators: int = 4
    columns: int = 8  # of a reduction across rows: wide enough to read whole cache lines in a row
    windows: int = 8  # accumulators of a window that slides, over several rows where one row has not that many
    long_body: int = 24  # bodies with more operations are not unrolled: they fill the pipeline, and spill


@dataclass(frozen=True)
class NestPlan:
    """The loops of one op.

    ``sizes``: loop sizes as they stand; ``vector``: loop → tile size, the loops that become vector dimensions;
    ``partial``: the reduction loops over which partial results are kept (the innermost one is a vector dimension).
    All other loops step by one.  ``carried``: a
    loop hands a vector of that length on to its next iteration, which LLVM does in registers for powers of two only.
    """

    sizes: tuple[int, ...]
    vector: Mapping[int, int]
    reductions: tuple[int, ...] = ()
    partial: tuple[int, ...] = ()
    carried: bool = False


def lanes(op: LinalgOp, vector_bits: int) -> int:
    """Elements of the widest type of ``op`` in one register."""
    return max(1, vector_bits // op.element_bits)


def innermost(op: LinalgOp) -> int | None:
    """The loop along which memory is contiguous: that of the largest input's last dimension, else the output's."""
    reading = [o for o in op.inputs if o.dims]
    if not op.reductions:
        reading = [*op.outputs, *reading]
    sized = [o for o in reading if o.dims] or [o for o in op.outputs if o.dims]
    if not sized:
        return None
    if not op.reductions:
        return sized[0].dims[-1]
    return max(sized, key=lambda o: len(o.dims)).dims[-1]


def plan_nest(
    op: LinalgOp, vector_bits: int, unrolling: Unrolling, *, sizes: tuple[int, ...] | None = None
) -> NestPlan | None:
    """Loops for ``op`` (elementwise or reduction), or None where it has no vector form.

    ``sizes`` replaces the loop sizes where an enclosing loop has tiled some of them already.
    """
    if any(operand.windows for operand in op.inputs):
        return _plan_windows(op, vector_bits, unrolling, sizes or op.shape)
    if not op.vectorizable or (op.reductions and (op.combiners is None or len(op.outputs) != 1)):
        return None
    sizes = sizes or op.shape
    inner = innermost(op)
    if inner is None:
        return NestPlan(sizes, {})
    width = lanes(op, vector_bits)
    if op.reductions:
        if inner in op.reductions:
            tile = width * unrolling.accumulators
            carried = any(sizes[d] > 1 for d in op.reductions if d != inner)
            return NestPlan(sizes, {inner: min(tile, sizes[inner])}, op.reductions, op.reductions, carried)
        tile = width * unrolling.columns
        return NestPlan(sizes, {inner: min(tile, sizes[inner])}, op.reductions, carried=True)
    across = transposed(op, inner)
    if across:
        side = min(width, 16)
        if len(across) > 1:
            return None
        return NestPlan(sizes, {d: min(side, sizes[d]) for d in (*across, inner)})
    tile = width * (1 if len(op.body) > unrolling.long_body else unrolling.elementwise)
    return NestPlan(sizes, {inner: min(tile, sizes[inner])})


def _plan_windows(op: LinalgOp, vector_bits: int, unrolling: Unrolling, sizes: tuple[int, ...]) -> NestPlan | None:
    """Loops for a pooling or a convolution that is no contraction over many channels, or None where it has no vector form.

    Vectors lie along the innermost loop of the result, and the window steps by one: what remains for each of its places is
    an elementwise op over slices (:class:`~mlirstack.schedules.cpu.unit_loops.DropUnitLoops`).
    """
    if not op.has_vector_body or not op.reductions or op.combiners is None or len(op.outputs) != 1:
        return None
    out = op.outputs[0]
    if not out.plain or not out.dims:
        return None
    inner = out.dims[-1]
    assert inner is not None
    if not all(_is_contiguous_along(operand.expressions, inner) for operand in op.inputs):
        return None
    width = lanes(op, vector_bits)
    vector = {inner: min(width * unrolling.accumulators, sizes[inner])}
    rows = unrolling.windows // -(-vector[inner] // width)
    # Rows that read the same window are worth more than any others.
    sharing = [d for d in op.parallel if d != inner and any(d not in o.loops for o in op.inputs if o.windows)]
    others = [d for d in op.parallel if d != inner]
    for row in (*sharing[::-1], *others[::-1]):
        if rows > 1 and sizes[row] > 1:
            vector = {row: min(rows, sizes[row]), **vector}
            break
    return NestPlan(sizes, vector, op.reductions, carried=True)


def _is_contiguous_along(expressions: Sequence[Any], loop: int) -> bool:
    """Does ``loop`` step by one element through an operand, or not at all?"""
    *outer, last = expressions or (None,)
    if any(loop in expression_loops(e) for e in outer):
        return False
    return last is None or loop not in expression_loops(last) or coefficient(last, loop) == 1


def transposed(op: LinalgOp, inner: int) -> tuple[int, ...]:
    """Loops other than ``inner`` along which some operand that also varies with ``inner`` is contiguous."""
    found = {o.dims[-1] for o in op.operands if o.dims and o.dims[-1] != inner and inner in o.dims}
    return tuple(sorted(d for d in found if d is not None))


def is_better_flat(op: LinalgOp, plan: NestPlan) -> bool:
    """Is ``op`` elementwise over contiguous tensors of one shape, and would its rows leave a rest in each?"""
    identity = tuple(range(len(op.sizes)))
    if len(identity) < 2 or op.reductions or op.name != "linalg.generic" or len(plan.vector) != 1:
        return False
    (dim, tile), *_ = plan.vector.items()
    return op.shape[dim] % (2 * tile) != 0 and all(operand.dims == identity for operand in op.operands)


def tile_nest(script: Script, op: Handle, plan: NestPlan) -> None:
    """Write the loops of ``plan`` around ``op``."""
    if plan.partial:
        _tile_partial(script, op, plan)
        return
    pieces = [(op, dict(enumerate(plan.sizes)), dict(plan.vector))]
    for dim in plan.vector:
        pieces = [piece for given in pieces for piece in split_nest(script, *given, dim, carried=plan.carried)]
    order = [d for d in range(len(plan.sizes)) if d not in plan.reductions] + list(plan.reductions)
    for handle, sizes, vector in pieces:
        steps = [0] * len(sizes)
        for dim, size in sizes.items():
            tile = vector.get(dim, 1)
            steps[dim] = tile if size > tile else 0
        script.tile(handle, steps, order if order != sorted(order) else ())


Piece = tuple[Handle, dict[int, int], dict[int, int]]  # an op, its loop sizes, the tile sizes of its vector loops


def split_nest(
    script: Script, op: Handle, sizes: dict[int, int], vector: dict[int, int], dim: int, *, carried: bool
) -> list[Piece]:
    """Cut loop ``dim`` where its tile size, or that of the last piece, ends."""
    pieces: list[Piece] = []
    lengths = cut(sizes[dim], vector[dim], powers_of_two=carried)
    for i, (length, tile) in enumerate(lengths):
        rest = op
        if i < len(lengths) - 1:
            op, rest = script.split(op, dim, length)
        pieces.append((op, {**sizes, dim: length}, {**vector, dim: tile}))
        op = rest
    return pieces


def cut(size: int, tile: int, *, powers_of_two: bool) -> list[tuple[int, int]]:
    """Lengths of the pieces of a loop, and the vector length in each: what ``tile`` divides, and the rest as a whole.

    With ``powers_of_two`` the rest is cut further, down to three elements and less: 23 by 16 is 16, 4, 3.
    """
    pieces: list[tuple[int, int]] = []
    if powers_of_two and tile & (tile - 1) and tile > 3:
        tile = 1 << (tile.bit_length() - 1)
    while size:
        if not powers_of_two or tile <= 3:
            whole = size // tile * tile
            return pieces + [(n, min(tile, n)) for n in (whole, size - whole) if n]
        whole = size // tile * tile
        if whole:
            pieces.append((whole, tile))
        size -= whole
        tile = size if size <= 3 else tile // 2
    return pieces


def _tile_partial(script: Script, op: Handle, plan: NestPlan) -> None:
    """Parallel loops by one; inside, reduction loops with partial results along the vector dimension."""
    outer = [0 if d in plan.reductions or size == 1 else 1 for d, size in enumerate(plan.sizes)]
    op = script.tile(op, outer)
    sizes = {d: size if d in plan.reductions else 1 for d, size in enumerate(plan.sizes)}
    pieces = [(op, sizes, dict(plan.vector))]
    for dim in plan.vector:
        pieces = [piece for given in pieces for piece in split_nest(script, *given, dim, carried=plan.carried)]
    for handle, part, vector in pieces:
        steps = [min(part[d], vector.get(d, 1)) if d in plan.partial else 0 for d in range(len(part))]
        if any(step and part[d] > step for d, step in enumerate(steps)):
            script.tile_reduction(handle, steps)
