"""How blocks of a cluster that share the K of a tile add their sums: each finishes a part of the tile.

A thread's accumulators are pieces of four.  Every piece has a block that owns it; the others send theirs to the same thread
there, 16 bytes at a time, which the owner's barrier counts (``st.async``: no fence, no polling).  Sums are added in the
blocks' order, so results do not depend on timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mlirstack.schedules.cuda.instructions import mbarrier, shared_memory
from mlirstack.schedules.cuda.values import Float, Int
from mlirstack.schedules.cuda.wgmma.wgmma_block import WgmmaBlock
from mlirstack.schedules.cuda.wgmma.wgmma_boxes import Thread
from mlirstack.schedules.cuda.wgmma.wgmma_tile import PIECE_BYTES

Pieces = list[tuple[int, Sequence[Any]]]  # numbers of pieces, and their four values


def exchange(block: WgmmaBlock, values: Sequence[Any], thread: Thread, finish: Callable[[Pieces], None]) -> None:
    """Call ``finish`` with what this block owns of the sums of all; ``values``: this thread's accumulators, f32.

    One tile in the life of a block: nobody says when the memory of arrived sums is free again.
    """
    for rank in range(block.tile.split):
        block.kernel.when(block.part.equals(rank), partial(_take_part, block, rank, values, thread, finish))


def _take_part(
    block: WgmmaBlock, rank: int, values: Sequence[Any], thread: Thread, finish: Callable[[Pieces], None]
) -> None:
    kernel, tile = block.kernel, block.tile
    for other in range(tile.split):
        if other != rank and tile.owned(other):
            target = block.of_part(other)
            barrier = shared_memory.of_block(block.arrived(thread.warpgroup), target)
            for number, piece in enumerate(tile.owned(other)):
                place = _place(block, rank, other, number, thread)
                shared_memory.store_remote(
                    kernel, values[4 * piece : 4 * piece + 4], shared_memory.of_block(place, target), barrier
                )
    owned = tile.owned(rank)
    if not owned:
        return
    mbarrier.wait(kernel, block.arrived(thread.warpgroup), 0)
    finished: Pieces = []
    for number, piece in enumerate(owned):
        parts = [
            values[4 * piece : 4 * piece + 4]
            if other == rank
            else shared_memory.load_shared(kernel, _place(block, other, rank, number, thread))
            for other in range(tile.split)
        ]
        finished.append((piece, [_sum(column) for column in zip(*parts, strict=True)]))
    finish(finished)


def _place(block: WgmmaBlock, sender: int, owner: int, number: int, thread: Thread) -> Any:
    """Where in the owner's shared memory a thread's piece from another block arrives."""
    problem = block.problem
    slot = sender if sender < owner else sender - 1
    constant = problem.partial + slot * block.tile.consumers * problem.partial_bytes + number * PIECE_BYTES
    own: Int = thread.warpgroup * problem.partial_bytes + thread.number * 16
    return block.kernel.offset(block.shared, own + constant)


def _sum(values: Sequence[Any]) -> Any:
    """f32 values added from first to last."""
    total = Float(values[0])
    for value in values[1:]:
        total = total + Float(value)
    return total.value
