"""Reductions and what stands around them: softmax, norms, sums over any dimensions, argmax, in one kernel where that can be.

A row is held in registers where it fits; where there are many, blocks stay for several; longer ones are read once per pass;
few long rows are shared by many blocks, whose partial results a second kernel combines in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from mlirstack.ir import kernels
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.reduce import WARP
from mlirstack.schedules.cuda.stream import row_claim
from mlirstack.schedules.cuda.stream.reductions import Selected
from mlirstack.schedules.cuda.stream.row_kernel import RowKernel, allocate_partials
from mlirstack.schedules.cuda.stream.row_pipeline import StayingRows, can_stay, stage_bytes
from mlirstack.schedules.cuda.stream.row_plan import RowPlan, row_plan
from mlirstack.schedules.cuda.stream.row_team import SCHEDULE, Shape

_STEPS = 4  # steps of the loop of a block, where there is much to read
_MANY_ROWS = 16  # for each multiprocessor: a warp for each row then keeps them busy
_COUNT = 24  # candidates
_ROUNDS = 4  # rows of a team, at least, where blocks stay
_OTHER_SHARED = 3 << 10  # bytes of a block's shared memory that rows do not take: its own, and those of reductions
_HELD = 64  # registers of a thread for values of the row; 32 in blocks of 1024, which have 64 registers a thread


class Rows:
    """Parameters: ``mode`` (resident, staying, looped or split), and those of ``Shape``."""

    name = SCHEDULE
    kernel_class = kernels.REDUCTION
    takes_extents = True

    def claim(self, operations: Sequence[Any], device: Device) -> list[list[Any]]:
        """Groups of ops that this emitter takes; see :mod:`.row_claim`."""
        return row_claim.claim(operations)

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        plan = row_plan(graph)
        return None if plan is None else _parameters(*_best(plan, device))

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """Other sizes of teams and blocks, and the other ways to walk over the columns."""
        plan = row_plan(graph)
        if plan is None:
            return []
        mode, shape = _best(plan, device)
        found = [(mode, shape), (mode, replace(shape, stream=not shape.stream))]
        for team in _teams(plan, shape.vector):
            other = _resident(plan, replace(shape, cluster=1, together=0), team)
            if other is not None:
                found += [("resident", other), *(("resident", bounded) for bounded in _bounded(plan, other, device))]
        found += [("resident", clustered) for clustered in _clustered(plan, replace(shape, cluster=1), device)]
        found += [("staying", staying) for staying in _staying(plan, shape, device)]
        looped = _looped(plan, replace(shape, cluster=1))
        found += [("looped", looped), ("looped", replace(looped, count=2 * looped.count))]
        if plan.can_split:
            found += [("split", _split(plan, replace(looped, count=count), device)) for count in (2, 4, 8)]
        return [_parameters(*pair) for pair in dict.fromkeys(found)][:_COUNT]

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """One kernel, or two for mode "split"; see :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        plan = row_plan(graph)
        assert plan is not None, "the graph is the one that the parameters were chosen for"
        shape = Shape(**{name: value for name, value in parameters.items() if name != "mode"})  # type: ignore[arg-type]
        mode = parameters["mode"]
        if mode == "split":
            _emit_split(function, plan, shape)
        elif mode == "staying":
            StayingRows(function, plan, shape, plan.accesses).write()
        elif mode == "looped":
            RowKernel(function, plan, shape, plan.accesses).write_looped()
        else:
            RowKernel(function, plan, shape, plan.accesses).write_resident()


def _emit_split(function: Any, plan: RowPlan, shape: Shape) -> None:
    partials = allocate_partials(function, plan, shape.splits)
    RowKernel(function, plan, shape, plan.reads, suffix="_parts").write_partial(partials)
    if plan.along_columns:
        team = _power_of_two(min(shape.splits, 256))
        threads = max(128, team) if team > WARP or plan.row_count > 1 else WARP
        team = threads if team > WARP else team
    else:
        threads, team = 256, _power_of_two(min(shape.splits, 8))
    last = Shape(threads, team, 1, -(-shape.splits // team))
    results = [plan.space.writes[tensor] for tensor in plan.results]
    RowKernel(function, plan, last, [*plan.row_reads, *results], suffix="_total").write_final(partials, shape.splits)


# ---------------------------------------------------------------------------------------------------------------- choice


def _parameters(mode: str, shape: Shape) -> Parameters:
    staying: Parameters = {"stages": shape.stages, "blocks": shape.blocks} if mode == "staying" else {}
    bounded: Parameters = {"together": shape.together} if shape.together else {}
    return {
        "mode": mode, "threads": shape.threads, "team": shape.team, "vector": shape.vector, "count": shape.count,
        "splits": shape.splits, "cluster": shape.cluster, "stream": shape.stream, **staying, **bounded,
    }  # fmt: skip


def _best(plan: RowPlan, device: Device) -> tuple[str, Shape]:
    """The way that the cost model finds best: what keeps all multiprocessors reading, with the fewest passes over memory."""
    shape = Shape(256, 32, plan.vector(), 1)  # hints to evict first cost up to 5 % on an H200
    looped = _looped(plan, shape)
    if plan.can_split:
        split = _split(plan, looped, device)
        if split.splits > 1:
            return "split", split
    if len(plan.waves) == 1 and not plan.full_results:  # nothing needs to stay in registers
        if not plan.along_columns and plan.column_count > looped.team * looped.count:
            return "looped", looped
        if plan.along_columns and _meets_at_a_cost(plan) and plan.row_count >= _MANY_ROWS * device.multiprocessors:
            return "looped", replace(looped, threads=128, team=WARP)
    if _is_worth_staying(plan):
        found = [staying for staying in _staying(plan, shape, device) if staying.cluster <= 2]
        if found:
            return "staying", min(found, key=lambda s: (s.cluster, s.threads * s.together, abs(s.count * s.vector - 32)))
    for team in _teams(plan, shape.vector):
        resident = _resident(plan, shape, team)
        if resident is not None:
            # On its multiprocessor; rows of 16 bits have more to compute while nothing is read.
            alone = resident.threads == 1024 and (resident.count * resident.vector >= 32 or _is_half(plan))
            if alone and len(plan.waves) > 1 and (clustered := _clustered(plan, shape, device)):
                return "resident", clustered[0]  # several blocks: one reads while the others wait
            return "resident", resident
    clustered = _clustered(plan, shape, device)
    return ("resident", clustered[0]) if clustered else ("looped", looped)


def _is_worth_staying(plan: RowPlan) -> bool:
    """Are weights of the columns, which blocks that do not stay read anew for every row, much of what is read?

    Measured on an H200: where rows are of 16 bits, from 8192 columns on; f32 rows are faster without.
    """
    rows = [member for loop in plan.rows for member in loop.members]
    weights = [a for a in plan.reads if plan.has_columns(a) and not any(a.strides[row] for row in rows)]
    return bool(weights) and _is_half(plan) and plan.column_count >= 8192


def _is_half(plan: RowPlan) -> bool:
    return vectors.bytes_of(plan.bulk.tensor.element) == 2


def _meets_at_a_cost(plan: RowPlan) -> bool:
    """Does it take more than a few instructions to combine two partial results, as with a value and its position?"""
    return any(isinstance(reduction, Selected) for reduction in plan.reductions)


def _teams(plan: RowPlan, vector: int) -> list[int]:
    """Sizes of teams that may hold their rows in registers, the best first.

    Measured on an H200: two 16-byte vectors a thread are best, up to eight are nearly as good; where rows are short,
    a part of a warp has one.
    """
    if not plan.along_columns:
        return [team for team in (4, 8, 16, 32, 64, 128, 2, 1) if team <= 2 * plan.column_count]
    length = plan.column_count // vector
    if length <= 8 * WARP:
        best = max(1, min(WARP, _power_of_two(-(-length // 2)))) if length <= 6 * WARP else 128
        others = [team for team in (1, 2, 4, 8, 16, 32) if min(best, WARP - 1) < team <= length]
        return list(dict.fromkeys([best, *others, *([best // 2] if 1 < best <= WARP else []), 128]))
    sizes = [team for team in (1024, 512, 256, 128) if 2 * team <= length]
    # Little waste first, then more threads.
    return sorted(sizes, key=lambda team: (-(-length // team) * team > 1.25 * length, -team))


def _resident(plan: RowPlan, shape: Shape, team: int) -> Shape | None:
    """The kernel with teams of this size, if their rows fit into registers."""
    length = plan.column_count // (shape.vector if plan.along_columns else 1)
    count = -(-length // team)
    threads = max(team, 128)
    if not plan.along_columns:
        threads = min(1024, max(128, team * _near_rows(plan, shape)))
    elif team < WARP:
        threads = 128
    words = sum(max(1, vectors.bytes_of(a.tensor.element) // 4) for a in plan.full_reads)
    held = count * shape.vector * max(1, words)
    if held > (_HELD if threads <= 512 else _HELD // 2):
        return None
    return replace(shape, threads=threads, team=team, count=count)


def _bounded(plan: RowPlan, shape: Shape, device: Device) -> list[Shape]:
    """The same with registers for so many blocks on a multiprocessor: what is read after the last reduction then comes in
    pieces, and other blocks read meanwhile."""
    held = shape.count * shape.vector * max(1, len(plan.full_reads))
    bounds = (replace(shape, together=together) for together in range(8, 1, -1))
    return [
        bound
        for bound in bounds
        if 1024 <= bound.threads * bound.together <= device.threads_per_multiprocessor and bound.values_per_thread >= held
    ][:2]


def _clustered(plan: RowPlan, shape: Shape, device: Device) -> list[Shape]:
    """Kernels whose teams are clusters of blocks, for rows that do not fit into the registers of one; the best first.

    Two blocks of 512 threads fit on a multiprocessor, so that one reads while the other waits for its cluster.
    """
    length = plan.column_count // shape.vector
    if not device.has_clusters or not plan.along_columns or length < 4096:
        return []
    words = sum(max(1, vectors.bytes_of(a.tensor.element) // 4) for a in plan.full_reads)
    found = []
    for threads in (256, 512, 1024):
        for cluster in (2, 4, 8):
            team = threads * cluster
            count = -(-length // team)
            if count * shape.vector * max(1, words) <= _HELD // 2:
                found.append(replace(shape, threads=threads, team=team, count=count, cluster=cluster))
                break
    return found


def _staying(plan: RowPlan, shape: Shape, device: Device) -> list[Shape]:
    """Kernels whose blocks stay for several rows."""
    if not can_stay(plan, shape.vector) or not plan.full_results or plan.varies:
        return []
    length = plan.column_count // shape.vector
    found = []
    for threads, cluster, together in product((256, 512, 1024), (1, 2, 4, 8), (1, 2, 3, 4)):
        team = threads * cluster if length > 8 * WARP else WARP
        count = -(-length // team)
        if count * team > 1.25 * length or not 512 <= threads * together <= device.threads_per_multiprocessor:
            continue
        if cluster > 1 and (not device.has_clusters or length < 4096):
            continue
        one = Shape(threads, team, shape.vector, count, cluster=cluster, stages=2, together=together)
        room = (device.shared_per_multiprocessor // together - _OTHER_SHARED) // stage_bytes(plan, one)
        rounds = -(-plan.row_count // (one.teams * (device.blocks_at_once(cluster) * together // cluster)))
        if one.values_per_thread < count * shape.vector * len(plan.full_reads) or room < 2 or rounds < _ROUNDS:
            continue
        # As many blocks as give all of them the same number of rows.
        blocks = -(-plan.row_count // (one.teams * rounds)) * cluster
        found.append(replace(one, stages=min(room, 4), blocks=blocks))
    return found


def _looped(plan: RowPlan, shape: Shape) -> Shape:
    """The kernel that reads rows in pieces."""
    words = max(1, sum(max(1, vectors.bytes_of(a.tensor.element) // 4) for a in plan.full_reads))
    count = max(1, min(8, 32 // (shape.vector * words)))
    if plan.along_columns:
        length = plan.column_count // shape.vector
        threads = max(128, min(1024 if len(plan.waves) > 1 or plan.full_results else 512, _power_of_two(length) // count))
        return replace(shape, threads=threads, team=threads, count=count)
    near = _near_rows(plan, shape)
    team = max(1, 256 // near)
    return replace(shape, threads=team * near, team=team, count=min(count * 2, 8))


def _split(plan: RowPlan, shape: Shape, device: Device) -> Shape:
    """The kernel whose blocks share rows: several steps of the loop a block, and blocks for every multiprocessor.

    Where there is much to read along rows, many more blocks than can run at once, so that the last ones are a small part;
    across rows, where partial results are more numerous, all run at once.
    """
    length = plan.column_count // (shape.vector if plan.along_columns else 1)
    rows = plan.row_count // (1 if plan.along_columns else shape.vector)
    blocks = -(-rows // shape.teams)
    at_once = (4 if not plan.along_columns and shape.count * shape.vector <= 32 else 2) * device.multiprocessors
    steps = max(1, length // (shape.team * shape.count))
    if blocks >= 2 * at_once or steps == 1:
        return shape
    splits = max(1, at_once // blocks)
    if plan.along_columns and steps // splits > 32:
        splits = steps // _STEPS
    each = -(-length // min(splits, steps))
    return replace(shape, splits=-(-length // each))


def _near_rows(plan: RowPlan, shape: Shape) -> int:
    """Vectors of neighbouring rows that a block reads together, where vectors lie along rows."""
    return min(32, _power_of_two(max(1, plan.row_count // shape.vector)))


def _power_of_two(number: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(0, number - 1).bit_length()
