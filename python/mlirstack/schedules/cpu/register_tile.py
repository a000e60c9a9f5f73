"""The register tile of a contraction: how many rows and columns of the result one inner loop keeps in registers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RegisterTile:
    """``rows`` x ``columns`` accumulators; ``padded_columns`` where the matrix must be widened to a multiple first."""

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

    Columns: two registers, as many as one row of B can feed before its loads dominate; one, where only that divides the
    columns; more for one or two rows, which would otherwise wait for each addition.  A size that no register divides is
    taken whole where it is small, and is left to padding otherwise.  Rows: as many as the remaining registers hold, in
    equal parts where the rows divide, else with a rest.
    """
    width = _columns(rows, columns, registers)
    wide = -(-width // registers.lanes)
    most = max(1, (registers.count - 1 - wide) // wide)
    return RegisterTile(_rows(rows, min(most, 16)), width)


def _columns(rows: int, columns: int, registers: Registers) -> int:
    lanes = registers.lanes
    if rows <= 2:
        for count in (8, 6, 4, 3):
            if columns % (count * lanes) == 0:
                return count * lanes
    for width in (2 * lanes, lanes):
        if columns % width == 0:
            return width
    if columns <= 2 * lanes:
        return columns
    for width in (5 * lanes // 2, 3 * lanes // 2):
        if columns % width == 0:
            return width
    return 2 * lanes if columns > 8 * lanes else lanes


def _rows(rows: int, most: int) -> int:
    if rows <= most:
        return rows
    for size in range(most, most // 2, -1):
        if rows % size == 0:
            return size
    return most
