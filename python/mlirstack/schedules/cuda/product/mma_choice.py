"""How a product is cut for ``mma.sync``: candidates, and a model of their time.

The model counts what bounds a block (multiplication, copies from the L2 cache) and how full the last round of blocks is.
Speeds of tile shapes relative to the best come from what shared memory must deliver per multiplication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.product.mma_loop import MmaTile
from mlirstack.schedules.cuda.product.split_k import has_room

_WORD = 4  # bytes of a sum
_GATHERED = 64  # elements that a thread can hold beside its sums
_MMA_SYNC_SHARE = {90: 0.62}  # of the tensor cores' rate: only wgmma reaches all of it on Hopper
_L2_PER_MULTIPROCESSOR = 30e9  # bytes/s that a multiprocessor reads from L2, measured on A100 and H100 boards
_LAUNCH = 3e-6  # seconds of one more kernel and its memory round trip
_FILL = 1.5e-6  # seconds until a block's first tiles have arrived and its results are on their way
_RESERVED_SHARED = 1024  # bytes per block that the driver keeps

# rows, columns, warps down, warps across
_SHAPES = (
    (128, 256, 2, 4), (256, 128, 4, 2), (128, 128, 2, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2), (32, 128, 1, 4),
    (128, 32, 4, 1), (32, 64, 1, 4), (64, 32, 4, 1), (16, 64, 1, 4), (64, 16, 4, 1), (32, 32, 2, 2),
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """Sizes of a product; ``gathers``: a factor comes element by element through registers."""

    m: int
    n: int
    k: int
    batch: int
    operands: Operands
    gathers: bool
    rows_contiguous: bool  # a factor has rows contiguous: its tile must be at least 32 rows wide


@dataclass(frozen=True)
class Cut:
    """A tile, and how many blocks share the K of one."""

    tile: MmaTile
    splits: int
    group: int = 8

    def parameters(self) -> dict[str, int]:
        """As parameters of a schedule; the inverse of :func:`cut_of`."""
        t = self.tile
        return {
            "rows": t.rows, "columns": t.columns, "k_bytes": t.k_bytes, "warp_rows": t.warp_rows,
            "warp_columns": t.warp_columns, "stages": t.stages, "splits": self.splits, "group": self.group,
        }  # fmt: skip


def cut_of(parameters: dict[str, int]) -> Cut:
    """The cut that parameters of a schedule describe."""
    names = ("rows", "columns", "k_bytes", "warp_rows", "warp_columns", "stages")
    return Cut(MmaTile(**{name: parameters[name] for name in names}), parameters["splits"], parameters["group"])


def cuts(problems: Sequence[Problem], device: Device, count: int = 8) -> list[Cut]:
    """The ``count`` cuts that the model finds best, best first: for one problem, or on average for several that differ in
    the number of rows, the fewest first."""
    found = []
    problem, rows_of_product = problems[0], [p.m for p in problems]
    row_bytes = problem.n * problem.batch * _WORD
    for rows, columns, down, across in _SHAPES:
        if problem.rows_contiguous and min(rows, columns) < 32:
            continue
        for k_bytes in (128, 64):
            for stages in (4, 3, 2):
                tile = MmaTile(rows, columns, k_bytes, down, across, stages)
                gathered = tile.memory.stage_bytes * 8 // problem.operands.bits // tile.threads
                if problem.gathers and (gathered > _GATHERED or rows * columns > 64 * 64):
                    continue
                if shared_bytes(tile) <= device.shared_per_block - _RESERVED_SHARED:
                    splits = _splits(problem, tile, device)
                    found += [Cut(tile, s) for s in splits if has_room(rows_of_product, row_bytes, s)]
    found.sort(key=lambda cut: prod(seconds(p, cut, device) for p in problems))
    shapes = {(cut.tile.rows, cut.tile.columns) for cut in found}
    best = [next(cut for cut in found if (cut.tile.rows, cut.tile.columns) == shape) for shape in shapes]
    varied = sorted(best, key=found.index)[: count // 2]  # other shapes first, then other depths of the best ones
    return sorted(varied + [cut for cut in found if cut not in varied][: count - len(varied)], key=found.index)


def shared_bytes(tile: MmaTile) -> int:
    """Shared memory of a block, at most: stages, or the results on their way out."""
    return max(tile.memory.bytes, tile.rows * (tile.columns + 8) * _WORD)


def seconds(problem: Problem, cut: Cut, device: Device) -> float:
    """Estimated run time."""
    tile, size = cut.tile, problem.operands.bits / 8
    blocks = _ceil(problem.m, tile.rows) * _ceil(problem.n, tile.columns) * problem.batch * cut.splits
    k = _ceil(problem.k, cut.splits)
    rate = device.tensor_flops * 16 / problem.operands.bits * _MMA_SYNC_SHARE.get(device.capability, 0.9)
    rate *= _efficiency(tile) * (0.25 if problem.gathers else 1.0)
    multiply = 2 * tile.rows * tile.columns * k / (rate / device.multiprocessors)
    copy = (tile.rows + tile.columns) * k * size / _L2_PER_MULTIPROCESSOR
    resident = _resident(tile, device)
    full, rest = divmod(blocks, device.multiprocessors * resident)
    work = max(multiply, copy)
    # A block alone cannot hide its own latencies: half of the rate until two or more share a multiprocessor.
    alone = 1.0 + 0.5 / (resident * tile.threads / 128)
    rounds = full * resident + _ceil(rest, device.multiprocessors)
    time = rounds * work * alone + (full + 1) * _FILL
    moved = (problem.m + problem.n) * problem.k * problem.batch * size + problem.m * problem.n * problem.batch * 2
    if cut.splits > 1:
        partial = problem.m * problem.n * problem.batch * _WORD * cut.splits * 2
        time += _LAUNCH + partial / device.bandwidth
    return max(time, moved / device.bandwidth)


def _efficiency(tile: MmaTile) -> float:
    """Share of the rate that shared memory can feed: bytes of fragments per multiplication, against 64 x 64."""
    rows, columns = tile.rows_per_warp, tile.columns_per_warp
    return min(1.0, rows * columns / (rows + columns) / 32) ** 0.7


def _resident(tile: MmaTile, device: Device) -> int:
    """Blocks that a multiprocessor holds at a time."""
    sums = tile.rows_per_warp * tile.columns_per_warp // 32
    fragments = 2 * 4 * (tile.rows_per_warp + tile.columns_per_warp) // 16
    registers = min(255, sums + fragments + 48)
    by_registers = device.registers_per_multiprocessor // (registers * tile.threads)
    by_shared = device.shared_per_multiprocessor // (shared_bytes(tile) + _RESERVED_SHARED)
    by_threads = device.threads_per_multiprocessor // tile.threads
    return max(1, min(by_registers, by_shared, by_threads, device.blocks_per_multiprocessor))


def _splits(problem: Problem, tile: MmaTile, device: Device) -> list[int]:
    """Numbers of splits that give every block at least four tiles of K, where there are too few blocks otherwise."""
    blocks = _ceil(problem.m, tile.rows) * _ceil(problem.n, tile.columns) * problem.batch
    tiles = _ceil(problem.k, tile.k_bytes * 8 // problem.operands.bits)
    return [s for s in (1, 2, 3, 4, 6, 8, 12, 16) if s == 1 or (s * 4 <= tiles and blocks * s <= 4 * device.multiprocessors)]


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)
