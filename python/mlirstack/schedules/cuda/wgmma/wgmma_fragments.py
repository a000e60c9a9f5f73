"""The left factor's way through registers, where its rows are contiguous and its elements have 32 bits.

wgmma reads those from shared memory along K only, but takes fragments of them from registers, which threads load word by
word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlirstack.schedules.cuda.instructions import shared_memory, tensor_core, warpgroup
from mlirstack.schedules.cuda.instructions.mbarrier import Stage
from mlirstack.schedules.cuda.instructions.warpgroup import SWIZZLE
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int
from mlirstack.schedules.cuda.wgmma.wgmma_block import WgmmaBlock
from mlirstack.schedules.cuda.wgmma.wgmma_boxes import Thread

_BOX_ROWS = SWIZZLE // 4  # rows of a box of 32-bit elements: one k of them is a line of 128 bytes
_K = 8  # k of a wgmma
PARTS = _BOX_ROWS // _K  # wgmmas of a step of K
REGISTERS = 4  # of a fragment


def left_fragments(kernel: Kernel, block: WgmmaBlock, thread: Thread, tile: Int) -> list[list[Any]]:
    """The fragments of a warpgroup's part of a stage, for each block of 64 rows those of each wgmma.

    ``tile``: byte offset of the part in shared memory.

    Boxes of 32 rows lie one after the other, k by k, 16-byte chunks swizzled by k.  A fragment's eight rows are four of one
    chunk and four of the chunk 64 bytes further, so that what a warp loads at a time, four k of eight rows, stands in 32
    banks.
    """
    lane, size = thread.lane, _BOX_ROWS * SWIZZLE
    k = lane & 3
    word = ((lane >> 2) & 3) * 4
    start = tile + (thread.warp >> 1) * size + k * SWIZZLE + word
    first = (thread.warp & 1) * 2 + ((lane >> 4) & 1) * 4  # chunk
    # Rows 0 and 8 of the fragment for k and k + 4, in the order of its registers.
    chunks = [((first + half) ^ (k + ahead)) * 16 + ahead * SWIZZLE for ahead in (0, 4) for half in (0, 1)]
    places = [shared_memory.shared_address(kernel, kernel.offset(block.shared, start + chunk)) for chunk in chunks]
    return [
        [
            shared_memory.load_word(kernel, place, number * 2 * size + part * _K * SWIZZLE)
            for part in range(PARTS)
            for place in places
        ]
        for number in range(block.tile.blocks)
    ]


class RegisterLoop:
    """The main loop of a tile; fragments of the next step are loaded while the present one is multiplied."""

    def __init__(self, block: WgmmaBlock, thread: Thread, left: Int, right: Int) -> None:
        self._block, self._kernel, self._thread = block, block.kernel, thread
        self._left, self._right = left, right  # byte offset and address of the warpgroup's parts in the first stage

    def run(self, stage: Stage, low: Int, high: Int, release: Any) -> tuple[Stage, list[Any]]:
        """The next stage, and the accumulators of each block of 64 rows; ``release`` gives a stage's buffer back."""
        kernel, block, ring, tile = self._kernel, self._block, self._block.ring, self._block.tile
        zeros = [warpgroup.zero_accumulators(kernel, tile.accumulators, block.problem.operands) for _ in range(tile.blocks)]
        ring.wait_full(stage)
        fragments = self._rounded(self._load(stage.index))

        def step(number: Int, index: Int, phase: Int, *values: Any) -> Sequence[Any]:
            here = Stage(index, phase)
            sums = self._multiply(index, values)
            following = ring.next(here)
            ring.wait_full(following)
            fragments = self._load(following.index)
            warpgroup.wgmma_wait(0)
            release(index)
            return following.index, following.phase, *self._rounded(fragments), *sums

        index, phase, *values = kernel.loop(low, high - 1, 1, [stage.index, stage.phase, *fragments, *zeros], step)
        sums = self._multiply(index, values)
        warpgroup.wgmma_finish()
        release(index)
        return ring.next(Stage(index, phase)), sums

    def _load(self, stage: Int) -> list[Any]:
        """All fragments of a stage, one after the other."""
        offset = self._left + stage * self._block.problem.stage_bytes
        return [word for words in left_fragments(self._kernel, self._block, self._thread, offset) for word in words]

    def _rounded(self, words: Sequence[Any]) -> list[Any]:
        """As TF32, which the copy engine has made of them.

        What matters is that this is after a wait: ptxas runs wgmmas one after the other where loads define their registers
        while others are in flight (warning C7513).
        """
        return [tensor_core.rounded(self._kernel, self._block.problem.operands, word) for word in words]

    def _multiply(self, stage: Int, values: Sequence[Any]) -> list[Any]:
        """Start the wgmmas of a stage; ``values``: its fragments, then accumulators."""
        kernel, tile, problem = self._kernel, self._block.tile, self._block.problem
        operands, shared = problem.operands, problem.right_shared
        count = tile.blocks * PARTS * REGISTERS
        fragments, sums = values[:count], list(values[count:])
        descriptor = shared.descriptor(kernel, self._right + stage * problem.stage_bytes)
        if tile.blocks > 1:
            sums = [warpgroup.pin(kernel, s, tile.accumulators, operands) for s in sums]
        warpgroup.wgmma_fence()
        for block in range(tile.blocks):
            for part in range(PARTS):
                start = (block * PARTS + part) * REGISTERS
                a, b = fragments[start : start + REGISTERS], shared.advanced(descriptor, part)
                sums[block] = warpgroup.wgmma_registers(
                    kernel, sums[block], a, b, tile.warpgroup_columns, operands, k_major=True
                )
        warpgroup.wgmma_commit()
        return sums
