"""Dispatches of kernels over one block of a product: a workgroup for each block of rows, of columns, and each matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.passes.iree.blocks import PLACES, Grid
from mlirstack.passes.iree.linked_dispatch import Launch, LinkedKernel, index_constant, roles, sum_of_products


@dataclass(frozen=True)
class BlockKernel(LinkedKernel):
    """A kernel with ``mlirstack.grid``; ``places`` are its ``mlirstack.places`` by argument number."""

    grid: Grid
    places: dict[int, tuple[int, ...]]

    @staticmethod
    def of(declaration: Any) -> BlockKernel:
        """Read off a declaration."""
        places = {
            i: tuple(ir.DenseI64ArrayAttr(given)) for i, given in enumerate(ir.ArrayAttr(declaration.attributes[PLACES]))
        }
        name = str(ir.StringAttr(declaration.attributes["sym_name"]).value)
        return BlockKernel(name, *roles(declaration), Grid.of(declaration), places)

    def launch(self, operands: Sequence[Any]) -> Launch:
        """All sizes are known."""
        return Launch([index_constant(count) for count in self.grid.workgroups()], [], [])

    def extent(self, number: int) -> int:
        """The whole argument: a block's rows lie far apart."""
        return math.prod(self.types[number].shape)

    def workgroup(self, call: Sequence[str]) -> list[str]:
        """One call; the last block of rows, and of columns, begins where it is whole."""
        lines = []
        for axis, name in enumerate(("row_block", "column_block", "matrix")):
            lines.append(f'%{name} = "hal.interface.workgroup.id"() {{dimension = {axis} : index}} : () -> index')
        grid = self.grid
        for name, size, block in (("row", grid.rows, grid.block_rows), ("column", grid.columns, grid.block_columns)):
            lines += [
                f"%{name}_step = arith.constant {block} : index",
                f"%{name}_begin = arith.muli %{name}_block, %{name}_step : index",
                f"%{name}_last = arith.constant {size - block} : index",
                f"%{name} = arith.minui %{name}_begin, %{name}_last : index",
            ]
        rest = "%matrix"
        for loop in reversed(range(len(grid.outer))):
            lines += [
                f"%size{loop} = arith.constant {grid.outer[loop]} : index",
                f"%index{loop} = arith.remui {rest}, %size{loop} : index",
                f"%rest{loop} = arith.divui {rest}, %size{loop} : index",
            ]
            rest = f"%rest{loop}"
        numbers = ["%row", "%column", "%column_block", *(f"%index{loop}" for loop in range(len(grid.outer)))]
        for place, number in enumerate(self.buffers):
            steps = zip(numbers, self.places[number], strict=True)
            lines += sum_of_products(f"place{place}", [(value, step) for value, step in steps if step])
        return [*lines, *call]
