"""A whole product as a kernel: tiles to blocks, the main loop, the way out; split-K where asked for.

How tiles are multiplied is behind :class:`Engine`, what is multiplied behind
:class:`~mlirstack.schedules.cuda.product.factors.Factor`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from mlirstack.schedules.cuda.extent import Extent, ceil_div, times
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.contraction import Product
from mlirstack.schedules.cuda.product.epilogue import Epilogue
from mlirstack.schedules.cuda.product.factors import Factor
from mlirstack.schedules.cuda.product.pipelined_loop import Stages
from mlirstack.schedules.cuda.product.split_k import PartialSums
from mlirstack.schedules.cuda.product.sums import Sums
from mlirstack.schedules.cuda.product.tile_output import Staging, staging_for
from mlirstack.schedules.cuda.values import Int
from mlirstack.schedules.cuda.wgmma.raster import Raster

# Multiplications from which on a product without tensor cores runs alone.  Blocks that come early sit two by two on some
# multiprocessors and leave others idle: on an H200 a transformer block in f32, whose products have 2^26 to 2^28, takes
# 136 us where its kernels start early and 83 us in IREE's modules, where none does; a kernel's start is one or two.
_LONG = 1 << 25


@dataclass(frozen=True)
class Corner:
    """Where a block's results begin."""

    row: Int
    column: Int


class BlockTile(Protocol):
    """What a block computes, as far as it does not matter how."""

    @property
    def rows(self) -> int:
        """Rows of results of a block."""

    @property
    def columns(self) -> int:
        """Columns of results of a block."""

    @property
    def threads(self) -> int:
        """Threads of a block."""

    @property
    def memory(self) -> Stages:
        """The stages in shared memory."""


T = TypeVar("T", bound=BlockTile)


class Engine(ABC, Generic[T]):
    """Multiplies tiles."""

    tile: T

    @property
    def rows(self) -> int:
        """Rows of results of a block."""
        return self.tile.rows

    @property
    def columns(self) -> int:
        """Columns of results of a block."""
        return self.tile.columns

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.tile.threads

    @property
    def shared_bytes(self) -> int:
        """Shared memory of the stages."""
        return self.tile.memory.bytes

    @property
    @abstractmethod
    def k(self) -> int:
        """Elements of K in a stage."""

    @property
    @abstractmethod
    def direct_run(self) -> int:
        """Neighbouring columns that a thread ends up with, if they are worth storing without a detour; else 0."""

    @abstractmethod
    def sum_type(self, kernel: Kernel) -> Any:
        """MLIR type of the sums."""

    @abstractmethod
    def run(
        self,
        kernel: Kernel,
        factors: tuple[Factor, Factor],
        addresses: Sequence[Any],
        corner: Corner,
        first_tile: Int,
        k_tiles: int,
        padded_k: int,
    ) -> Sums:
        """Multiply ``k_tiles`` tiles of K from ``first_tile`` on; ``addresses`` are those of the factors."""


class TensorCoreEngine(Engine[T]):
    """Sums of a thread stand in pairs of columns, in the accumulators of ``operands``."""

    operands: Operands

    @property
    def direct_run(self) -> int:
        """Pairs are too little for a store."""
        return 0

    def sum_type(self, kernel: Kernel) -> Any:
        """See :class:`Engine`."""
        return kernel.i32 if self.operands.is_integer else kernel.f32


@dataclass(frozen=True)
class ProductKernel:
    """One product: what is multiplied, what comes after it, and how it is cut."""

    product: Product
    factors: tuple[Factor, Factor]
    engine: Engine[Any]
    splits: int
    group: int
    schedule: str

    @property
    def k_tiles(self) -> int:
        """Tiles of K that one block multiplies."""
        return ceil_div(ceil_div(self.product.k, self.engine.k), self.splits)

    def write(self, function: Any) -> None:
        """Write the kernel (two, if K is split) and its launch into a kernel function over memrefs."""
        product, engine = self.product, self.engine
        kernel = Kernel(function, threads=engine.threads, schedule=self.schedule, min_blocks=1)
        if not isinstance(engine, TensorCoreEngine) and product.m * product.n * product.k * product.batch >= _LONG:
            kernel.run_alone()
        given = [factor.parameters(kernel) for factor in self.factors]
        way_out = self._to_temporary(kernel) if self.splits > 1 else self._to_outputs(kernel)
        down, across = ceil_div(product.row_points, engine.rows), ceil_div(product.n, engine.columns)
        grid = (
            times(down, across * product.batch) if isinstance(down, Extent) else times(product.batch_points, down * across)
        )
        with kernel.body():
            block, tiles = kernel.block_index(), kernel.number(grid)
            raster = Raster(kernel.number(down), across, self.group)
            place = raster.place(block % tiles if self.splits > 1 else block)
            batch = place.batch if product.batch > 1 else None
            split = block // tiles if self.splits > 1 else kernel.integer(0)
            corner = Corner(place.row * engine.rows, place.column * engine.columns)
            addresses = [
                factor.product(kernel, parameters, batch, product.batches)
                for factor, parameters in zip(self.factors, given, strict=True)
            ]
            padded = self.splits * self.k_tiles * engine.k
            first = split * self.k_tiles
            sums = engine.run(kernel, self.factors, addresses, corner, first, self.k_tiles, padded)
            _for_each_run(kernel, engine, way_out.staging, sums, corner, way_out.writer(batch, split))
        staged = way_out.staging.bytes(engine.sum_type(kernel)) if way_out.staging is not None else 0
        kernel.launch((times(grid, self.splits),), shared_bytes=max(engine.shared_bytes, staged))
        if isinstance(way_out, _ToTemporary):
            way_out.partial.reduce(function, self.schedule)

    def _to_outputs(self, kernel: Kernel) -> _ToOutputs:
        engine = self.engine
        epilogue = Epilogue(kernel, self.product, tile_rows=engine.rows, tile_columns=engine.columns)
        return _ToOutputs(staging_for(self.product, engine.rows, engine.columns, engine.direct_run), epilogue)

    def _to_temporary(self, kernel: Kernel) -> _ToTemporary:
        engine = self.engine
        partial = PartialSums.allocate(kernel.function, self.product, self.splits, engine.sum_type(kernel))
        staging = None if engine.direct_run else Staging(engine.rows, engine.columns, partial.run)
        return _ToTemporary(staging, kernel, partial, kernel.pointer(partial.buffer))


Writer = Callable[[Sequence[Any], Int, Int], None]  # (run of sums, row, first column)


@dataclass(frozen=True)
class _ToOutputs:
    """The way out through the steps after the product; through shared memory before, if there is a ``staging``."""

    staging: Staging | None
    epilogue: Epilogue

    def writer(self, batch: Int | None, split: Int) -> Writer:
        """Writes runs of product number ``batch``."""
        # Runs that come out of a loop stand in a block of their own: each then loads what it needs.
        shared = self.epilogue.tile(batch) if self.staging is None else None

        def write(values: Sequence[Any], row: Int, column: Int) -> None:
            tile = shared or self.epilogue.tile(batch)
            for output, run in enumerate(tile.apply(values, row, column)):
                tile.store(output, run, row, column)

        return write


@dataclass(frozen=True)
class _ToTemporary:
    """The way to a temporary that a second kernel adds up."""

    staging: Staging | None
    kernel: Kernel
    partial: PartialSums
    pointer: Any

    def writer(self, batch: Int | None, split: Int) -> Writer:
        """Writes runs of product number ``batch``, share ``split`` of K."""

        def write(values: Sequence[Any], row: Int, column: Int) -> None:
            self.partial.store(self.kernel, self.pointer, split, batch, values, row, column)

        return write


def _for_each_run(
    kernel: Kernel, engine: Engine[Any], staging: Staging | None, sums: Sums, corner: Corner, write: Writer
) -> None:
    """Have every run of the block's sums written, by the thread that holds it or by the one that gets it by ``staging``."""
    if staging is None:
        _write_own(sums, corner, write)
        return

    def place(values: Sequence[Any], row: Int, column: Int) -> None:
        write(values, corner.row + row, corner.column + column)

    shared = kernel.shared()
    staging.write(kernel, sums, shared)
    kernel.barrier()
    staging.read(kernel, engine.sum_type(kernel), shared, kernel.thread(), engine.threads, place)


def _write_own(sums: Sums, corner: Corner, write: Writer) -> None:
    """Have a thread's own runs written; the same row or column is the same object every time, so that loads are shared."""
    rows: dict[int, Int] = {}
    columns: dict[int, Int] = {}
    first_row, first_column = corner.row + sums.row, corner.column + sums.column
    for _, column, _ in sums.pieces:
        columns.setdefault(column, first_column + column)
    for row, column, values in sums.pieces:
        write(values, rows.setdefault(row, first_row + row), columns[column])
