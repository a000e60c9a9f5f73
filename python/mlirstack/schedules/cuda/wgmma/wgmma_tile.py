"""The shape of a warp-specialised matrix product on Hopper: tile, ring, cluster, and where everything lies in memory.

Pure arithmetic on a :class:`Contraction` and a :class:`WgmmaTile`; ``wgmma_kernel`` writes the
kernel from it, and the emitters ask here whether a tile is possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.extent import Extent, Size, ceil_div, times
from mlirstack.schedules.cuda.instructions.mbarrier import BARRIER_BYTES, Ring
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.instructions.warpgroup import SWIZZLE, WARPGROUP, WGMMA_ROWS, SharedOperand
from mlirstack.schedules.cuda.product.contraction import Contraction, Matrix
from mlirstack.schedules.cuda.product.paired import Pair
from mlirstack.schedules.cuda.wgmma.reach import copyable_output, has_rows

_SWIZZLED_ROWS = 8  # of 128 bytes: what the swizzle permutes
STORE_COLUMNS = 64  # columns of the epilogue that are computed before they are stored, at most
STORE_BUFFER = WGMMA_ROWS * SWIZZLE  # bytes of a box on its way out: 64 rows of 128 bytes, or of 64
PIECE_BYTES = 16 * WARPGROUP  # four accumulators of each thread of a warpgroup
STORE_BUFFERS = 2  # of each warpgroup, used in turns
_PRODUCTS_PER_CLOCK = 2048  # of a multiprocessor, bytes of a factor each
_SLOW_START = 300  # clocks
TURNS = 4  # blocks that bring a factor in turns


@dataclass(frozen=True)
class WgmmaTile:
    """What a block computes and how.

    ``rows`` by ``columns`` of the result, by ``consumers`` warpgroups; a ring of ``stages`` buffers.  ``multicast``: which
    factor two neighbouring blocks of a cluster share ("none", "a": they stand side by side, "b": one above the other,
    "both": two by two blocks), each bringing half of it; "turns": four blocks one above the other, which bring all of it for
    all in turns.  ``split``: blocks of a cluster that share the K of one tile, a power of two.  ``group``:
    rows of tiles that are worked through column by column, so that what is in flight at a time shares factors in L2.
    ``pingpong``: each consumer has tiles of its own, and runs the epilogue of one while the other multiplies.
    """

    rows: int
    columns: int
    stages: int
    multicast: str = "none"
    split: int = 1
    consumers: int = 2
    group: int = 8
    pingpong: bool = False

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        down, across = self.cluster_tiles
        return self.split * down * across

    @property
    def cluster_tiles(self) -> tuple[int, int]:
        """Tiles of a cluster along rows and columns."""
        return {"none": (1, 1), "a": (1, 2), "b": (2, 1), "both": (2, 2), "turns": (TURNS, 1)}[self.multicast]

    @property
    def shares_left(self) -> bool:
        """Do two blocks of a cluster share the left factor?"""
        return self.multicast in ("a", "both")

    @property
    def shares_right(self) -> bool:
        """Do two blocks of a cluster share the right factor?"""
        return self.multicast in ("b", "both")

    @property
    def takes_turns(self) -> bool:
        """Do the blocks of a cluster bring the right factor for all in turns?"""
        return self.multicast == "turns"

    @property
    def writers(self) -> int:
        """Blocks that fill a block's ring: itself, and those that it shares a factor with."""
        return TURNS if self.takes_turns else 1 + self.shares_left + self.shares_right

    @property
    def warpgroups(self) -> tuple[int, int]:
        """Consumer warpgroups along rows and along columns of a tile."""
        if self.pingpong:
            return 1, 1
        along_rows = min(self.consumers, self.rows // WGMMA_ROWS)
        return along_rows, self.consumers // along_rows

    @property
    def blocks(self) -> int:
        """Blocks of 64 rows of one warpgroup."""
        return self.rows // WGMMA_ROWS // self.warpgroups[0]

    @property
    def warpgroup_columns(self) -> int:
        """Columns of one warpgroup."""
        return self.columns // self.warpgroups[1]

    @property
    def accumulators(self) -> int:
        """Accumulators that a thread has for each block of 64 rows."""
        return self.warpgroup_columns * WGMMA_ROWS // WARPGROUP

    @property
    def releases(self) -> int:
        """Arrivals that release a buffer of the ring: one of each warpgroup that reads it, in each block that has it."""
        return self.warpgroups[0] * self.warpgroups[1] * self.writers

    @property
    def pieces(self) -> int:
        """Groups of four accumulators that a thread has."""
        return self.blocks * self.accumulators // 4

    def owner(self, piece: int) -> int:
        """The block of a cluster that shares K which finishes this piece of the tile."""
        return piece * self.split // self.pieces

    def owned(self, block: int) -> list[int]:
        """The pieces that a block finishes."""
        return [piece for piece in range(self.pieces) if self.owner(piece) == block]

    @property
    def groups_ahead(self) -> int:
        """Groups of wgmmas, one for a step of K, that are in flight while another is started.

        A warpgroup needs almost 300 clocks to see that one is done and to start the next; small ones take less.
        """
        clocks = self.rows * self.columns // _PRODUCTS_PER_CLOCK * SWIZZLE // 2
        return min(3 if clocks < _SLOW_START else 1, self.stages - 2) if self.stages > 2 else 1

    @property
    def threads(self) -> int:
        """Threads of a block: the producer's warpgroup and the consumers."""
        return WARPGROUP * (1 + self.consumers)


@dataclass(frozen=True)
class WgmmaProblem:
    """A matrix product as tensor cores compute it: ``left`` gives the 64 rows of a wgmma, ``right`` its columns.

    ``swapped``: left is the contraction's B, so that the few rows of A become columns of a wgmma, which has as few as 8.
    Of a :class:`Pair` of products, one half of a tile's columns (swapped: of its rows) are those of B, the other half those
    of the other factor, and the results are as many as one half: every thread has both sums of its elements.
    """

    contraction: Contraction
    operands: Operands
    tile: WgmmaTile
    swapped: bool = False

    @property
    def left(self) -> Matrix:
        """The factor whose rows are rows of a wgmma."""
        return self.contraction.b if self.swapped else self.contraction.a

    @property
    def right(self) -> Matrix:
        """The factor whose rows are columns of a wgmma."""
        return self.contraction.a if self.swapped else self.contraction.b

    @property
    def other(self) -> Matrix | None:
        """The second factor of a pair of products, which lies beside B."""
        return self.contraction.other if isinstance(self.contraction, Pair) else None

    @property
    def result_rows(self) -> int:
        """Rows of results of a tile."""
        return self.tile.rows // (2 if self.other is not None and self.swapped else 1)

    @property
    def result_columns(self) -> int:
        """Columns of results of a tile."""
        return self.tile.columns // (1 if self.other is None or self.swapped else 2)

    @property
    def result_blocks(self) -> int:
        """Blocks of 64 rows of results of a warpgroup."""
        return self.tile.blocks // (2 if self.other is not None and self.swapped else 1)

    @property
    def warpgroup_columns(self) -> int:
        """Columns of results of a warpgroup."""
        return self.result_columns // self.tile.warpgroups[1]

    @property
    def left_in_registers(self) -> bool:
        """Does the left factor go through registers?  wgmma reads elements of 32 bits from shared memory along K only."""
        return self.operands.bits == 32 and not self.left.k_major

    @property
    def left_shared(self) -> SharedOperand:
        """How left lies in shared memory."""
        return SharedOperand(self.operands, self.left.k_major)

    @property
    def right_shared(self) -> SharedOperand:
        """How right lies in shared memory."""
        return SharedOperand(self.operands, self.right.k_major)

    @property
    def steps(self) -> int:
        """Buffers of K that a tile needs."""
        return -(-self.contraction.k // self.left_shared.tile_k)

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles of clusters along rows and columns."""
        down, across = self.tile.cluster_tiles
        return ceil_div(self.left.rows, self.result_rows * down), ceil_div(self.right.rows, self.result_columns * across)

    @property
    def tile_points(self) -> tuple[Size, Size]:
        """The same, as there are at run time."""
        down, across = self.tile.cluster_tiles
        rows, columns = self.left.row_points, self.right.row_points
        return ceil_div(rows, self.result_rows * down), ceil_div(columns, self.result_columns * across)

    @property
    def copied(self) -> list[Matrix]:
        """Factors that a kernel before this one copies."""
        return [matrix for matrix in (self.left, self.right) if matrix.copied]

    @property
    def work(self) -> int:
        """Tiles of clusters in all."""
        return self.tiles[0] * self.tiles[1] * self.contraction.batch

    @property
    def work_points(self) -> Size:
        """The same, as there are at run time."""
        for varying, other in (self.tile_points, self.tile_points[::-1]):
            if isinstance(varying, Extent) and isinstance(other, int):
                return times(varying, other * self.contraction.batch)
        return times(self.contraction.batch_points, self.tiles[0] * self.tiles[1])

    def clusters_at_once(self, device: Device) -> int:
        """Clusters that run at the same time, a block on each multiprocessor.

        Those of a cluster belong together physically, in groups that no cluster of four or eight uses up: on an H200 whose
        132 were asked, 30 of four fitted.
        """
        usable = device.multiprocessors - (device.multiprocessors // 11 if self.tile.cluster > 2 else 0)
        return usable // self.tile.cluster

    # ------------------------------------------------------------------------------------------------------ shared memory

    @property
    def left_bytes(self) -> int:
        """Bytes of left in a stage."""
        return self.tile.rows * SWIZZLE

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage."""
        return (self.tile.rows + self.tile.columns) * SWIZZLE

    @property
    def stores(self) -> int:
        """Where boxes on their way out begin, ``STORE_BUFFERS`` for each consumer."""
        return self.tile.stages * self.stage_bytes

    @property
    def row_stores(self) -> int:
        """Where boxes lie whose rows threads store, one for each consumer."""
        return self.stores + (self.tile.consumers * STORE_BUFFERS if any(self.staged) else 0) * STORE_BUFFER

    @cached_property
    def partial(self) -> int:
        """Where sums of the cluster's other blocks arrive."""
        return self.row_stores + (self.tile.consumers if any(self.gathered) else 0) * STORE_BUFFER

    @property
    def partial_bytes(self) -> int:
        """Bytes that one warpgroup gets from the same one of another block, at most."""
        return -(-self.tile.pieces // self.tile.split) * PIECE_BYTES

    @property
    def barriers(self) -> int:
        """Where the barriers begin."""
        return self.partial + (self.tile.split - 1) * self.tile.consumers * self.partial_bytes

    @property
    def arrivals(self) -> int:
        """Where the barriers of arriving sums begin, one for each consumer."""
        return self.barriers + Ring.bytes(self.tile.stages)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return self.arrivals + BARRIER_BYTES * self.tile.consumers

    # ------------------------------------------------------------------------------------------------------------ outputs

    @cached_property
    def staged(self) -> tuple[bool, ...]:
        """Per output: does it go through shared memory and the copy engine?"""
        whole = self.tile.split == 1 and self.warpgroup_columns % (STORE_COLUMNS // 2) == 0
        return tuple(
            not self.swapped and whole and copyable_output(self.contraction, output.access)
            for output in self.contraction.outputs
        )

    @cached_property
    def gathered(self) -> tuple[bool, ...]:
        """Per output: does it go through shared memory, from where threads store whole rows of it?"""
        whole = self.tile.split == 1 and not self.swapped
        return tuple(
            whole and not staged and has_rows(self.contraction, output.access)
            for output, staged in zip(self.contraction.outputs, self.staged, strict=True)
        )

    def box_row(self, size: int) -> int:
        """Bytes of a row of a box on its way out, of elements of ``size`` bytes: a warpgroup's columns are whole boxes."""
        return SWIZZLE if self.warpgroup_columns * size % SWIZZLE == 0 else SWIZZLE // 2

    def fits(self, device: Device) -> bool:
        """Can the kernel be written, and does a block fit on the device?"""
        tile = self.tile
        if tile.cluster > 1 and not device.has_clusters:
            return False
        registers = tile.blocks * tile.accumulators <= (128 if tile.consumers <= 2 else 96)
        if tile.takes_turns and (tile.split > 1 or self.swapped or self.other is not None or not self.right.k_major):
            return False
        if tile.split > 1 and (self.operands.is_integer or tile.pingpong):
            return False  # sums travel as f32; a tile of one block has no room for turns
        if not self._holds_whole_boxes() or not self._shares_whole_boxes() or not self._holds_pairs():
            return False
        unit = 16 if self.operands.is_integer and tile.warpgroup_columns > 24 else 8  # wgmma's widths
        return registers and tile.warpgroup_columns % unit == 0 and self.shared_bytes <= device.shared_per_block

    def _holds_pairs(self) -> bool:
        """Has each thread both sums of its elements?"""
        tile = self.tile
        if self.other is None:
            return True
        if self.swapped:  # one warpgroup with 64 rows of either factor
            return tile.split == 1 and (tile.consumers, tile.blocks) == (1, 2)
        return tile.split == 1 and tile.warpgroups[1] == 1 and tile.columns % 16 == 0

    def _holds_whole_boxes(self) -> bool:
        """Where rows are contiguous, a tile has those of whole boxes.  Elements of other sizes are copied along K first."""
        factors = ((self.left_shared, self.result_rows), (self.right_shared, self.result_columns))
        # Each warpgroup reads whole boxes, too: inside of one the swizzle would begin elsewhere.
        shares = (*factors, (self.right_shared, self.tile.warpgroup_columns))
        return all(s.k_major or self.operands.bits != 16 or rows % s.block_rows == 0 for s, rows in shares)

    def _shares_whole_boxes(self) -> bool:
        """Has each of the two blocks that share a factor boxes of it to copy?  Along rows a box has 64 of them; along K a
        multiple of 8, after which the swizzle begins anew."""
        tile = self.tile
        rows, columns = self.result_rows, self.result_columns
        factors = ((tile.shares_left, self.left_shared, rows), (tile.shares_right, self.right_shared, columns))
        return all(
            rows % (2 * (_SWIZZLED_ROWS if shared.k_major else shared.block_rows)) == 0
            for is_shared, shared, rows in factors
            if is_shared
        )
