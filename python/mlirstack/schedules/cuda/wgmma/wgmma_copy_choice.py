"""How a product is cut for ``wgmma`` fed by ``cp.async``: candidates, and a model of their time."""

from __future__ import annotations

from dataclasses import dataclass

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.product.mma_choice import Problem
from mlirstack.schedules.cuda.wgmma.wgmma_copy_engine import WgmmaCopyTile

_SHARE = 0.85  # of the tensor cores' rate, at best: copies take issue slots and shared memory
_L2_PER_MULTIPROCESSOR = 40e9  # bytes/s that a multiprocessor reads from L2
_LAUNCH = 3e-6  # seconds of one more kernel and its memory round trip
_FILL = 2e-6  # seconds until a block's first tiles have arrived and its results are on their way
_RESERVED_SHARED = 1024  # bytes per block that the driver keeps
_WORD = 4  # bytes of a sum

# rows, columns, warpgroups
_SHAPES = (
    (256, 128, 2), (128, 256, 2), (128, 192, 2), (128, 128, 2), (256, 64, 2), (128, 64, 2), (128, 96, 2), (64, 128, 1),
    (64, 64, 1), (128, 32, 2),
)  # fmt: skip


@dataclass(frozen=True)
class WgmmaCopyCut:
    """A tile, and how many blocks share the K of one."""

    tile: WgmmaCopyTile
    splits: int
    group: int = 8

    def parameters(self) -> dict[str, int]:
        """As parameters of a schedule; the inverse of :func:`wgmma_copy_cut_of`."""
        t = self.tile
        return {
            "rows": t.rows, "columns": t.columns, "warpgroups": t.warpgroups, "stages": t.stages, "splits": self.splits,
            "group": self.group,
        }  # fmt: skip


def wgmma_copy_cut_of(parameters: dict[str, int]) -> WgmmaCopyCut:
    """The cut that parameters of a schedule describe."""
    names = ("rows", "columns", "warpgroups", "stages")
    return WgmmaCopyCut(WgmmaCopyTile(**{n: parameters[n] for n in names}), parameters["splits"], parameters["group"])


def wgmma_copy_cuts(problem: Problem, device: Device, count: int = 8) -> list[WgmmaCopyCut]:
    """The ``count`` cuts that the model finds best, best first.

    None for f32: wgmma reads shared memory itself, where what ``cp.async`` brought is not rounded to TF32.
    """
    if problem.operands.rounding:
        return []
    found = []
    for rows, columns, warpgroups in _SHAPES:
        for stages in (6, 5, 4, 3):
            tile = WgmmaCopyTile(rows, columns, warpgroups, stages)
            if _shared_bytes(tile) <= device.shared_per_block - _RESERVED_SHARED and _shares_evenly(tile, problem):
                found += [WgmmaCopyCut(tile, splits) for splits in _splits(problem, tile, device)]
    found.sort(key=lambda cut: seconds(problem, cut, device))
    shapes = {(cut.tile.rows, cut.tile.columns) for cut in found}
    best = [next(cut for cut in found if (cut.tile.rows, cut.tile.columns) == shape) for shape in shapes]
    varied = sorted(best, key=found.index)[: count // 2]  # other shapes first, then other depths of the best ones
    return sorted(varied + [cut for cut in found if cut not in varied][: count - len(varied)], key=found.index)


def seconds(problem: Problem, cut: WgmmaCopyCut, device: Device) -> float:
    """Estimated run time."""
    tile, size = cut.tile, problem.operands.bits / 8
    blocks = _ceil(problem.m, tile.rows) * _ceil(problem.n, tile.columns) * problem.batch * cut.splits
    k = _ceil(problem.k, cut.splits)
    rate = device.tensor_flops * 16 / problem.operands.bits * _SHARE * min(1.0, tile.columns / 128)
    multiply = 2 * tile.rows * tile.columns * k / (rate / device.multiprocessors)
    copy = (tile.rows + tile.columns) * k * size / _L2_PER_MULTIPROCESSOR
    resident = _resident(tile, device)
    full, rest = divmod(blocks, device.multiprocessors * resident)
    rounds = full * resident + _ceil(rest, device.multiprocessors)
    alone = 1.25 if resident == 1 else 1.0  # nothing hides the beginning and the end of a block
    time = rounds * max(multiply, copy) * alone + (full + 1) * _FILL
    moved = (problem.m + problem.n) * problem.k * problem.batch * size + problem.m * problem.n * problem.batch * 2
    if cut.splits > 1:
        time += _LAUNCH + problem.m * problem.n * problem.batch * _WORD * cut.splits * 2 / device.bandwidth
    return max(time, moved / device.bandwidth / 9)  # the taps of a window read the same pixels


def _shared_bytes(tile: WgmmaCopyTile) -> int:
    """Shared memory of a block, at most: stages, or the results on their way out."""
    return max(tile.memory.bytes, tile.rows * (tile.columns + 8) * _WORD)


def _shares_evenly(tile: WgmmaCopyTile, problem: Problem) -> bool:
    """Do all threads copy equally much?  Where rows are contiguous, tiles consist of blocks of 64, and a thread stays in
    its columns."""
    sizes = (tile.rows, tile.columns)
    if problem.rows_contiguous and any(rows % 64 or rows & (rows - 1) for rows in sizes):
        return False
    return all(rows * 8 % tile.threads == 0 for rows in sizes)


def _resident(tile: WgmmaCopyTile, device: Device) -> int:
    """Blocks that a multiprocessor holds at a time."""
    registers = min(255, tile.blocks * tile.accumulators + 64)
    by_registers = device.registers_per_multiprocessor // (registers * tile.threads)
    by_shared = device.shared_per_multiprocessor // (_shared_bytes(tile) + _RESERVED_SHARED)
    return max(1, min(by_registers, by_shared, device.threads_per_multiprocessor // tile.threads))


def _splits(problem: Problem, tile: WgmmaCopyTile, device: Device) -> list[int]:
    """Numbers of splits that give every block at least four tiles of K, where there are too few blocks otherwise."""
    blocks = _ceil(problem.m, tile.rows) * _ceil(problem.n, tile.columns) * problem.batch
    tiles = _ceil(problem.k, 1024 // problem.operands.bits)
    return [s for s in (1, 2, 3, 4, 6, 8) if s == 1 or (s * 4 <= tiles and blocks * s <= 2 * device.multiprocessors)]


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)
