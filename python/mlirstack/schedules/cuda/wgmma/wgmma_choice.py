"""Which tile a warp-specialised product gets on Hopper: candidates, and a model of their time.

The model counts rounds of tiles over the multiprocessors, the tensor cores' time for each step of K, the epilogue, and bytes
of memory.  Shares of the peak were measured on an H200 (matrix products of 1024 to 8192 rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.hopper import SWIZZLE
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.product.contraction import Contraction
from mlirstack.schedules.cuda.product.padded_factor import copied_bytes
from mlirstack.schedules.cuda.wgmma.wgmma_tile import WgmmaProblem, WgmmaTile, loadable

# Tiles with the share of the tensor cores' peak that their main loop reaches: small ones wait for shared memory.
_TILES = (
    (WgmmaTile(128, 256, 4), 0.83),
    (WgmmaTile(256, 128, 4), 0.82),
    (WgmmaTile(128, 192, 4), 0.79),
    (WgmmaTile(128, 128, 6), 0.74),
    (WgmmaTile(64, 256, 4), 0.70),
    (WgmmaTile(64, 128, 7), 0.62),
    (WgmmaTile(128, 64, 7), 0.62),
)
_SPLIT_TILES = (
    (WgmmaTile(128, 128, 5, split=2), 0.74),
    (WgmmaTile(64, 128, 7, split=2), 0.58),
    (WgmmaTile(128, 64, 6, split=2), 0.58),
    (WgmmaTile(128, 128, 4, split=4), 0.74),
)
_PINGPONG_TILES = ((WgmmaTile(128, 128, 6, pingpong=True), 0.76), (WgmmaTile(64, 256, 4, pingpong=True), 0.72))
_MULTICAST_GAIN = 0.01  # on shapes that fill the chip several times over
_GROUPS = (4, 16)  # other rasters than the default of 8 rows of tiles
_START = 3e-6  # seconds until the first products are computed, and from the last ones to the end
_SPLIT = 1e-6  # seconds for sums to reach the cluster's first block
_STORE = 90e9  # bytes/s at which a multiprocessor sends accumulators of 4 bytes on their way
_ISSUE = 1.6e11  # scalar operations/s of the epilogue on a multiprocessor
_COSTLY = {"math.exp": 6, "math.erf": 16, "math.tanh": 12, "arith.divf": 6}  # operations that an op of a body stands for
_BANDWIDTH = 0.88  # share of the memory's peak that streams reach
_READ_AGAIN = 0.3  # what it costs that two multiprocessors want a factor at once, in its bytes
_COPY_ROW = 1.1e-9  # seconds that the copy engine of a multiprocessor needs for a row of 128 bytes
_TWO_LINES = 2.2  # the same for a row in two lines of the cache, in such rows
_PAD = 2e-6  # seconds of one more kernel


def candidates(
    contraction: Contraction,
    operands: Operands,
    device: Device,
    *,
    factor_bytes: int | None = None,
    further_tiles: Sequence[tuple[WgmmaTile, float]] = (),
) -> list[WgmmaTile]:
    """Tiles worth trying, the one with the least time by the model first; at most 14.

    ``factor_bytes``: what the factors have in memory, if they are no matrices.  ``further_tiles``: tiles and their shares of
    the tensor cores' peak, besides the usual ones.
    """
    found: list[tuple[float, WgmmaTile]] = []
    fitted = _fitted_tiles(contraction, operands, device)
    for tile, share in (*_TILES, *_PINGPONG_TILES, *_SPLIT_TILES, *fitted, *further_tiles):
        for multicast in ("none", "b", "a") if tile.split == 1 else ("none",):
            variant = replace(tile, multicast=multicast)
            problem = WgmmaProblem(contraction, operands, variant)
            if problem.fits(device) and _is_sensible(problem, device):
                found.append((seconds(problem, share, device, factor_bytes), variant))
    found.sort(key=lambda entry: entry[0])
    tiles = [tile for _, tile in found[:12]]
    return tiles[:1] + [replace(tiles[0], group=group) for group in _GROUPS if tiles] + tiles[1:] if tiles else []


def _fitted_tiles(contraction: Contraction, operands: Operands, device: Device) -> list[tuple[WgmmaTile, float]]:
    """Tiles just wide enough that each multiprocessor has one, where the usual ones leave some of them idle.

    With a factor whose rows are contiguous there are none: it comes in boxes of 64 rows.
    """
    found = []
    for rows in (128, 64) if contraction.b.k_major else ():
        across = device.multiprocessors // (ceil(contraction.m / rows) * contraction.batch)
        step = 8 * (128 // rows)  # two warpgroups that share the columns have a multiple of 8 each
        columns = ceil(contraction.n / across / step) * step if across else 0
        if not 64 < columns < 256 or columns % 64 == 0:
            continue
        share = min(0.74, 0.26 + 0.0075 * rows * columns / (rows + columns))  # the more products for each element, the more
        deepest = next(
            (stages for stages in (7, 6, 5, 4) if _fits(contraction, operands, rows, columns, stages, device)), None
        )
        found += [(WgmmaTile(rows, columns, deepest), share)] if deepest else []
    return found


def _fits(contraction: Contraction, operands: Operands, rows: int, columns: int, stages: int, device: Device) -> bool:
    return WgmmaProblem(contraction, operands, WgmmaTile(rows, columns, stages)).fits(device)


def seconds(problem: WgmmaProblem, share: float, device: Device, factor_bytes: int | None = None) -> float:
    """The model's time; ``share``: of the tensor cores' peak, in the main loop; ``factor_bytes``: see :func:`candidates`."""
    tile, contraction = problem.tile, problem.contraction
    rounds = ceil(problem.work / (device.multiprocessors // tile.cluster))
    # A step of K is 128 bytes of both factors, whatever the type: 64 elements of 16 bits.
    flops = 2 * tile.rows * tile.columns * 64
    step = flops / (device.tensor_flops / device.multiprocessors * share)
    epilogue = tile.rows * tile.columns * (4 / _STORE + _operations(contraction) / _ISSUE)
    if tile.multicast != "none" and rounds >= 3:
        step *= 1 - _MULTICAST_GAIN
    step = max(step, _copy_seconds(problem))
    main_loop = ceil(problem.steps / tile.split) * step
    epilogue /= tile.split
    hidden = max(main_loop, epilogue / 2)  # with pingpong, epilogues hide behind main loops, but for the last one
    computing = rounds * hidden + epilogue if tile.pingpong else rounds * (main_loop + epilogue)
    factors = _factor_bytes(problem, at_once=rounds == 1) if factor_bytes is None else factor_bytes
    copying = (factors + _other_bytes(contraction)) / (device.bandwidth * _BANDWIDTH)
    padding = sum(
        copied_bytes(contraction, matrix) / (device.bandwidth * _BANDWIDTH) + _PAD
        for matrix in (contraction.a, contraction.b)
        if not loadable(matrix, problem.operands)
    )
    return max(computing, copying) + padding + _START + (_SPLIT if tile.split > 1 else 0.0)


def _copy_seconds(problem: WgmmaProblem) -> float:
    """What the copy engine needs for a step of K: rows of 128 bytes that do not begin at a multiple of that lie in two lines
    of the cache each."""
    tile, size, rows = problem.tile, problem.operands.bits // 8, 0.0
    for matrix, own, shared in ((problem.left, tile.rows, "a"), (problem.right, tile.columns, "b")):
        is_whole = matrix.leading_stride * size % SWIZZLE == 0 or not loadable(matrix, problem.operands)
        rows += own * (1.0 if is_whole else _TWO_LINES) / (2 if tile.multicast == shared else 1)
    return rows * _COPY_ROW


def _operations(contraction: Contraction) -> int:
    """Scalar operations after the product, for each element."""
    return sum(_COSTLY.get(op, 1) for step in contraction.steps for op in step.node.body_ops())


def _factor_bytes(problem: WgmmaProblem, *, at_once: bool) -> int:
    """What must be read of the factors, and a share of what several tiles read ``at_once``: it is still on its way then."""
    contraction, (down, across) = problem.contraction, problem.tiles
    read = 0.0
    for matrix, readers in ((problem.left, across), (problem.right, down)):
        read += matrix.rows * vectors.bytes_of(matrix.element) * (1 + (_READ_AGAIN if at_once and readers > 1 else 0.0))
    return int(read * contraction.k * contraction.batch)


def _other_bytes(contraction: Contraction) -> int:
    """What the epilogue reads and writes."""
    tensors = {access.tensor for access in contraction.extra_operands}
    tensors |= {output.access.tensor for output in contraction.outputs}
    return sum(tensor.count * vectors.bytes_of(tensor.element) for tensor in tensors)


def _is_sensible(problem: WgmmaProblem, device: Device) -> bool:
    """No turns without a tile for each warpgroup of a block; no multicast without a neighbour; no split where tiles fill the
    chip anyway, or without enough K for each block."""
    tile = problem.tile
    if tile.pingpong and problem.work * tile.cluster <= device.multiprocessors:
        return False
    if tile.multicast == "a":
        return ceil(problem.right.rows / tile.columns) >= 2
    if tile.multicast == "b":
        return ceil(problem.left.rows / tile.rows) >= 2
    fills = problem.work * tile.split > device.multiprocessors  # and blocks that share K do not stay for another tile
    return tile.split == 1 or (problem.steps >= 4 * tile.split and not fills)
