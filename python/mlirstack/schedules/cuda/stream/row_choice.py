"""How rows are best reduced: the sizes of teams and blocks that a cost model takes, and others that are worth timing.

Takes the plan of a graph; says which kernel (resident, staying, looped or split) and its :class:`Shape`.  What decides is
how many bytes each multiprocessor has on their way while others of its blocks reduce, wait and store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.reduce import WARP
from mlirstack.schedules.cuda.stream.reductions import Selected
from mlirstack.schedules.cuda.stream.row_pipeline import can_stay, stage_bytes
from mlirstack.schedules.cuda.stream.row_plan import RowPlan
from mlirstack.schedules.cuda.stream.row_team import Shape

Way = tuple[str, Shape]  # mode and sizes

_STEPS = 4  # steps of the loop of a block, where there is much to read
_MANY_ROWS = 16  # for each multiprocessor: a warp for each row then keeps them busy
_COUNT = 32  # candidates
_OTHER_SHARED = 3 << 10  # bytes of a block's shared memory that rows do not take: its own, and those of reductions
_HELD = 64  # registers of a thread for values of the row; 32 in blocks of 1024, which have 64 registers a thread
_LONG = 32768  # columns
_PIECE = 96  # bytes of a row that a thread has at best


def candidates(plan: RowPlan, device: Device) -> list[Way]:
    """Ways worth timing, the one that is taken without measurements first."""
    mode, shape = best(plan, device)
    plain = Shape(shape.threads, shape.team, shape.vector, shape.count)
    residents = [("resident", resident) for resident in _residents(plan, plain, device)]
    staying = [("staying", one) for one in _staying(plan, plain, device)]
    found = [(mode, shape), *residents[:5], *staying[:4], *residents[5:], *staying[4:]]
    looped = _looped(plan, plain)
    found += [("looped", looped), ("looped", replace(looped, count=2 * looped.count))]
    if plan.can_split:
        found += [("split", _split(plan, replace(looped, count=count), device)) for count in (2, 4, 8)]
    return list(dict.fromkeys(found))[:_COUNT]


def _residents(plan: RowPlan, shape: Shape, device: Device) -> Iterator[Shape]:
    """Kernels that hold rows in registers, the likely ones first."""
    size = shape.vector * vectors.bytes_of(plan.bulk.tensor.element)
    teams = (_resident(plan, shape, team) for team in _teams(plan, shape.vector))
    usual = sorted((r for r in teams if r is not None), key=lambda r: abs(r.count * size - _PIECE))[:4]
    found = [one for resident in usual for one in (resident, *_bounded(plan, resident, device)[:1])]
    clustered = _clustered(plan, shape, device)
    yield from found
    yield from clustered
    if not plan.along_columns:
        near = (_resident(plan, shape, team, few) for few, team in product((32, 16, 4), _teams(plan, shape.vector)))
        yield from (one for one in near if one is not None and 2 <= one.count <= 16)
        return
    if plan.column_reads:
        yield from (replace(one, past_l1=True) for one in [*found[:4], *clustered[:1]])
    for one, rows in product([*usual[:3], *clustered], (2, 4)):
        held = rows * one.count * shape.vector
        for together in (0,) if one.cluster == 1 else (4, 3, 2):
            several = replace(one, rows=rows, together=together if together * one.threads <= 1024 else 0)
            if held <= several.values_per_thread:
                yield several
                break


def best(plan: RowPlan, device: Device) -> tuple[str, Shape]:
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
    resident = next((r for team in _teams(plan, shape.vector) if (r := _resident(plan, shape, team))), None)
    clustered = _clustered(plan, shape, device)
    if _is_worth_staying(plan):
        found = [one for one in _staying(plan, shape, device) if one.threads == 256 and one.together == 2]
        if found:
            return "staying", min(found, key=lambda one: (one.rows > 4, -one.cluster))
    if resident is not None and plan.column_reads:
        # Where a thread has much, weights come in pieces and another block reads meanwhile; where more, a cluster has it.
        held = resident.count * resident.vector if resident.threads >= 256 else 0
        if held > 32 and clustered:
            return "resident", clustered[0]
        bounded = _bounded(plan, resident, device) if held == 32 else []
        return "resident", bounded[-1] if bounded else resident
    if resident is not None:
        # On its multiprocessor; rows of 16 bits have more to compute while nothing is read.
        alone = resident.threads == 1024 and (resident.count * resident.vector >= 32 or _is_half(plan))
        if alone and len(plan.waves) > 1 and clustered:
            return "resident", clustered[0]  # several blocks: one reads while the others wait
        return "resident", resident
    return ("resident", clustered[0]) if clustered else ("looped", looped)


def _is_worth_staying(plan: RowPlan) -> bool:
    """Is a row better on its way to shared memory while another is reduced?

    Measured on an H200: of 32768 columns on where these have weights, two if rows are of f32; of 65536 bf16 without.
    """
    has_weights = len(plan.column_reads) > (0 if _is_half(plan) else 1)
    is_long = plan.column_count >= (_LONG if has_weights else 2 * _LONG)
    return is_long and (has_weights or _is_half(plan)) and not plan.varies


def _is_half(plan: RowPlan) -> bool:
    return vectors.bytes_of(plan.bulk.tensor.element) == 2


def _meets_at_a_cost(plan: RowPlan) -> bool:
    """Does it take more than a few instructions to combine two partial results, as with a value and its position?"""
    return any(isinstance(reduction, Selected) for reduction in plan.reductions)


def _teams(plan: RowPlan, vector: int) -> list[int]:
    """Sizes of teams that may hold their rows in registers, the best first.

    Measured on an H200: two 16-byte vectors a thread are best, up to eight are nearly as good; where rows are short, a part
    of a warp has one.  Of long rows with weights of 16 bits, four are best; and 512 threads rather than 1024 with two each,
    more of which wait for each other while nothing is read.
    """
    if not plan.along_columns:
        return [team for team in (4, 8, 16, 32, 64, 128, 2, 1) if team <= 2 * plan.column_count]
    length, has_weights = plan.column_count // vector, bool(plan.column_reads)
    if length <= 8 * WARP:
        best = max(1, min(WARP, power_of_two(-(-length // 2)))) if length <= 6 * WARP else 128
        others = [team for team in (1, 2, 4, 8, 16, 32) if min(best, WARP - 1) < team <= length]
        return list(dict.fromkeys([best, *others, *([best // 2] if 1 < best <= WARP else []), 128]))
    least = 32 if has_weights and _is_half(plan) else 8
    waste = 1.15 if has_weights or vector == 1 else 1.25
    most = 512 if has_weights or length <= 4 * 512 else 1024

    def cost(team: int) -> tuple[bool, bool, bool, int]:
        count = -(-length // team)
        return count * team > waste * length, has_weights and count * vector < least, team > most, -team

    return sorted((team for team in (1024, 512, 256, 128) if 2 * team <= length), key=cost)


def _resident(plan: RowPlan, shape: Shape, team: int, near: int = 8) -> Shape | None:
    """The kernel with teams of this size, if their rows fit into registers; ``near``: neighbouring vectors that a block has
    at most, where they lie along rows."""
    length = plan.column_count // (shape.vector if plan.along_columns else 1)
    count = -(-length // team)
    threads = max(team, 128)
    if not plan.along_columns:
        threads = min(1024, max(128, team * min(near, _near_rows(plan, shape))))
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
    """Kernels whose blocks stay for several rows, where one or two are on their way while another one is reduced.

    Where a multiprocessor has several blocks, each stays for few rows: multiprocessors are not equally fast.
    """
    length = plan.column_count // shape.vector
    if not can_stay(plan, device) or not plan.full_results:
        return []
    found = []
    for threads, cluster, together in product((512, 256), (1, 2, 4, 8), (2, 3, 4, 1)):
        team = threads * cluster
        count = -(-length // team)
        if count not in range(4, 9) or count * team > 1.1 * length or (cluster > 1 and length % team):
            continue
        one = replace(shape, threads=threads, team=team, count=count, cluster=cluster, together=together)
        room = (device.shared_per_multiprocessor // together - _OTHER_SHARED) // stage_bytes(plan, cluster)
        if count * shape.vector * len(plan.full_reads) > one.values_per_thread or room < 2 or threads * together < 512:
            continue
        rounds = -(-plan.row_count // (device.blocks_at_once(cluster) * together // cluster))
        each = (rounds,) if together == 1 or rounds < 4 else (8, 4) if rounds >= 8 else (rounds, 2)
        found += [replace(one, stages=min(room, 4, rows), rows=rows) for rows in each if rows >= 2]
    return sorted(found, key=lambda one: (one.rows > 4, one.cluster))[:12]


def _looped(plan: RowPlan, shape: Shape) -> Shape:
    """The kernel that reads rows in pieces."""
    words = max(1, sum(max(1, vectors.bytes_of(a.tensor.element) // 4) for a in plan.full_reads))
    count = max(1, min(8, 32 // (shape.vector * words)))
    if plan.along_columns:
        length = plan.column_count // shape.vector
        threads = max(128, min(1024 if len(plan.waves) > 1 or plan.full_results else 512, power_of_two(length) // count))
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
    return min(32, power_of_two(max(1, plan.row_count // shape.vector)))


def power_of_two(number: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(0, number - 1).bit_length()
