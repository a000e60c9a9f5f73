"""Attention on tensor cores of sm_80 and later: ``mma.sync`` on tiles in shared memory, softmax and weights in registers.

A warp takes 16 or 32 query rows and all columns; the results of Q Kᵀ are, in place, the left factor of the product with V.
While scores are computed V is being copied, and the next K while V is multiplied.  The method is that of FlashAttention-2
(Dao, 2023); the keys may be divided among blocks (:mod:`~mlirstack.schedules.cuda.attention.attention_split`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.schedules.cuda.attention.attention_copies import RowCopies
from mlirstack.schedules.cuda.attention.attention_description import COLUMN, KEY, ROW, Attention
from mlirstack.schedules.cuda.attention.attention_expression import Element
from mlirstack.schedules.cuda.attention.attention_layout import size_of
from mlirstack.schedules.cuda.attention.attention_rows import (
    QUAD,
    ROWS,
    RowNumbers,
    RowSoftmax,
    RowState,
    fragment_keys,
    fragment_rows,
)
from mlirstack.schedules.cuda.attention.attention_scores import Masks, Scores, ScoreWriter, place, row_blocks, tile_of
from mlirstack.schedules.cuda.attention.attention_split import Parts, emit_combination
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.tensor_core import (
    ACCUMULATORS,
    CHUNK,
    MMA_COLUMNS,
    MMA_ROWS,
    OPERANDS,
    SharedTile,
    lane_of,
    load_matrices,
    multiply,
    wait_for_copies,
)
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Float, Int

_STEP = 16  # columns, or keys, that one mma.sync multiplies
_ELEMENTS = CHUNK // 2  # of 16 bits, in a chunk of shared memory
_HELD = 128  # columns of Q that fit into registers for the whole kernel; wider ones are read again for every tile


@dataclass(frozen=True)
class Plan:
    """``fragments``: groups of 16 query rows of a warp; ``splits``: blocks that share the keys of a row."""

    attention: Attention
    element: str  # "f16" or "bf16"
    warps: int
    fragments: int
    keys: int  # of a tile
    splits: int = 1

    @property
    def rows(self) -> int:
        """Query rows of a block."""
        return self.warps * self.fragments * MMA_ROWS

    @property
    def query_tile(self) -> SharedTile:
        """Q in shared memory."""
        return SharedTile(self.rows, _row_bytes(self.attention.width))

    @property
    def key_tile(self) -> SharedTile:
        """K in shared memory."""
        return SharedTile(self.keys, _row_bytes(self.attention.width))

    @property
    def value_tile(self) -> SharedTile:
        """V in shared memory."""
        return SharedTile(self.keys, _row_bytes(self.attention.value_width))

    @property
    def groups(self) -> int:
        """Groups of 8 columns of the output, an even number."""
        return 2 * -(-self.attention.value_width // _STEP)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.query_tile.bytes + self.key_tile.bytes + self.value_tile.bytes


def emit(function: Any, scores: Scores, plan: Plan) -> None:
    """Write the kernel and its launch in place of ``function``'s ops."""
    attention = plan.attention
    kernel = Kernel(function, threads=32 * plan.warps, schedule="attention")
    elements = (attention.query, attention.key, attention.value, attention.output)
    pointers = [kernel.pointer(element.tensor.value) for element in elements]
    masks = Masks.of(kernel, scores)
    parts = Parts.allocate(function, attention, plan.splits) if plan.splits > 1 else None
    partial = (kernel.pointer(parts.sums), kernel.pointer(parts.numbers)) if parts is not None else None
    numbers = RowNumbers.of(kernel, scores) if parts is None else None
    with kernel.body():
        _Writer(kernel, scores, plan, pointers, masks, parts, partial, numbers).write()
    kernel.launch((row_blocks(attention, plan.rows) * plan.splits,), shared_bytes=plan.shared_bytes)
    if parts is not None:
        emit_combination(function, scores, parts)


class _Writer:
    """Writes the body.  Rows of a thread are numbered fragment by fragment, two in each."""

    def __init__(
        self, kernel: Kernel, scores: Scores, plan: Plan, pointers: Sequence[Any], masks: Masks, parts: Parts | None,
        partial: tuple[Any, Any] | None, numbers: RowNumbers | None,
    ) -> None:  # fmt: skip
        self.kernel, self.scores, self.plan, self.attention = kernel, scores, plan, plan.attention
        self.query, self.key, self.value, self.output = pointers
        self.masks, self.operands = masks, OPERANDS[plan.element]
        self.parts, self.partial, self.numbers = parts, partial, numbers
        self.kind = kernel.f16 if plan.element == "f16" else kernel.bf16
        self.softmax = RowSoftmax(kernel, scores)
        self.count = ROWS * plan.fragments  # rows of a thread

    def write(self) -> None:
        """One block: rows of one (batch, head), all keys that they see."""
        kernel, plan, attention = self.kernel, self.plan, self.attention
        shared, thread = kernel.shared(), kernel.thread()
        self.lane, warp = lane_of(thread), thread // 32
        self.query_at = shared
        self.key_at = kernel.offset(shared, plan.query_tile.bytes)
        self.value_at = kernel.offset(shared, plan.query_tile.bytes + plan.key_tile.bytes)
        block = kernel.block_index()
        tile = tile_of(kernel, self.scores, plan.rows, plan.keys, block // plan.splits)
        self.last, self.batch, self.part = tile.count - 1, tile.batch, block % plan.splits
        each = -(-attention.keys // plan.keys // plan.splits)  # tiles of keys of a part
        begin = self.part * each
        self.end = (begin + each).minimum(tile.count)
        begin = begin.minimum(self.end)
        edged = tile.edged.minimum(self.end).maximum(begin)
        self.warp_row = warp * (plan.fragments * MMA_ROWS)
        first = tile.first_row + self.warp_row + self.lane // 4
        self.rows = [first + (MMA_ROWS * fragment + 8 * row) for fragment in range(plan.fragments) for row in range(ROWS)]
        self.copies = RowCopies(kernel, thread, tile.batch)
        self.scorer = ScoreWriter(kernel, self.scores, self.masks, tile.batch)
        self._copy(attention.query, ROW, self.query, (tile.first_row, plan.rows), (self.query_at, plan.query_tile))
        self._copy_keys(self.last - begin.minimum(self.last))
        self.held = None
        if attention.width <= _HELD:
            wait_for_copies(1)
            kernel.barrier()
            self.held = [self._query(step) for step in range(-(-attention.width // _STEP))]
        state, sums = RowState.start(kernel, self.count), [kernel.real(0.0)] * (self.count * plan.groups * 2)
        flat = [*state.maxima, *state.sums, *sums]
        flat = kernel.loop(begin, edged, 1, flat, lambda i, *flat: self._tile(i, flat, edges=True))
        flat = kernel.loop(edged, self.end, 1, flat, lambda i, *flat: self._tile(i, flat, edges=False))
        wait_for_copies(0)
        state = RowState(flat[: self.count], flat[self.count : 2 * self.count])
        if self.parts is None:
            self._store(state, flat[2 * self.count :])
        else:
            self._store_part(state, flat[2 * self.count :])

    def _tile(self, number: Int, flat: Sequence[Float], *, edges: bool) -> Sequence[Float]:
        """Tile ``number`` from the last one on."""
        kernel, plan, count = self.kernel, self.plan, self.count
        state, sums = RowState(list(flat[:count]), list(flat[count : 2 * count])), flat[2 * count :]
        tile = self.last - number
        wait_for_copies(0)
        kernel.barrier()  # K is here, and nobody reads the last V any more
        rows = (tile * plan.keys, plan.keys)
        self._copy(self.attention.value, KEY, self.value, rows, (self.value_at, plan.value_tile))
        scores = self._scores(tile * plan.keys, edges=edges)
        state, weights, corrections = self.softmax.update(state, scores)
        wait_for_copies(0)
        kernel.barrier()  # V is here, and nobody reads K any more
        kernel.when(number + 1 < self.end, lambda: self._copy_keys(tile - 1))
        each = 4 * plan.groups  # sums of a fragment
        corrected = [value * corrections[ROWS * (i // each) + i // 2 % ROWS] for i, value in enumerate(sums)]
        return [*state.maxima, *state.sums, *self._weighted(weights, corrected)]

    # ------------------------------------------------------------------------------------------------------------ copies

    def _copy_keys(self, tile: Int) -> None:
        rows = (tile * self.plan.keys, self.plan.keys)
        self._copy(self.attention.key, KEY, self.key, rows, (self.key_at, self.plan.key_tile))

    def _copy(self, element: Element, index: int, source: Any, rows: tuple[Int, int], tile: tuple[Any, SharedTile]) -> None:
        at, layout = tile
        width = size_of(element.layout.dimensions[COLUMN])

        def place_of(row: Int, column: Int) -> Any:
            within = column % _ELEMENTS * 2
            return self.kernel.offset(at, layout.offset(row, column // _ELEMENTS) + within)

        self.copies.start(element, index, source, rows, -(-width // _STEP) * _STEP, place_of)

    # ---------------------------------------------------------------------------------------------------------- products

    def _query(self, step: int) -> list[list[Any]]:
        """A fragments of this warp's rows of Q, for 16 columns."""
        tile, found = self.plan.query_tile, []
        for fragment in range(self.plan.fragments):
            row = self.warp_row + fragment * MMA_ROWS + self.lane % 16
            place_of = tile.offset(row, self.lane // 16 + 2 * step)
            found.append(load_matrices(self.kernel, self.kernel.offset(self.query_at, place_of)))
        return found

    def _scores(self, first: Int, *, edges: bool) -> list[list[Float]]:
        """Scores of the keys in shared memory, per row."""
        kernel, plan = self.kernel, self.plan
        groups = plan.keys // MMA_COLUMNS
        sums = [[kernel.real(0.0).value] * (ACCUMULATORS * groups) for _ in range(plan.fragments)]
        for step in range(-(-self.attention.width // _STEP)):
            query = self.held[step] if self.held is not None else self._query(step)
            for pair in range(0, groups, 2):
                row = self.lane % 8 + self.lane // 16 * 8 + pair * MMA_COLUMNS
                place_of = plan.key_tile.offset(row, self.lane // 8 % 2 + 2 * step)
                self._multiply(query, load_matrices(kernel, kernel.offset(self.key_at, place_of)), sums, pair)
        keys = fragment_keys(first, self.lane % 4, plan.keys)
        products = [row for fragment in sums for row in fragment_rows([Float(value) for value in fragment])]
        flat = [value for row in products for value in row]
        scores = self.scorer.write(flat, self.rows, keys, edges=edges)
        return [scores[i * len(keys.offsets) : (i + 1) * len(keys.offsets)] for i in range(self.count)]

    def _weighted(self, weights: Sequence[Sequence[Float]], sums: Sequence[Float]) -> list[Float]:
        """The sums plus the weights times the rows of V in shared memory."""
        kernel, plan = self.kernel, self.plan
        each = ACCUMULATORS * plan.groups
        result = [[value.value for value in sums[i * each : (i + 1) * each]] for i in range(plan.fragments)]
        packed = [self.softmax.packed(weights[ROWS * i : ROWS * i + ROWS], self.kind) for i in range(plan.fragments)]
        for step in range(plan.keys // _STEP):
            left = [[register.value for register in fragment[4 * step : 4 * step + 4]] for fragment in packed]
            for pair in range(0, plan.groups, 2):
                place_of = plan.value_tile.offset(self.lane % 16 + step * _STEP, self.lane // 16 + pair)
                values = load_matrices(kernel, kernel.offset(self.value_at, place_of), transposed=True)
                self._multiply(left, values, result, pair)
        return [Float(value) for fragment in result for value in fragment]

    def _multiply(self, left: Sequence[Sequence[Any]], right: Sequence[Any], sums: list[list[Any]], group: int) -> None:
        """Every fragment times 16 columns: groups ``group`` and ``group + 1`` of the sums grow."""
        for fragment, a in enumerate(left):
            for half in range(2):
                start = ACCUMULATORS * (group + half)
                old = sums[fragment][start : start + ACCUMULATORS]
                new = multiply(self.kernel, self.operands, a, right[2 * half : 2 * half + 2], old)
                sums[fragment][start : start + ACCUMULATORS] = new

    # ------------------------------------------------------------------------------------------------------------ output

    def _store(self, state: RowState, sums: Sequence[Float]) -> None:
        """Divide, round, and write pairs of columns."""
        plan, each = self.plan, ACCUMULATORS * self.plan.groups
        finished = self.softmax.finished(state)
        factors = self.softmax.reciprocals(finished)
        assert self.numbers is not None
        self.numbers.store(finished, self.batch, self.rows, (self.lane % QUAD).equals(0))
        by_row = [row for i in range(plan.fragments) for row in fragment_rows(sums[i * each : (i + 1) * each])]
        columns = self._columns()
        for row, values, factor in zip(self.rows, by_row, factors, strict=True):

            def write(row: Int = row, values: list[Float] = values, factor: Float = factor) -> None:
                for pair in range(0, len(columns), 2):
                    self._store_pair(row, columns[pair], [value * factor for value in values[pair : pair + 2]])

            self.kernel.when(row < self.attention.rows, write)

    def _columns(self) -> list[Int]:
        """Columns of the output that this thread has of each row."""
        run = fragment_keys(self.kernel.integer(0), self.lane % 4, self.plan.groups * MMA_COLUMNS)
        return run.indices(0, len(run.offsets))

    def _store_part(self, state: RowState, sums: Sequence[Float]) -> None:
        """The weighted sums as they are, the largest score and the sum of exponentials of each row."""
        kernel, plan, each = self.kernel, self.plan, ACCUMULATORS * self.plan.groups
        parts, partial, width = self.parts, self.partial, self.attention.value_width
        assert parts is not None and partial is not None
        by_row = [row for i in range(plan.fragments) for row in fragment_rows(sums[i * each : (i + 1) * each])]
        columns = self._columns()
        for i, (row, values) in enumerate(zip(self.rows, by_row, strict=True)):
            numbers = [state.maxima[i], self.softmax.across_row(state.sums[i], Float.__add__)]

            def write(row: Int = row, values: list[Float] = values, numbers: list[Float] = numbers) -> None:
                number = parts.row(self.part, self.batch, row)
                vectors.store_some(kernel, numbers, kernel.offset(partial[1], number * 2, kernel.f32), 2)
                for column, value in zip(columns, values, strict=True):
                    place_of = kernel.offset(partial[0], number * width + column.wide(), kernel.f32)
                    kernel.when(column < width, self._storing(value, place_of))

            kernel.when(row < self.attention.rows, write)

    def _storing(self, value: Float, place: Any) -> Callable[[], None]:
        """What stores one number."""
        return lambda: vectors.store(self.kernel, [value], place)

    def _store_pair(self, row: Int, column: Int, values: Sequence[Float]) -> None:
        """Two columns of a row; one access where the output has them next to each other, at an even place."""
        kernel, output, width = self.kernel, self.attention.output, self.attention.value_width
        dimensions, kind = output.layout.dimensions, output.tensor.element
        start = self.copies.start_of(output) + place(kernel, dimensions[ROW], row.wide())
        numbers = [stride for digits in dimensions[: ROW + 1] for _, stride in digits]
        together = output.layout.stride(COLUMN) == 1 and not any(n % 2 for n in (*numbers, width, output.layout.offset))
        for first in range(0, 2, 2 if together else 1):
            chosen = values[first : 2 if together else first + 1]

            def write(first: int = first, chosen: Sequence[Float] = chosen) -> None:
                offset = start + place(kernel, dimensions[COLUMN], (column + first).wide())
                vectors.store(kernel, [value.to(kind) for value in chosen], kernel.offset(self.output, offset, kind))

            kernel.when(column + first < width, write)


def _row_bytes(width: int) -> int:
    """Bytes of a row in shared memory: 64, or a multiple of 128, so that chunks can be permuted."""
    used = 2 * -(-width // _STEP) * _STEP
    return 64 if used <= 64 else -(-used // 128) * 128
