"""A thread block of attention on Hopper: sizes, shared memory, tensor maps of the operands, and the tiles it goes through.

What the producer warpgroup and the consumers (:mod:`mlirstack.schedules.cuda.attention.attention_wgmma`) have in common.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.attention.attention_description import BATCH, COLUMN, KEY, ROW, Attention
from mlirstack.schedules.cuda.attention.attention_expression import Element
from mlirstack.schedules.cuda.attention.attention_layout import Dimension, size_of
from mlirstack.schedules.cuda.attention.attention_rows import RowNumbers
from mlirstack.schedules.cuda.attention.attention_scores import Masks, Scores, Tile, row_blocks, tile_of
from mlirstack.schedules.cuda.instructions.mbarrier import Ring
from mlirstack.schedules.cuda.instructions.warpgroup import SWIZZLE, WARPGROUP, WGMMA_ROWS
from mlirstack.schedules.cuda.kernel import Kernel, TensorMapLayout
from mlirstack.schedules.cuda.values import Int

CHUNK = SWIZZLE // 2  # columns of a head that lie together: 128 bytes


@dataclass(frozen=True)
class Plan:
    """Sizes of a kernel.  ``output_in_query``: rows of the output are gathered where Q was, to save shared memory."""

    attention: Attention
    element: str  # "f16" or "bf16"
    consumers: int  # warpgroups that compute, 64 query rows each
    keys: int  # of a tile
    stages: int  # buffers for tiles of K, and for those of V
    persistent: bool  # as many blocks as multiprocessors, each with several tiles; else one block per tile
    blocks: int = 1  # of a multiprocessor
    output_in_query: bool = False
    query_stages: int = 1  # buffers for tiles of Q: with two the next tile's is there when this one ends
    ordered: bool = False  # warpgroups start their products in turns, so that one multiplies while others exponentiate
    heads: int = 1  # heads whose tiles are taken together, the longest ones first

    @property
    def rows(self) -> int:
        """Query rows of a block."""
        return WGMMA_ROWS * self.consumers

    @property
    def query_bytes(self) -> int:
        """Shared memory of one tile of Q."""
        return _chunks(self.attention.width) * self.rows * SWIZZLE

    @property
    def key_bytes(self) -> int:
        """Shared memory of one tile of K."""
        return _chunks(self.attention.width) * self.keys * SWIZZLE

    @property
    def value_bytes(self) -> int:
        """Shared memory of one tile of V."""
        return _chunks(self.attention.value_width) * self.keys * SWIZZLE

    @property
    def output_bytes(self) -> int:
        """Size of the rows of the output that are gathered in shared memory."""
        return _chunks(self.attention.value_width) * self.rows * SWIZZLE

    @property
    def input_bytes(self) -> int:
        """Shared memory of all tiles of Q, K and V."""
        return self.query_stages * self.query_bytes + self.stages * (self.key_bytes + self.value_bytes)

    @property
    def output_offset(self) -> int:
        """Where in shared memory the rows of the output are."""
        return 0 if self.output_in_query else self.input_bytes

    @property
    def barrier_offset(self) -> int:
        """Where in shared memory the barriers are."""
        return self.input_bytes + (0 if self.output_in_query else self.output_bytes)

    @property
    def threads(self) -> int:
        """Threads of a block: the consumers and the producer's warpgroup."""
        return WARPGROUP * (self.consumers + 1)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.barrier_offset + Ring.bytes(self.query_stages) + 2 * Ring.bytes(self.stages)

    def sees_half(self, edge: int | None) -> bool:
        """Does the first of two consumers see only half of the keys of the first tile, whose diagonal is the causal edge?"""
        attention = self.attention
        if self.consumers != 2 or self.rows != self.keys or edge is None or edge % self.keys:
            return False
        return -(-attention.rows // self.rows) * self.rows + edge <= -(-attention.keys // self.keys) * self.keys

    @property
    def tiles(self) -> int:
        """Tiles of query rows, over all batches and heads."""
        return row_blocks(self.attention, self.rows)


def can_copy(element: Element, index: int) -> bool:
    """Can the copy engine see this operand, 16-bit elements, as rows (dimension ``index``) and batches of rows?"""
    layout = element.layout
    batches = [digit for digit in layout.dimensions[BATCH] if digit[1]]
    strides = [stride for _, stride in (*batches, *layout.dimensions[index])]
    return (
        layout.stride(COLUMN) == (1 if size_of(layout.dimensions[COLUMN]) > 1 else 0)
        and layout.stride(index) is not None
        and len(batches) <= 3
        and all(0 < stride < 2**39 and stride % 8 == 0 for stride in strides)
        and layout.offset % 8 == 0
    )


@dataclass(frozen=True)
class TiledOperand:
    """An operand as the copy engine sees it: boxes of 128 bytes times ``box_rows`` rows."""

    tensor_map: Any
    batch: Dimension
    box_rows: int

    @staticmethod
    def of(kernel: Kernel, element: Element, index: int, name: str, box_rows: int) -> TiledOperand:
        """Adds the tensor map to the kernel's parameters; ``name``: the element type, as tensor maps call it."""
        layout = element.layout
        batch = layout.dimensions[BATCH]
        outer = [digit for digit in reversed(batch) if digit[1]]
        width, rows = size_of(layout.dimensions[COLUMN]), size_of(layout.dimensions[index])
        row_stride = layout.stride(index) or -(-width // 8) * 8  # of a single row any will do
        described = TensorMapLayout(
            element=name,
            sizes=(width, rows, *(size for size, _ in outer)),
            strides=tuple(2 * stride for stride in (row_stride, *(stride for _, stride in outer))),
            box=(CHUNK, box_rows, *(1 for _ in outer)),
        )
        return TiledOperand(kernel.tensor_map(host_view(kernel, element), described), batch, box_rows)

    def coordinates(self, kernel: Kernel, chunk: int, row: Int, batch: Int) -> list[Int]:
        """Where a box begins: column, row, then the digits of the batch, innermost first."""
        found = [kernel.integer(chunk * CHUNK), row]
        for position in reversed(range(len(self.batch))):
            size, stride = self.batch[position]
            if stride:
                digit = batch // size_of(self.batch[position + 1 :])
                found.append(digit % size if position else digit)
        return found


def host_view(kernel: Kernel, element: Element) -> Any:
    """The memref of an operand, moved to its first element."""
    memref, offset = element.tensor.value, element.layout.offset
    if offset == 0:
        return memref
    shape = [size or 1 for size in element.tensor.shape]
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    start = [offset // stride % size for stride, size in zip(strides, shape, strict=True)]
    ones = [1] * len(shape)
    moved = ir.MemRefType.get(ones, element.tensor.element, ir.StridedLayoutAttr.get(offset, strides))
    with ir.InsertionPoint(functions.return_op(kernel.function)), kernel.location:
        return dialect("memref").SubViewOp(moved, memref, [], [], [], start, ones, ones).result


class Block:
    """The parts of a block, each made once: parameters by the constructor, addresses by :meth:`open` inside the body."""

    def __init__(self, kernel: Kernel, scores: Scores, plan: Plan) -> None:
        attention = plan.attention
        self.kernel, self.scores, self.plan = kernel, scores, plan
        self.query = TiledOperand.of(kernel, attention.query, ROW, plan.element, plan.rows)
        self.key = TiledOperand.of(kernel, attention.key, KEY, plan.element, plan.keys)
        self.value = TiledOperand.of(kernel, attention.value, KEY, plan.element, plan.keys)
        self.output = TiledOperand.of(kernel, attention.output, ROW, plan.element, WGMMA_ROWS)
        self.masks = Masks.of(kernel, scores)
        self.numbers = RowNumbers.of(kernel, scores)
        self.key_offset = plan.query_stages * plan.query_bytes
        self.value_offset = self.key_offset + plan.stages * plan.key_bytes

    def open(self) -> None:
        """Shared memory and the three rings of barriers: Q, K and V."""
        kernel, plan = self.kernel, self.plan
        self.shared = kernel.shared()
        rings, place = list[Ring](), plan.barrier_offset
        for stages in (plan.query_stages, plan.stages, plan.stages):
            rings.append(Ring(kernel, kernel.offset(self.shared, place), stages, plan.consumers))
            place += Ring.bytes(stages)
        self.query_ring, self.key_ring, self.value_ring = rings

    def for_each_tile(self, carried: Sequence[Any], body: Callable[..., Sequence[Any]]) -> None:
        """``body(tile, *carried)`` for each tile of this block, which is exactly one where the kernel is not persistent."""
        kernel, block = self.kernel, self.kernel.block_index()
        if not self.plan.persistent:
            body(self._tile(block), *carried)
            return
        step = kernel.grid_size()
        kernel.loop(block, self.plan.tiles, step, carried, lambda number, *inner: body(self._tile(number), *inner))

    def _tile(self, number: Int) -> Tile:
        return tile_of(self.kernel, self.scores, self.plan.rows, self.plan.keys, number, self.plan.heads)


def _chunks(width: int) -> int:
    """Chunks of columns of a head; what the last one has beyond the head is zeros."""
    return -(-width // CHUNK)
