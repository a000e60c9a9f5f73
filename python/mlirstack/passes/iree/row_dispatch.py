"""Dispatches of kernels over one row: workgroups each take a few rows, and call the kernel for one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.passes.iree.linked_dispatch import Launch, LinkedKernel, index_constant, roles
from mlirstack.passes.iree.rows import ROWS

POINTS = 1 << 14  # elements that a workgroup computes at least, if there are as many


@dataclass(frozen=True)
class RowKernel(LinkedKernel):
    """A kernel with ``mlirstack.rows``: of each tensor argument the loops over rows of its first dimensions; the sizes of
    these loops, None where dynamic."""

    loops: dict[int, tuple[int, ...]]
    sizes: tuple[int | None, ...]

    @staticmethod
    def of(declaration: Any) -> RowKernel:
        """Read off a declaration."""
        reads, writes, tensors = roles(declaration)
        loops = {i: tuple(ir.DenseI64ArrayAttr(given)) for i, given in enumerate(ir.ArrayAttr(declaration.attributes[ROWS]))}
        sizes: dict[int, int | None] = {}
        for number, kind in tensors.items():
            for axis, loop in enumerate(loops[number]):
                sizes[loop] = sizes.get(loop) or (None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis))
        known = tuple(sizes[loop] for loop in sorted(sizes))
        return RowKernel(functions.name_of(declaration), reads, writes, tensors, loops, known)

    def dynamic_sizes(self) -> int:
        """Sizes of loops over rows that are not known."""
        return sum(size is None for size in self.sizes)

    def extent(self, number: int) -> int:
        """Elements of one row of an argument."""
        kind = self.types[number]
        return math.prod(kind.get_dim_size(axis) for axis in range(len(self.loops[number]), kind.rank))

    def rows_at_once(self) -> int:
        """Rows that a workgroup computes."""
        return max(1, POINTS // max(self.extent(number) for number in self.types))

    # ------------------------------------------------------------------------------------------------------- in the program

    def launch(self, operands: Sequence[Any]) -> Launch:
        """A workgroup for :meth:`rows_at_once`."""
        arith = dialect("arith")
        sizes = [self._size(loop, operands) for loop in range(len(self.sizes))]
        rows = sizes[0]
        for size in sizes[1:]:
            rows = arith.MulIOp(rows, size).result
        one = index_constant(1)
        groups = arith.CeilDivUIOp(rows, index_constant(self.rows_at_once())).result
        words = [
            arith.IndexCastOp(ir.IntegerType.get_signless(32), size).result
            for size, known in zip(sizes, self.sizes, strict=True)
            if known is None
        ]
        return Launch([groups, one, one], words, [size for number in self.writes for size in self._dynamic(number, sizes)])

    def _size(self, loop: int, operands: Sequence[Any]) -> Any:
        """The value of a loop's size."""
        known = self.sizes[loop]
        if known is not None:
            return index_constant(known)
        number = next(number for number, loops in self.loops.items() if loop in loops)
        axis = index_constant(self.loops[number].index(loop))
        return dialect("tensor").DimOp(operands[number], axis).result

    def _dynamic(self, number: int, sizes: Sequence[Any]) -> list[Any]:
        return [sizes[loop] for axis, loop in enumerate(self.loops[number]) if self.types[number].is_dynamic_dim(axis)]

    # -------------------------------------------------------------------------------------------------------- in a workgroup

    def workgroup(self, call: Sequence[str]) -> list[str]:
        """A loop over the workgroup's rows."""
        lines = [
            *self._loop_sizes(),
            f"%step = arith.constant {self.rows_at_once()} : index",
            '%group = "hal.interface.workgroup.id"() {dimension = 0 : index} : () -> index',
            "%first = arith.muli %group, %step : index",
            "%last = arith.addi %first, %step : index",
            "%end = arith.minui %last, %count : index",
            "%one = arith.constant 1 : index",
            "scf.for %row = %first to %end step %one {",
            *self._row_numbers(),
        ]
        for place, number in enumerate(self.buffers):
            lines += self._row_place(number, place)
        return [*lines, *call, "}"]

    def _loop_sizes(self) -> list[str]:
        """``%size<n>`` of each loop over rows, and their product ``%count``."""
        lines, ordinal, layout = [], 0, self.export().layout()
        for loop, size in enumerate(self.sizes):
            if size is None:
                load = f'"hal.interface.constant.load"() {{layout = {layout}, ordinal = {ordinal} : index}} : () -> i32'
                lines += [f"%word{loop} = {load}", f"%size{loop} = arith.index_castui %word{loop} : i32 to index"]
                ordinal += 1
            else:
                lines.append(f"%size{loop} = arith.constant {size} : index")
        lines.append("%count0 = arith.constant 1 : index")
        lines += [f"%count{n + 1} = arith.muli %count{n}, %size{n} : index" for n in range(len(self.sizes))]
        return [line.replace(f"%count{len(self.sizes)}", "%count") for line in lines]

    def _is_consecutive(self, number: int) -> bool:
        """Do the rows of an argument lie one after the other, one for each iteration?"""
        return self.loops[number] == tuple(range(len(self.sizes)))

    def _row_numbers(self) -> list[str]:
        """``%index<n>`` of each loop for row ``%row``, where an argument needs them."""
        if all(self._is_consecutive(number) or not self.loops[number] for number in self.types):
            return []
        lines, rest = [], "%row"
        for loop in reversed(range(len(self.sizes))):
            lines += [f"%index{loop} = arith.remui {rest}, %size{loop} : index"]
            lines += [f"%rest{loop} = arith.divui {rest}, %size{loop} : index"]
            rest = f"%rest{loop}"
        return lines

    def _row_place(self, number: int, place: int) -> list[str]:
        """``%place<n>``, the first element of the row in an argument."""
        lines = [f"%points{place} = arith.constant {self.extent(number)} : index"]
        rows = "%zero"
        if self._is_consecutive(number):
            rows = "%row"
        else:
            for loop in self.loops[number]:
                scaled, moved = f"%scaled{place}_{loop}", f"%moved{place}_{loop}"
                lines += [
                    f"{scaled} = arith.muli {rows}, %size{loop} : index",
                    f"{moved} = arith.addi {scaled}, %index{loop} : index",
                ]
                rows = moved
        return [*lines, f"%place{place} = arith.muli {rows}, %points{place} : index"]
