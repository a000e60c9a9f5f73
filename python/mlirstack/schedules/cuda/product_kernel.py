"""A whole product as a kernel: tiles to blocks, the main loop, the way out; split-K where asked for.

How tiles are multiplied is behind :class:`Engine`, what is multiplied behind
:class:`~mlirstack.schedules.cuda.factors.Factor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mlirstack.schedules.cuda.contraction import Product
from mlirstack.schedules.cuda.epilogue import Epilogue
from mlirstack.schedules.cuda.factors import Factor
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.raster import Raster
from mlirstack.schedules.cuda.split_k import PartialSums
from mlirstack.schedules.cuda.sums import Sums
from mlirstack.schedules.cuda.tile_output import Staging, staging_for
from mlirstack.schedules.cuda.values import Int


@dataclass(frozen=True)
class Corner:
    """Where a block's results begin."""

    row: Int
    column: Int


class Engine(Protocol):
    """Multiplies tiles."""

    @property
    def rows(self) -> int:
        """Rows of results of a block."""

    @property
    def columns(self) -> int:
        """Columns of results of a block."""

    @property
    def k(self) -> int:
        """Elements of K in a stage."""

    @property
    def threads(self) -> int:
        """Threads of a block."""

    @property
    def shared_bytes(self) -> int:
        """Shared memory of the stages."""

    @property
    def direct_run(self) -> int:
        """Neighbouring columns that a thread ends up with, if they are worth storing without a detour; else 0."""

    def sum_type(self, kernel: Kernel) -> Any:
        """MLIR type of the sums."""

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


@dataclass(frozen=True)
class ProductKernel:
    """One product: what is multiplied, what comes after it, and how it is cut."""

    contraction: Product
    factors: tuple[Factor, Factor]
    engine: Engine
    splits: int
    group: int
    schedule: str

    @property
    def k_tiles(self) -> int:
        """Tiles of K that one block multiplies."""
        return -(-(-(-self.contraction.k // self.engine.k)) // self.splits)

    def write(self, function: Any) -> None:
        """Write the kernel (two, if K is split) and its launch into a kernel function over memrefs."""
        c, engine = self.contraction, self.engine
        kernel = Kernel(function, threads=engine.threads, schedule=self.schedule, min_blocks=1)
        given = [factor.parameters(kernel) for factor in self.factors]
        way_out = self._partial(kernel) if self.splits > 1 else self._final(kernel)
        raster = Raster(-(-c.m // engine.rows), -(-c.n // engine.columns), self.group)
        tiles = raster.rows * raster.columns * c.batch
        with kernel.body():
            block = kernel.block_index()
            place = raster.place(block % tiles if self.splits > 1 else block)
            batch = place.batch if c.batch > 1 else None
            split = block // tiles if self.splits > 1 else kernel.integer(0)
            corner = Corner(place.row * engine.rows, place.column * engine.columns)
            addresses = [
                factor.product(kernel, parameters, batch, c.batches)
                for factor, parameters in zip(self.factors, given, strict=True)
            ]
            padded = self.splits * self.k_tiles * engine.k
            first = split * self.k_tiles
            sums = engine.run(kernel, self.factors, addresses, corner, first, self.k_tiles, padded)
            way_out.write(sums, corner, batch, split)
        kernel.launch((tiles * self.splits,), shared_bytes=max(engine.shared_bytes, way_out.shared_bytes))
        if isinstance(way_out, _PartialWay):
            way_out.partial.reduce(function, self.schedule)

    def _final(self, kernel: Kernel) -> _FinalWay:
        engine = self.engine
        epilogue = Epilogue(kernel, self.contraction, tile_rows=engine.rows, tile_columns=engine.columns)
        staging = staging_for(self.contraction, engine.rows, engine.columns, engine.direct_run)
        return _FinalWay(kernel, engine, staging, epilogue)

    def _partial(self, kernel: Kernel) -> _PartialWay:
        engine = self.engine
        partial = PartialSums.allocate(kernel.function, self.contraction, self.splits, engine.sum_type(kernel))
        staging = None if engine.direct_run else Staging(engine.rows, engine.columns, partial.run)
        return _PartialWay(kernel, engine, staging, partial, kernel.pointer(partial.buffer))


@dataclass(frozen=True)
class _Way:
    """The way of a block's sums to memory, through shared memory if there is a ``staging``."""

    kernel: Kernel
    engine: Engine
    staging: Staging | None

    @property
    def shared_bytes(self) -> int:
        """Shared memory that it takes."""
        return self.staging.bytes(self.engine.sum_type(self.kernel)) if self.staging is not None else 0

    def runs(self, sums: Sums, corner: Corner) -> Any:
        """Call the returned function with ``body(values, row, column)`` to have it called for every run of the thread."""
        kernel, staging = self.kernel, self.staging

        def each(body: Any) -> None:
            if staging is None:
                sums_in_order(sums, corner, body)
                return
            shared, thread = kernel.shared(), kernel.thread()
            staging.write(kernel, sums, shared)
            kernel.barrier()
            place = lambda values, row, column: body(values, corner.row + row, corner.column + column)  # noqa: E731
            staging.read(kernel, self.engine.sum_type(kernel), shared, thread, self.engine.threads, place)

        return each


@dataclass(frozen=True)
class _FinalWay(_Way):
    """To the outputs of the kernel, through the steps after the product."""

    epilogue: Epilogue

    def write(self, sums: Sums, corner: Corner, batch: Int | None, split: Int) -> None:
        """Write a block's results."""
        shared_tile = self.epilogue.tile(batch) if self.staging is None else None

        def out(values: Sequence[Any], row: Int, column: Int) -> None:
            tile = shared_tile or self.epilogue.tile(batch)
            for output, run in enumerate(tile.apply(values, row, column)):
                tile.store(output, run, row, column)

        self.runs(sums, corner)(out)


@dataclass(frozen=True)
class _PartialWay(_Way):
    """To a temporary that a second kernel sums up."""

    partial: PartialSums
    pointer: Any

    def write(self, sums: Sums, corner: Corner, batch: Int | None, split: Int) -> None:
        """Write a block's sums."""

        def out(values: Sequence[Any], row: Int, column: Int) -> None:
            self.partial.store(self.kernel, self.pointer, split, batch, values, row, column)

        self.runs(sums, corner)(out)


def sums_in_order(sums: Sums, corner: Corner, body: Any) -> None:
    """``body(values, row, column)`` for each run of the thread; the same row or column is the same object every time."""
    rows: dict[int, Int] = {}
    columns: dict[int, Int] = {}
    first_row, first_column = corner.row + sums.row, corner.column + sums.column
    for _, column, _ in sums.pieces:
        columns.setdefault(column, first_column + column)
    for row, column, values in sums.pieces:
        body(values, rows.setdefault(row, first_row + row), columns[column])
