"""Attention on Hopper: the copy engine brings tiles of Q, K and V, warpgroups multiply them, the softmax stays in registers.

One warpgroup produces: a single thread starts the copies.  The others consume, 64 query rows each: S = Q Kᵀ of the next
keys is under way while the exponentials of the last ones are multiplied with V.  The method is that of FlashAttention-3
(Shah et al., 2024); docs/kernels/attention.md has a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlirstack.schedules.cuda.attention.attention_block import CHUNK, Block, Plan, TiledOperand
from mlirstack.schedules.cuda.attention.attention_rows import (
    QUAD,
    ROWS,
    RowSoftmax,
    RowState,
    fragment_keys,
    fragment_rows,
)
from mlirstack.schedules.cuda.attention.attention_scores import Scores, ScoreWriter, Tile
from mlirstack.schedules.cuda.instructions import mbarrier, shared_memory, tma, warpgroup
from mlirstack.schedules.cuda.instructions.mbarrier import Stage
from mlirstack.schedules.cuda.instructions.tensor_core import OPERANDS, lane_of
from mlirstack.schedules.cuda.instructions.warpgroup import SWIZZLE, WARPGROUP, WGMMA_ROWS
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.epilogue import pack_pair
from mlirstack.schedules.cuda.values import Float, Int

_STEP = 16  # columns, or keys, that one wgmma multiplies
# Registers of a thread, of the producer and of the consumers, by number of consumers and of blocks of a multiprocessor.
_REGISTERS = {(1, 1): (56, 240), (1, 2): (24, 232), (2, 1): (24, 240), (3, 1): (32, 160)}
_TURNS = 4  # first of the named barriers, one per consumer, that say whose turn it is; those before are for the output
_STEP_BYTES = 32  # from one wgmma's columns of Q and K to the next one's
_KEY_STEP_BYTES = _STEP * SWIZZLE  # from one wgmma's keys of V to the next one's


def emit(function: Any, scores: Scores, plan: Plan, multiprocessors: int) -> None:
    """Write the kernel and its launch in place of ``function``'s ops."""
    kernel = Kernel(function, threads=plan.threads, schedule="attention", min_blocks=plan.blocks)
    block = Block(kernel, scores, plan)
    with kernel.body():
        _write(block)
    blocks = min(plan.tiles, multiprocessors * plan.blocks) if plan.persistent else plan.tiles
    kernel.launch((blocks,), shared_bytes=plan.shared_bytes)


def _write(block: Block) -> None:
    kernel = block.kernel
    block.open()
    thread = kernel.thread()

    def initialize() -> None:
        for ring in (block.query_ring, block.key_ring, block.value_ring):
            ring.initialize()
        mbarrier.publish_barriers()

    kernel.when(thread.equals(0), initialize)
    kernel.barrier()
    producer, consumer = _REGISTERS[block.plan.consumers, block.plan.blocks]

    def produce() -> None:
        warpgroup.set_registers(producer, more=False)
        kernel.when(thread.equals(0), lambda: _produce(block))

    def consume() -> None:
        warpgroup.set_registers(consumer, more=True)
        _Consumer(block, thread).run()

    kernel.either(thread < WARPGROUP, produce, consume)


# -------------------------------------------------------------------------------------------------------------- producer


def _produce(block: Block) -> None:
    """Start all copies of the block: per tile Q, then K and V of each tile of keys, as buffers become free."""
    kernel, plan = block.kernel, block.plan

    def tile_body(tile: Tile, index: Int, phase: Int, query_index: Int, query_phase: Int) -> Sequence[Int]:
        query = Stage(query_index, query_phase)
        block.query_ring.wait_empty(query)
        place = kernel.offset(block.shared, query.index * plan.query_bytes)
        full = block.query_ring.full(query.index)
        _copy(kernel, block.query, plan.query_bytes, place, (tile.first_row, tile.batch), full)

        def keys_body(i: Int, index: Int, phase: Int) -> Sequence[Int]:
            stage, row = Stage(index, phase), (tile.count - 1 - i) * plan.keys
            for ring, operand, size, offset in (
                (block.key_ring, block.key, plan.key_bytes, block.key_offset),
                (block.value_ring, block.value, plan.value_bytes, block.value_offset),
            ):
                ring.wait_empty(stage)
                target = kernel.offset(block.shared, index * size + offset)
                _copy(kernel, operand, size, target, (row, tile.batch), ring.full(index))
            following = block.key_ring.next(stage)
            return following.index, following.phase

        index, phase = kernel.loop(0, tile.count, 1, [index, phase], keys_body)
        following = block.query_ring.next(query)
        return index, phase, following.index, following.phase

    block.for_each_tile([kernel.integer(0)] * 4, tile_body)


def _copy(kernel: Kernel, operand: TiledOperand, size: int, target: Any, where: tuple[Int, Int], barrier: Any) -> None:
    """All chunks of a tile at a row of a (batch, head); ``size``: their bytes."""
    mbarrier.arrive_expecting(kernel, barrier, size)
    for chunk in range(size // (operand.box_rows * SWIZZLE)):
        place = kernel.offset(target, chunk * operand.box_rows * SWIZZLE)
        tma.tensor_load(kernel, place, operand.tensor_map, operand.coordinates(kernel, chunk, *where), barrier)


# -------------------------------------------------------------------------------------------------------------- consumer


@dataclass(frozen=True)
class _Running:
    """What a consumer carries from one tile of keys to the next; ``stage``: where V for the weights is."""

    stage: Stage
    rows: RowState
    weights: list[Int]  # A fragments of the second product, which is still to be done
    sums: list[Float]  # accumulator fragment of the output

    def flat(self) -> list[Any]:
        return [self.stage.index, self.stage.phase, *self.rows.maxima, *self.rows.sums, *self.weights, *self.sums]

    @staticmethod
    def of(flat: Sequence[Any], weights: int) -> _Running:
        index, phase, *rest = flat
        maxima, sums, rest = rest[:ROWS], rest[ROWS : 2 * ROWS], rest[2 * ROWS :]
        return _Running(Stage(index, phase), RowState(maxima, sums), rest[:weights], rest[weights:])


class _Consumer:
    """One warpgroup: 64 rows of a tile."""

    def __init__(self, block: Block, thread: Int) -> None:
        self.block, self.kernel, self.plan = block, block.kernel, block.plan
        self.operands = OPERANDS[block.plan.element]
        self.kind = self.kernel.f16 if block.plan.element == "f16" else self.kernel.bf16
        self.softmax = RowSoftmax(self.kernel, block.scores)
        self.number = thread // WARPGROUP - 1
        self.is_first = (thread % WARPGROUP).equals(0)
        self.lane, self.warp = lane_of(thread), (thread % WARPGROUP) // 32
        self.base = shared_memory.shared_address(self.kernel, block.shared)
        self.own_rows = self.number * (WGMMA_ROWS * SWIZZLE)  # bytes to this consumer's rows in a chunk of Q and of O

    def run(self) -> None:
        """All tiles of the block."""
        if self.plan.ordered:
            self.kernel.when(self.number.equals(0), lambda: self._let_follow(self.number))
        self.block.for_each_tile([self.kernel.integer(0)] * 4, self._tile)
        self.kernel.when(self.is_first, lambda: tma.wait_stores(0))

    def _tile(self, tile: Tile, index: Int, phase: Int, query_index: Int, query_phase: Int) -> Sequence[Int]:
        block, kernel = self.block, self.kernel
        row = tile.first_row + self.number * WGMMA_ROWS + (self.warp * 16 + self.lane // 4)
        self.rows = [row, row + 8]
        self.writer = ScoreWriter(kernel, block.scores, block.masks, tile.batch)
        self.tile, self.query = tile, Stage(query_index, query_phase)
        block.query_ring.wait_full(self.query)
        running = self._first(Stage(index, phase))
        if block.scores.edge is not None:
            running = self._rest(kernel.integer(1), tile.edged, running, edges=True)
            running = self._rest(tile.edged, tile.count, running, edges=False)
        else:
            running = self._rest(kernel.integer(1), tile.count, running, edges=False)
        if not self.plan.output_in_query:
            self._release(block.query_ring.empty(self.query.index))
        block.value_ring.wait_full(running.stage)
        sums = self._finished(self._weighted(running), self.plan.attention.value_width, 0)
        self._release(block.value_ring.empty(running.stage.index))
        finished = self.softmax.finished(running.rows)
        block.numbers.store(finished, tile.batch, self.rows, (self.lane % QUAD).equals(0))
        self._store(tile, sums, self.softmax.reciprocals(finished))
        following, query = block.value_ring.next(running.stage), block.query_ring.next(self.query)
        return following.index, following.phase, query.index, query.phase

    def _first(self, stage: Stage) -> _Running:
        """The first tile of keys: scores and weights."""
        kernel, plan = self.kernel, self.plan
        self.block.key_ring.wait_full(stage)
        if plan.sees_half(self.block.scores.edge):
            types = [kernel.f32] * (2 * ROWS) + [kernel.i32] * (plan.keys // 4)
            half, whole = (partial(self._first_weights, stage, keys) for keys in (plan.keys // 2, plan.keys))
            found = kernel.either(self.number.equals(0), half, whole, types)
        else:
            found = self._first_weights(stage, plan.keys)
        self._release(self.block.key_ring.empty(stage.index))
        floats = [Float(value) for value in found[: 2 * ROWS]]
        weights = [Int(value) for value in found[2 * ROWS :]]
        zeros = [kernel.real(0.0)] * (plan.attention.value_width // 2)
        return _Running(stage, RowState(floats[:ROWS], floats[ROWS:]), weights, zeros)

    def _first_weights(self, stage: Stage, seen: int) -> list[Any]:
        """Maxima, sums and packed weights of the first tile's ``seen`` first keys; the weights of the others are 0."""
        products = self._finished(self._products(stage, seen), seen, 0)
        ragged = self.plan.attention.keys % self.plan.keys != 0
        edges = ragged or self.block.scores.edge is not None
        scores = self._scores(products, self.kernel.integer(0), edges=edges)
        rows, weights, _ = self.softmax.update(RowState.start(self.kernel), scores)
        packed = self.softmax.packed(weights, self.kind)
        packed += [self.kernel.integer(0)] * (self.plan.keys // 4 - len(packed))
        values: list[Any] = [*rows.maxima, *rows.sums, *packed]
        return [value.value for value in values]

    def _rest(self, low: Int, high: Int, running: _Running, *, edges: bool) -> _Running:
        """Tiles ``low`` to ``high``: the product of the next keys, and meanwhile the weighted sum of the last ones."""
        block, kernel = self.block, self.kernel

        def body(i: Int, *flat: Any) -> Sequence[Any]:
            last = _Running.of(flat, len(running.weights))
            stage = block.key_ring.next(last.stage)
            block.key_ring.wait_full(stage)
            if self.plan.ordered:
                warpgroup.named_barrier(kernel, self.number + _TURNS, 2 * WARPGROUP)
            products = self._products(stage, self.plan.keys)
            block.value_ring.wait_full(last.stage)
            sums = self._weighted(last)
            if self.plan.ordered:
                self._let_follow((self.number + 1) % self.plan.consumers)
            scores = self._scores(self._finished(products, self.plan.keys, 1), i, edges=edges)
            self._release(block.key_ring.empty(stage.index))
            rows, weights, corrections = self.softmax.update(last.rows, scores)
            finished = self._finished(sums, self.plan.attention.value_width, 0)
            self._release(block.value_ring.empty(last.stage.index))
            corrected = [value * corrections[(i // 2) % ROWS] for i, value in enumerate(finished)]
            return _Running(stage, rows, self.softmax.packed(weights, self.kind), corrected).flat()

        return _Running.of(kernel.loop(low, high, 1, running.flat(), body), len(running.weights))

    def _let_follow(self, consumer: Int) -> None:
        """It is this consumer's turn to start products."""
        warpgroup.arrive_at_named_barrier(self.kernel, consumer + _TURNS, 2 * WARPGROUP)

    def _products(self, stage: Stage, keys: int) -> Any:
        """Start Q Kᵀ of this consumer's rows and the first ``keys`` keys in a buffer."""
        plan, width = self.plan, self.plan.attention.width
        query = warpgroup.matrix_descriptor(self.base + (self.query.index * plan.query_bytes + self.own_rows), 16)
        key = warpgroup.matrix_descriptor(self.base + (stage.index * plan.key_bytes + self.block.key_offset), 16)
        products = warpgroup.undefined_accumulators(keys // 2)
        warpgroup.wgmma_fence()
        for column in range(0, width, _STEP):
            chunk, step = divmod(column, CHUNK)
            left, right = (
                descriptor + ((chunk * rows * SWIZZLE + step // _STEP * _STEP_BYTES) >> 4)
                for descriptor, rows in ((query, plan.rows), (key, plan.keys))
            )
            products = warpgroup.wgmma(products, left, right, keys, self.operands, (True, True), fresh=column == 0)
        warpgroup.wgmma_commit()
        return products

    def _weighted(self, running: _Running) -> Any:
        """Start adding the weighted rows of V in a buffer."""
        plan = self.plan
        value = warpgroup.matrix_descriptor(
            self.base + (running.stage.index * plan.value_bytes + self.block.value_offset), plan.keys * SWIZZLE
        )
        sums = warpgroup.accumulators_of([value.value for value in running.sums])
        warpgroup.wgmma_fence()
        for step in range(plan.keys // _STEP):
            weights, rows = running.weights[4 * step : 4 * step + 4], value + step * (_KEY_STEP_BYTES >> 4)
            sums = warpgroup.wgmma_registers(
                self.kernel, sums, weights, rows, plan.attention.value_width, self.operands, k_major=False
            )
        warpgroup.wgmma_commit()
        return sums

    def _finished(self, struct: Any, columns: int, pending: int) -> list[Float]:
        """The values of accumulators once at most ``pending`` younger groups of wgmmas are unfinished."""
        warpgroup.wgmma_wait(pending)
        count = columns // 2
        pinned = warpgroup.pin(self.kernel, struct, count, self.operands)
        return [Float(value) for value in warpgroup.accumulator_values(self.kernel, pinned, count, self.operands)]

    def _scores(self, products: list[Float], number: Int, *, edges: bool) -> list[list[Float]]:
        """The scores of tile ``number`` of keys, per row."""
        first = (self.tile.count - 1 - number) * self.plan.keys
        keys = fragment_keys(first, self.lane % 4, len(products) * 2)
        by_row = [value for row in fragment_rows(products) for value in row]
        written = self.writer.write(by_row, self.rows, keys, edges=edges)
        return [written[: len(written) // ROWS], written[len(written) // ROWS :]]

    def _release(self, barrier: Any) -> None:
        """One arrival for the whole warpgroup: all its wgmmas on the buffer have finished when its first thread is here."""
        self.kernel.when(self.is_first, lambda: mbarrier.arrive(barrier))

    # ---------------------------------------------------------------------------------------------------------- output

    def _store(self, tile: Tile, sums: list[Float], factors: list[Float]) -> None:
        """Divide, round, gather the rows in shared memory, and let the copy engine write what lies inside the output."""
        kernel, plan, barrier = self.kernel, self.plan, self.number + 1
        kernel.when(self.is_first, lambda: tma.wait_stores(0))  # the last tile's rows have left shared memory
        warpgroup.named_barrier(kernel, barrier, WARPGROUP)
        own = self.own_rows + self.plan.output_offset
        groups = [[fragment_rows(sums)[row][2 * j : 2 * j + 2] for row in range(ROWS)] for j in range(len(sums) // 4)]
        row_bytes = (self.warp * 16 + self.lane % 16) * SWIZZLE
        for first in range(0, len(groups), 2):
            registers = [
                pack_pair(kernel, *((value * factor).to(self.kind).value for value in pair))
                for group in groups[first : first + 2]
                for pair, factor in zip(group, factors, strict=True)
            ]
            chunk, column = divmod(first, CHUNK // 8)
            swizzled = (self.lane // 16 + column) ^ (self.lane % 8)
            place = own + chunk * plan.rows * SWIZZLE + row_bytes + swizzled * 16
            shared_memory.store_matrix(kernel.offset(self.block.shared, place), registers)
        tma.fence_shared()
        warpgroup.named_barrier(kernel, barrier, WARPGROUP)

        def write() -> None:
            row = tile.first_row + self.number * WGMMA_ROWS
            for chunk in range(plan.output_bytes // (plan.rows * SWIZZLE)):
                source = kernel.offset(self.block.shared, own + chunk * plan.rows * SWIZZLE)
                where = self.block.output.coordinates(kernel, chunk, row, tile.batch)
                tma.tensor_store(self.block.output.tensor_map, source, where)
            tma.commit_stores()
            if plan.output_in_query:
                tma.wait_stores(0)
                mbarrier.arrive(self.block.query_ring.empty(self.query.index))

        kernel.when(self.is_first, write)
