"""How a product is cut for FMA: candidates, and a model of their time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.product.fma_loop import FmaTile
from mlirstack.schedules.cuda.product.split_k import has_room

_LAUNCH = 3e-6  # seconds of one more kernel and its memory round trip
_FILL = 1.5e-6  # seconds until a block's first tiles have arrived and its results are on their way
_RESERVED_SHARED = 1024  # bytes per block that the driver keeps
_SHARED_BYTES_PER_CLOCK = 128  # of a multiprocessor
_LANES = 128  # FMA per clock of a multiprocessor, for 4-byte elements

# rows, columns, rows and columns of a thread (for elements of 4 bytes)
_SHAPES = (
    (256, 128, 16, 8), (128, 256, 16, 8), (128, 128, 16, 8), (128, 128, 8, 8), (128, 64, 8, 8), (64, 128, 8, 8),
    (64, 64, 8, 4), (64, 64, 4, 4), (32, 64, 4, 4), (32, 32, 4, 4), (16, 64, 4, 4),
)  # fmt: skip


@dataclass(frozen=True)
class FmaCut:
    """A tile, and how many blocks share the K of one."""

    tile: FmaTile
    splits: int
    group: int = 8

    def parameters(self) -> dict[str, int]:
        """As parameters of a schedule; the inverse of :func:`fma_cut_of`."""
        t = self.tile
        return {
            "rows": t.rows, "columns": t.columns, "thread_rows": t.thread_rows, "thread_columns": t.thread_columns,
            "k": t.k, "stages": t.stages, "size": t.size, "splits": self.splits, "group": self.group,
        }  # fmt: skip


def fma_cut_of(parameters: dict[str, int]) -> FmaCut:
    """The cut that parameters of a schedule describe."""
    names = ("rows", "columns", "thread_rows", "thread_columns", "k", "stages", "size")
    return FmaCut(FmaTile(**{name: parameters[name] for name in names}), parameters["splits"], parameters["group"])


def fma_cuts(
    rows_of_product: Sequence[int], n: int, k: int, batch: int, size: int, device: Device, count: int = 8
) -> list[FmaCut]:
    """The ``count`` cuts that the model finds best for elements of ``size`` bytes (4 or 8), best first: for one number of
    rows, or on average for several."""
    found = []
    for rows, columns, thread_rows, thread_columns in _SHAPES:
        if size == 8 and thread_rows * thread_columns > 64:
            continue  # two registers a sum
        for tile_k, stages in ((8, 4), (8, 3), (16, 3), (16, 2)):
            tile = FmaTile(rows, columns, thread_rows, thread_columns, tile_k, stages, size)
            if shared_bytes(tile) <= device.shared_per_block - _RESERVED_SHARED and shares_evenly(tile):
                splits = _splits(min(rows_of_product), n, k, batch, tile, device)
                found += [FmaCut(tile, s) for s in splits if has_room(rows_of_product, n * batch * size, s)]
    found.sort(key=lambda cut: prod(seconds(m, n, k, batch, cut, device) for m in rows_of_product))
    shapes = {(cut.tile.rows, cut.tile.columns, cut.tile.thread_rows) for cut in found}
    best = [
        next(cut for cut in found if (cut.tile.rows, cut.tile.columns, cut.tile.thread_rows) == shape) for shape in shapes
    ]
    varied = sorted(best, key=found.index)[: count // 2]  # other shapes first, then other depths of the best ones
    return sorted(varied + [cut for cut in found if cut not in varied][: count - len(varied)], key=found.index)


def shares_evenly(tile: FmaTile) -> bool:
    """Do all threads copy equally much of a stage, whatever the layout?"""
    elements = (tile.rows * tile.k, tile.columns * tile.k)
    return all(e % tile.threads == 0 or e < tile.threads for e in elements) and tile.threads % tile.k == 0


def shared_bytes(tile: FmaTile) -> int:
    """Shared memory of a block, at most: stages, or the results on their way out."""
    return max(tile.memory.bytes, tile.rows * (tile.columns + 8) * tile.size)


def seconds(m: int, n: int, k: int, batch: int, cut: FmaCut, device: Device) -> float:
    """Estimated run time."""
    tile = cut.tile
    blocks = _ceil(m, tile.rows) * _ceil(n, tile.columns) * batch * cut.splits
    depth = _ceil(k, cut.splits)
    clock = device.flops / (2 * _LANES * device.multiprocessors)
    lanes = _LANES * 4 / tile.size
    multiply = tile.rows * tile.columns * depth / lanes
    read = tile.threads * (tile.thread_rows + tile.thread_columns) * tile.size * depth / _SHARED_BYTES_PER_CLOCK
    issued = multiply * (1 + 1.5 * (1 / tile.thread_rows + 1 / tile.thread_columns) / tile.run)
    resident = _resident(tile, device)
    full, rest = divmod(blocks, device.multiprocessors * resident)
    rounds = full * resident + _ceil(rest, device.multiprocessors)
    alone = 1.0 + 0.3 / (resident * tile.threads / 128)
    together = (issued**4 + read**4) ** 0.25  # two that are equal hinder each other
    time = rounds * together * alone / clock + (full + 1) * _FILL
    moved = (m * k + n * k + m * n) * batch * tile.size
    if cut.splits > 1:
        time += _LAUNCH + m * n * batch * tile.size * cut.splits * 2 / device.bandwidth
    return max(time, moved / device.bandwidth)


def _resident(tile: FmaTile, device: Device) -> int:
    """Blocks that a multiprocessor holds at a time."""
    words = tile.size // 4
    fragments = 2 * (tile.thread_rows + tile.thread_columns)
    registers = min(255, (tile.thread_rows * tile.thread_columns + fragments) * words + 40)
    by_registers = device.registers_per_multiprocessor // (registers * tile.threads)
    by_shared = device.shared_per_multiprocessor // (shared_bytes(tile) + _RESERVED_SHARED)
    by_threads = device.threads_per_multiprocessor // tile.threads
    return max(1, min(by_registers, by_shared, by_threads, device.blocks_per_multiprocessor))


def _splits(m: int, n: int, k: int, batch: int, tile: FmaTile, device: Device) -> list[int]:
    """Numbers of splits that leave every block at least eight tiles of K, where there are too few blocks otherwise."""
    blocks = _ceil(m, tile.rows) * _ceil(n, tile.columns) * batch
    tiles = _ceil(k, tile.k)
    return [s for s in (1, 2, 3, 4, 6, 8, 12, 16) if s == 1 or (s * 8 <= tiles and blocks * s <= 4 * device.multiprocessors)]


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)
