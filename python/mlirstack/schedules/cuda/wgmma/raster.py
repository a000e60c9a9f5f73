"""The order in which a persistent grid works through the tiles of a matrix product."""

from __future__ import annotations

from dataclasses import dataclass

from mlirstack.schedules.cuda.values import Int, Number


@dataclass(frozen=True)
class Place:
    """A tile: its number along rows and columns, and the number of its product."""

    row: Int
    column: Int
    batch: Int


@dataclass(frozen=True)
class Raster:
    """``rows`` by ``columns`` tiles of each product; ``group`` rows of tiles are worked through column by column.

    Tiles that run at the same time then lie in a rectangle rather than in a row, and find each other's factors in L2.
    """

    rows: Number
    columns: Number
    group: int

    def place(self, tile: Int) -> Place:
        """Where the tile of this number is."""
        batch, rest = tile // (self.rows * self.columns), tile % (self.rows * self.columns)
        if isinstance(self.rows, int) and self.group >= self.rows:
            return Place(rest % self.rows, rest // self.rows, batch)
        whole = self.group * self.columns
        first = rest // whole * self.group
        within = rest % whole
        if isinstance(self.rows, int) and self.rows % self.group == 0:
            return Place(first + within % self.group, within // self.group, batch)
        height = (self.rows - first).minimum(self.group)  # the last group may have fewer rows
        return Place(first + within % height, within // height, batch)
