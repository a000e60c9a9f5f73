"""A matrix product on Hopper: one warpgroup that copies, others that multiply, blocks that stay for many tiles.

Takes a :class:`WgmmaProblem`, writes the kernel and its launch.  The producer keeps a ring of shared-memory buffers full;
consumers multiply and run the epilogue while the ring already fills for the next tile.  In a cluster, two blocks may share
one factor by multicast, or several may share the K of one tile.
"""

from __future__ import annotations

from typing import Any

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.extent import Size, times
from mlirstack.schedules.cuda.instructions import warpgroup
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.epilogue import Epilogue
from mlirstack.schedules.cuda.wgmma.wgmma_block import WgmmaBlock
from mlirstack.schedules.cuda.wgmma.wgmma_consumer import Consumer
from mlirstack.schedules.cuda.wgmma.wgmma_maps import output_map
from mlirstack.schedules.cuda.wgmma.wgmma_producer import FactorCopies, MatrixCopies
from mlirstack.schedules.cuda.wgmma.wgmma_tile import WgmmaProblem

_REGISTERS = {2: (40, 232), 3: (24, 160)}  # of producer and consumers, by the number of consumer warpgroups
_MANY_ACCUMULATORS = 64  # from here on a thread needs more registers than an even share


def write_wgmma(
    function: Any, problem: WgmmaProblem, device: Device, schedule: str, copies: FactorCopies | None = None
) -> None:
    """Write the kernel of ``function`` and launch it; ``copies``: where the factors are no matrices in memory."""
    copies = copies or MatrixCopies()
    tile, contraction = problem.tile, problem.contraction
    kernel = Kernel(function, threads=tile.threads, schedule=schedule, cluster=tile.cluster, min_blocks=1)
    factors = [problem.left, problem.right, *([] if problem.other is None else [problem.other])]
    maps = [
        kernel.tensor_map(matrix.tensor.value, layout)
        for matrix, layout in zip(factors, copies.tensor_maps(problem), strict=True)
    ]
    output_maps = [
        kernel.tensor_map(output.access.tensor.value, output_map(problem, output.access)) if staged else None
        for output, staged in zip(contraction.outputs, problem.staged, strict=True)
    ]
    down, across = tile.cluster_tiles  # where their number is odd, a tile of the last cluster lies beyond the edge
    rows, columns = problem.result_rows * down, problem.result_columns * across
    if problem.swapped:
        rows, columns = columns, rows
    direct = [number for number, staged in enumerate(problem.staged) if not staged]
    epilogue = Epilogue(kernel, contraction, tile_rows=rows, tile_columns=columns, stores=direct)
    # Blocks that stay take what tiles there are; those that share K have one.
    clusters = min(problem.work, problem.clusters_at_once(device)) if tile.split == 1 else problem.work
    grid: Size = clusters if tile.split == 1 else problem.work_points
    steps = kernel.opaque(problem.steps)  # the main loops stay loops: unrolled, the producer would run out of registers
    registers = _REGISTERS.get(tile.consumers) if tile.blocks * tile.accumulators >= _MANY_ACCUMULATORS else None

    with kernel.body():
        block = WgmmaBlock(kernel, problem, steps, clusters)
        block.begin([*maps, *(tensor_map for tensor_map in output_maps if tensor_map is not None)])
        group = block.thread // warpgroup.WARPGROUP

        def produce() -> None:
            if registers:
                warpgroup.set_registers(registers[0], more=False)
            kernel.when(warpgroup.is_first_thread(block.thread), copies.producer(block, maps).run)

        def consume() -> None:
            if registers:
                warpgroup.set_registers(registers[1], more=True)
            Consumer(block, epilogue, output_maps, group - 1).run()

        kernel.either(group.equals(0), produce, consume)
        block.end()
    kernel.launch((times(grid, tile.cluster),), shared_bytes=problem.shared_bytes)
