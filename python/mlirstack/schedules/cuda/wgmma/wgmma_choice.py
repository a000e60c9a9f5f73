"""Which tile a warp-specialised product gets on Hopper: candidates, and a model of their time.

The model counts rounds of tiles over the multiprocessors; for each step of K what the tensor cores, shared memory and the
way from L2 need; the epilogue; and bytes of memory.  Its constants were measured on an H200 (128 to 4096 rows).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, prod

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.instructions.warpgroup import SWIZZLE, WGMMA_ROWS
from mlirstack.schedules.cuda.product.contraction import Contraction
from mlirstack.schedules.cuda.product.padded_factor import copied_bytes
from mlirstack.schedules.cuda.wgmma.wgmma_tile import TURNS, WgmmaProblem, WgmmaTile

_ROWS = (64, 128, 256)
_COLUMNS = (64, 96, 128, 192, 256)
_SPLITS = (2, 4)
_MOST_BLOCKS = 8  # of a cluster, on every device
_FITTED_ROUNDS = (1, 2, 3)  # of tiles, which are just so wide that they fill them
_FITTED_LEAST = 32  # columns
_PINGPONG = ((128, 128), (64, 256))  # rows, columns
_MOST_STAGES, _LEAST_STAGES = 7, 3
_COUNT = 36

_ANY = WgmmaTile(64, 64, 0)

_PEAK = 0.83  # share of the tensor cores' peak that a main loop reaches where nothing else holds it up
_FLOPS_PER_CLOCK = 4096  # of a multiprocessor's tensor cores, 16-bit elements
_MULTICAST_GAIN = 0.01  # on shapes that fill the chip several times over
_MOST_TURNS = 4  # tiles of this kind that are measured
_GROUPS = (4, 16)  # other rasters than the default of 8 rows of tiles
_START = 1.5e-6  # seconds until the first products are computed, and from the last ones to the end
_CLUSTER = 0.5e-6  # seconds for blocks of a cluster to find each other
_SPLIT = 0.7e-6  # seconds for sums to reach another block …
_EXCHANGE = 20e9  # … and bytes/s at which a block sends them
_STORE = 90e9  # bytes/s at which a multiprocessor sends accumulators of 4 bytes on their way
_ISSUE = 1.6e11  # scalar operations/s of the epilogue on a multiprocessor
_COSTLY = {"math.exp": 6, "math.erf": 16, "math.tanh": 12, "arith.divf": 6}  # operations that an op of a body stands for
_BANDWIDTH = 0.88  # share of the memory's peak that streams reach
_READ_AGAIN = 0.3  # what it costs that two multiprocessors want a factor at once, in its bytes
_COPY_ROW = 1.1e-9  # seconds that the copy engine of a multiprocessor needs for a row of 128 bytes
_TWO_LINES = 2.2  # the same for a row in two lines of the cache, in such rows
_PAD = 2e-6  # seconds of one more kernel
_ROW_STORE = 6.5e-8  # seconds until a warp has stored a row of a box, where no other warp fills the time
_WARP_ROWS, _WORD = 16, 4  # rows of a box, bytes


def candidates(
    contraction: Contraction,
    operands: Operands,
    device: Device,
    *,
    swapped: bool = False,
    factor_bytes: int | None = None,
    further_tiles: Sequence[WgmmaTile] = (),
) -> list[WgmmaTile]:
    """Tiles worth trying, the one with the least time by the model first; on average, where the number of rows varies.

    ``swapped``: B gives a tile's rows.  ``factor_bytes``: what the factors have in memory, if they are no matrices.
    ``further_tiles``: besides the usual ones.
    """
    found: dict[WgmmaTile, float] = {}
    sampled = contraction.sampled()
    for tile in (*_tiles(WgmmaProblem(contraction, operands, _ANY, swapped), device), *further_tiles):
        for multicast in ("none", "b", "a", "both"):
            variant = replace(tile, multicast=multicast)
            problem = WgmmaProblem(contraction, operands, variant, swapped)
            if problem.fits(device) and _is_sensible(problem, device):
                samples = (WgmmaProblem(sample, operands, variant, swapped) for sample in sampled)
                found[variant] = prod(seconds(sample, device, factor_bytes) for sample in samples)
    tiles = sorted(found, key=lambda tile: found[tile])[:_COUNT]
    if not tiles:
        return []
    others = [] if factor_bytes is not None else _in_turns(contraction, operands, device, tiles, swapped=swapped)
    return [tiles[0], *(replace(tiles[0], group=group) for group in _GROUPS), *others, *tiles[1:]]


def _in_turns(
    contraction: Contraction, operands: Operands, device: Device, tiles: Sequence[WgmmaTile], *, swapped: bool
) -> list[WgmmaTile]:
    """Tiles whose blocks bring a factor in turns, to be measured: where copies are what holds the products up.

    The model knows too little of them to choose one.
    """
    variants = dict.fromkeys(replace(tile, multicast="turns", split=1) for tile in tiles if not tile.pingpong)
    problems = [WgmmaProblem(contraction, operands, variant, swapped) for variant in variants]
    fitting = [
        problem for problem in problems if problem.fits(device) and ceil(problem.left.rows / problem.result_rows) >= TURNS
    ]
    waiting = [problem for problem in fitting if _copy_seconds(problem) > step_seconds(problem, device)]
    return [problem.tile for problem in sorted(waiting, key=lambda problem: seconds(problem, device))[:_MOST_TURNS]]


def _tiles(problem: WgmmaProblem, device: Device) -> Iterator[WgmmaTile]:
    """All shapes for a problem whose tile does not matter, each with as many stages as there is room for."""

    def deepest(tile: WgmmaTile) -> Iterator[WgmmaTile]:
        depths = (replace(tile, stages=stages) for stages in range(_MOST_STAGES, _LEAST_STAGES - 1, -1))
        fitting = (deep for deep in depths if replace(problem, tile=deep).fits(device))
        yield from [deep for deep in [next(fitting, None)] if deep is not None]

    for rows in _ROWS:
        for split in (1, *_SPLITS):
            for columns in {*_COLUMNS, *_fitted(problem, rows, split, device)}:
                for consumers in (1, 2) if rows == WGMMA_ROWS else (2,):
                    yield from deepest(WgmmaTile(rows, columns, 0, split=split, consumers=consumers))
    for rows, columns in _PINGPONG:
        yield from deepest(WgmmaTile(rows, columns, 0, pingpong=True))


def _fitted(problem: WgmmaProblem, rows: int, split: int, device: Device) -> Iterator[int]:
    """Numbers of columns with which tiles just fill a few rounds, where the usual ones leave multiprocessors idle.

    With a factor whose rows are contiguous there are none: it comes in boxes of 64 rows.
    """
    down = ceil(problem.left.rows / rows) * problem.contraction.batch * split
    factors = 1 if problem.other is None else 2
    for rounds in _FITTED_ROUNDS if problem.right.k_major else ():
        across = device.multiprocessors * rounds // down
        for step in (8, 16, 32) if across else ():  # halves of a shared factor are multiples of 8, too; boxes have 32
            columns = ceil(problem.right.rows / across / step) * step * factors
            if _FITTED_LEAST <= columns < 256:
                yield columns


def seconds(problem: WgmmaProblem, device: Device, factor_bytes: int | None = None) -> float:
    """The model's time; ``factor_bytes``: see :func:`candidates`."""
    tile, contraction = problem.tile, problem.contraction
    rounds = ceil(problem.work / problem.clusters_at_once(device))
    step = step_seconds(problem, device)
    if tile.multicast != "none" and rounds >= 3:
        step *= 1 - _MULTICAST_GAIN
    main_loop = ceil(problem.steps / tile.split) * max(step, _copy_seconds(problem))
    epilogue = tile.rows * tile.columns * (4 / _STORE + _operations(contraction) / _ISSUE) / tile.split
    epilogue += _row_store_seconds(problem)
    hidden = max(main_loop, epilogue / 2)  # with pingpong, epilogues hide behind main loops, but for the last one
    computing = rounds * hidden + epilogue if tile.pingpong else rounds * (main_loop + epilogue)
    factors = _factor_bytes(problem, at_once=rounds == 1) if factor_bytes is None else factor_bytes
    copying = (factors + _other_bytes(contraction)) / (device.bandwidth * _BANDWIDTH)
    padding = sum(copied_bytes(contraction, matrix) / (device.bandwidth * _BANDWIDTH) + _PAD for matrix in problem.copied)
    return max(computing, copying) + padding + _START + _cluster_seconds(tile)


def step_seconds(problem: WgmmaProblem, device: Device) -> float:
    """What a step of K, 128 bytes of both factors, takes on a multiprocessor.

    Every wgmma reads its 64 rows and its columns from shared memory, which takes 128 bytes a clock, as does what arrives.
    So small tiles wait for shared memory: 64 x 128 by two warpgroups 448 clocks, by one 384, where tensor cores need 256.
    """
    tile = problem.tile
    clock = device.tensor_flops / device.multiprocessors / _FLOPS_PER_CLOCK
    warpgroups = 1 if tile.pingpong else tile.consumers
    arriving = tile.rows + tile.columns  # rows of 128 bytes
    read = warpgroups * tile.blocks * (WGMMA_ROWS + tile.warpgroup_columns)
    multiply = tile.rows * tile.columns * 2 * (SWIZZLE // 2) / _FLOPS_PER_CLOCK  # bytes count, not elements
    return max(multiply / _PEAK, arriving + read) / clock


def _cluster_seconds(tile: WgmmaTile) -> float:
    if tile.cluster == 1:
        return 0.0
    sent = tile.rows * tile.columns * 4 * (tile.split - 1) / tile.split
    return _CLUSTER + (_SPLIT + sent / _EXCHANGE if tile.split > 1 else 0.0)


def _copy_seconds(problem: WgmmaProblem) -> float:
    """What the copy engine needs for a step of K: rows of 128 bytes that do not begin at a multiple of that lie in two lines
    of the cache each."""
    tile, size, rows = problem.tile, problem.operands.bits // 8, 0.0
    for matrix, own, is_shared in (
        (problem.left, tile.rows, tile.shares_left),
        (problem.right, tile.columns, tile.shares_right),
    ):
        is_whole = matrix.leading_stride * size % SWIZZLE == 0
        bringing = TURNS if matrix is problem.right and tile.takes_turns else 2 if is_shared else 1
        rows += own * (1.0 if is_whole else _TWO_LINES) / bringing
    return rows * _COPY_ROW


def _row_store_seconds(problem: WgmmaProblem) -> float:
    """What outputs take whose rows begin between two words: warps store them, one row of a box at a time.

    1000 x 1545 x 2048: 128 x 104 by two warpgroups 14.6 us, 64 x 200 by one 18.5; with 1544 columns 13.7 both.
    """
    contraction, boxes = problem.contraction, 0
    for output, is_gathered in zip(contraction.outputs, problem.gathered, strict=True):
        size, row = vectors.bytes_of(output.access.tensor.element), output.access.row_stride(contraction.m)
        if is_gathered and row is not None and row * size % _WORD:
            boxes += ceil(problem.warpgroup_columns * size / SWIZZLE) * problem.result_blocks
    return boxes * _WARP_ROWS * _ROW_STORE / problem.tile.consumers


def _operations(contraction: Contraction) -> int:
    """Scalar operations after the product, for each element."""
    return sum(_COSTLY.get(op, 1) for step in contraction.steps for op in step.node.body_ops())


def _factor_bytes(problem: WgmmaProblem, *, at_once: bool) -> int:
    """What must be read of the factors, and a share of what several tiles read ``at_once``: it is still on its way then."""
    contraction, (down, across) = problem.contraction, problem.tiles
    read = 0.0
    beside = [] if problem.other is None else [(problem.other, across if problem.swapped else down)]
    for matrix, readers in ((problem.left, across), (problem.right, down), *beside):
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
    if tile.pingpong and problem.work <= problem.clusters_at_once(device):
        return False
    if tile.shares_left and ceil(problem.right.rows / problem.result_columns) < 2:
        return False
    if tile.shares_right and ceil(problem.left.rows / problem.result_rows) < 2:
        return False
    if tile.cluster > _MOST_BLOCKS:
        return False
    fills = problem.work > problem.clusters_at_once(device)  # and blocks that share K do not stay for another tile
    return tile.split == 1 or (problem.steps >= 4 * tile.split and not fills)
