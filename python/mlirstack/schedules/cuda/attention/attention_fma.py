"""Attention in float32 by multiply-adds: exact as eager's products and exponentials, scores never in memory.

A block of 16 by 16 threads takes 64 query rows; each thread has 4 rows, and of a tile every sixteenth key, then every
sixteenth column of the output.  Weights pass through shared memory.  While scores are computed V is being copied, and
the next K while V is multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.schedules.cuda.attention.attention_copies import RowCopies
from mlirstack.schedules.cuda.attention.attention_description import COLUMN, KEY, ROW, Attention
from mlirstack.schedules.cuda.attention.attention_expression import Element
from mlirstack.schedules.cuda.attention.attention_rows import RowNumbers, RowSoftmax, RowState
from mlirstack.schedules.cuda.attention.attention_scores import (
    KeyRun,
    Masks,
    Scores,
    ScoreWriter,
    place,
    row_blocks,
    tile_of,
)
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.tensor_core import wait_for_copies
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Float, Int

SIDE = 16  # threads along rows, and along keys or columns
THREADS = SIDE * SIDE
ROWS = 4  # of a thread
BLOCK_ROWS = SIDE * ROWS
_QUAD = 4  # columns of Q and K that are multiplied at a time
_BYTES = 4
_UNROLLED = 4  # keys of one step of the second product


@dataclass(frozen=True)
class Plan:
    """``keys`` of a tile: a multiple of 16."""

    attention: Attention
    keys: int

    @property
    def columns(self) -> int:
        """Columns of Q and K that are read: whole groups of those that are multiplied at a time."""
        return -(-self.attention.width // _QUAD) * _QUAD

    @property
    def value_columns(self) -> int:
        """Columns of V that are read: all that the threads have."""
        return self.runs * self.vector * SIDE

    @property
    def pitch(self) -> int:
        """Floats from a row of Q or K to the next in shared memory: eight neighbouring rows begin in different banks."""
        return _pitch(self.attention.width)

    @property
    def value_pitch(self) -> int:
        """The same for V."""
        return _pitch(self.attention.value_width)

    @property
    def shared_bytes(self) -> int:
        """Q, K, V and the weights."""
        rows = (BLOCK_ROWS + self.keys) * self.pitch + self.keys * (self.value_pitch + BLOCK_ROWS)
        return _BYTES * rows

    @property
    def vector(self) -> int:
        """Neighbouring columns of the output that a thread computes."""
        return next(v for v in (4, 2, 1) if self.attention.value_width % (SIDE * v) == 0 or v == 1)

    @property
    def runs(self) -> int:
        """How many such groups of columns it computes."""
        return -(-self.attention.value_width // (SIDE * self.vector))


def emit(function: Any, scores: Scores, plan: Plan) -> None:
    """Write the kernel and its launch in place of ``function``'s ops."""
    attention = plan.attention
    kernel = Kernel(function, threads=THREADS, schedule="attention")
    elements = (attention.query, attention.key, attention.value, attention.output)
    pointers = [kernel.pointer(element.tensor.value) for element in elements]
    masks, numbers = Masks.of(kernel, scores), RowNumbers.of(kernel, scores)
    with kernel.body():
        _Writer(kernel, scores, plan, pointers, masks, numbers).write()
    kernel.launch((row_blocks(attention, BLOCK_ROWS),), shared_bytes=plan.shared_bytes)


class _Writer:
    def __init__(
        self, kernel: Kernel, scores: Scores, plan: Plan, pointers: Sequence[Any], masks: Masks, numbers: RowNumbers
    ) -> None:
        self.kernel, self.scores, self.plan, self.attention = kernel, scores, plan, plan.attention
        self.query, self.key, self.value, self.output = pointers
        self.masks, self.numbers = masks, numbers
        self.softmax = RowSoftmax(kernel, scores, lanes=SIDE, exact=True)

    def write(self) -> None:
        """One block: rows of one (batch, head), all keys that they see."""
        kernel, plan, attention = self.kernel, self.plan, self.attention
        shared, self.thread = kernel.shared(), kernel.thread()
        self.x, self.y = self.thread % SIDE, self.thread // SIDE
        key_start = BLOCK_ROWS * plan.pitch
        value_start = key_start + plan.keys * plan.pitch
        weight_start = value_start + plan.keys * plan.value_pitch
        self.query_tile, self.key_tile, self.value_tile, self.weight_tile = (
            kernel.offset(shared, start * _BYTES) for start in (0, key_start, value_start, weight_start)
        )
        tile = tile_of(kernel, self.scores, BLOCK_ROWS, plan.keys, kernel.block_index())
        self.copies = RowCopies(kernel, self.thread, tile.batch)
        self.rows = [tile.first_row + self.y * ROWS + i for i in range(ROWS)]
        self.scorer = ScoreWriter(kernel, self.scores, self.masks, tile.batch)
        query_tile = (self.query_tile, plan.pitch, plan.columns)
        self._copy(attention.query, ROW, self.query, (tile.first_row, BLOCK_ROWS), query_tile)
        self._copy_keys(kernel.integer(0))
        rows, sums = RowState.start(kernel, ROWS), [kernel.real(0.0)] * (ROWS * plan.runs * plan.vector)
        start = [*rows.maxima, *rows.sums, *sums]
        final = kernel.loop(0, tile.count, 1, start, lambda i, *flat: self._tile(i, tile.count, flat))
        self._store(RowState(final[:ROWS], final[ROWS : 2 * ROWS]), final[2 * ROWS :])

    def _tile(self, number: Int, tiles: Int, flat: Sequence[Float]) -> Sequence[Float]:
        kernel, plan = self.kernel, self.plan
        state, sums = RowState(list(flat[:ROWS]), list(flat[ROWS : 2 * ROWS])), flat[2 * ROWS :]
        first = number * plan.keys
        wait_for_copies(0)
        kernel.barrier()  # K is here, and nobody reads the last V and weights any more
        value_tile = (self.value_tile, plan.value_pitch, plan.value_columns)
        self._copy(self.attention.value, KEY, self.value, (first, plan.keys), value_tile)
        scores = self._scores(first)
        state, weights, corrections = self.softmax.update(state, scores)
        self._share(weights)
        wait_for_copies(0)
        kernel.barrier()  # V and all weights are here, and nobody reads K any more
        kernel.when(number + 1 < tiles, lambda: self._copy_keys(first + plan.keys))
        each = plan.runs * plan.vector
        corrected = [value * corrections[i // each] for i, value in enumerate(sums)]
        return [*state.maxima, *state.sums, *self._weighted(corrected)]

    # ------------------------------------------------------------------------------------------------------------ copies

    def _copy_keys(self, first: Int) -> None:
        plan = self.plan
        self._copy(self.attention.key, KEY, self.key, (first, plan.keys), (self.key_tile, plan.pitch, plan.columns))

    def _copy(self, element: Element, index: int, source: Any, rows: tuple[Int, int], tile: tuple[Any, int, int]) -> None:
        """Start copying rows (first, count) of an operand into a tile: its address, pitch, and columns that are read."""
        target, pitch, columns = tile

        def place_of(row: Int, column: Int) -> Any:
            return self.kernel.offset(target, row * pitch + column, self.kernel.f32)

        self.copies.start(element, index, source, rows, columns, place_of)

    # ---------------------------------------------------------------------------------------------------------- products

    def _scores(self, first: Int) -> list[list[Float]]:
        """Scores of this thread's rows and keys ``first + x``, ``first + x + 16``, …"""
        kernel, plan, count = self.kernel, self.plan, self.plan.keys // SIDE

        def step(column: Int, *products: Float) -> Sequence[Float]:
            rows = [self._load(self.query_tile, (self.y * ROWS + i) * plan.pitch + column, _QUAD) for i in range(ROWS)]
            keys = [self._load(self.key_tile, (self.x + SIDE * j) * plan.pitch + column, _QUAD) for j in range(count)]
            result = list(products)
            for quarter in range(_QUAD):
                for i in range(ROWS):
                    for j in range(count):
                        result[i * count + j] = rows[i][quarter].fma(keys[j][quarter], result[i * count + j])
            return result

        products = kernel.loop(0, self.attention.width, _QUAD, [kernel.real(0.0)] * (ROWS * count), step)
        if self.scores.formula is None:
            products = [product * self.scores.factor for product in products]
        keys = KeyRun(first + self.x, [SIDE * j for j in range(count)])
        scores = self.scorer.write(products, self.rows, keys, neighbours=False, edges=True)
        return [scores[i * count : (i + 1) * count] for i in range(ROWS)]

    def _share(self, weights: Sequence[Sequence[Float]]) -> None:
        """Weights to shared memory: per key the 64 rows, groups of 4 permuted so that 8 keys meet different banks."""
        for j in range(self.plan.keys // SIDE):
            place_of = self._weight_place(self.x + SIDE * j)
            vectors.store(self.kernel, [weights[i][j] for i in range(ROWS)], place_of)

    def _weight_place(self, key: Int) -> Any:
        chunk = self.y ^ (key % SIDE)
        return self.kernel.offset(self.weight_tile, key * BLOCK_ROWS + chunk * ROWS, self.kernel.f32)

    def _weighted(self, sums: Sequence[Float]) -> list[Float]:
        """The sums (per row: runs of ``vector`` columns) plus weights times V."""
        plan, each = self.plan, self.plan.runs * self.plan.vector

        def step(first: Int, *sums: Float) -> Sequence[Float]:
            result = list(sums)
            for key in (first + i for i in range(_UNROLLED)):
                weights = [Float(v) for v in vectors.load(self.kernel, self.kernel.f32, self._weight_place(key), ROWS)]
                values = [
                    value
                    for run in range(plan.runs)
                    for value in self._load(self.value_tile, key * plan.value_pitch + self._column(run), plan.vector)
                ]
                for i in range(ROWS):
                    for j in range(each):
                        result[i * each + j] = weights[i].fma(values[j], result[i * each + j])
            return result

        return self.kernel.loop(0, plan.keys, _UNROLLED, list(sums), step)

    def _column(self, run: int) -> Int:
        return self.x * self.plan.vector + run * SIDE * self.plan.vector

    def _load(self, tile: Any, offset: Int, count: int) -> list[Float]:
        pointer = self.kernel.offset(tile, offset, self.kernel.f32)
        return [Float(value) for value in vectors.load(self.kernel, self.kernel.f32, pointer, count)]

    # ------------------------------------------------------------------------------------------------------------ output

    def _store(self, state: RowState, sums: Sequence[Float]) -> None:
        kernel, plan, layout = self.kernel, self.plan, self.attention.output.layout
        start = self.copies.start_of(self.attention.output)
        finished = self.softmax.finished(state)
        each, factors = plan.runs * plan.vector, self.softmax.reciprocals(finished)
        self.numbers.store(finished, self.copies.batch, self.rows, self.x.equals(0))
        for i, row in enumerate(self.rows):
            for j in range(each):
                run, within = divmod(j, plan.vector)
                column = self._column(run) + within
                value = sums[i * each + j] * factors[i]

                def write(row: Int = row, column: Int = column, value: Float = value) -> None:
                    offset = start + place(kernel, layout.dimensions[ROW], row.wide())
                    offset = offset + place(kernel, layout.dimensions[COLUMN], column.wide())
                    vectors.store(kernel, [value], kernel.offset(self.output, offset, kernel.f32))

                kernel.when((row < self.attention.rows) & (column < self.attention.value_width), write)


def _pitch(width: int) -> int:
    return -(-width // 32) * 32 + 4
