"""The register tile of a contraction: how many rows and columns of the result one inner loop keeps in registers."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_ROWS = 16
# What a column costs in a panel of two registers, one, a half, …: more loads and broadcasts for each multiplication.
_PANEL_COST = (1.0, 1.1, 1.5, 3.0, 6.0)
_PADDING_COST = 1.1  # the padded result is copied


@dataclass(frozen=True)
class RegisterTile:
    """``rows`` x ``columns`` accumulators.  Columns that they do not divide are padded, rows are cut."""

    rows: int
    columns: int


@dataclass(frozen=True)
class Registers:
    """Vector registers of the machine: how many, and elements of the accumulator's type in one."""

    count: int
    lanes: int

    @staticmethod
    def of(vector_bits: int, element_bits: int) -> Registers:
        """x86: 32 registers with AVX-512, 16 below it."""
        return Registers(32 if vector_bits >= 512 else 16, max(1, vector_bits // element_bits))


def register_tile(rows: int, columns: int, registers: Registers) -> RegisterTile:
    """The tile for a result of ``rows`` x ``columns``.

    Columns are a power of two: LLVM keeps a vector of any other length in scalars when a loop carries it.  Two registers
    are as many as one row of B can feed before its loads dominate; one or two rows take more, which would otherwise wait
    for each addition.  Rows: as many as the remaining registers hold, in equal parts where the rows divide, else with a
    rest.
    """
    width = _columns(rows, columns, registers.lanes)
    wide = -(-width // registers.lanes)
    most = max(1, (registers.count - 1 - wide) // wide)
    return RegisterTile(_rows(rows, min(most, _MAX_ROWS)), width)


def _columns(rows: int, columns: int, lanes: int) -> int:
    if rows <= 2:
        for count in (8, 4):
            if columns % (count * lanes) == 0:
                return count * lanes
    widths = [w for w in (2 * lanes, lanes, lanes // 2, lanes // 4, lanes // 8) if w >= 1]

    def cost(width: int, factor: float) -> float:
        padded = -(-columns // width) * width
        return padded * factor * (_PADDING_COST if padded != columns else 1.0)

    return min(zip(widths, _PANEL_COST, strict=False), key=lambda choice: cost(*choice))[0]


def _rows(rows: int, most: int) -> int:
    if rows <= most:
        return rows
    for size in range(most, most // 2, -1):
        if rows % size == 0:
            return size
    return most
