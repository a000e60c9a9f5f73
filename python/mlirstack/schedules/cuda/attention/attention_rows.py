"""The running softmax of attention, in registers: maxima, sums and weights of the rows of one accumulator fragment.

Works on fragments as ``mma.sync`` and ``wgmma`` leave them: a thread holds rows ``g`` and ``g + 8`` of its warp's 16, and of
each group of 8 keys two neighbours; the four threads of a quad share their rows.  Method: Milakov and Gimelshein, "Online
normalizer calculation for softmax", as FlashAttention uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect
from mlirstack.schedules.cuda.attention.attention_description import BATCH, ROW
from mlirstack.schedules.cuda.attention.attention_expression import Element, Position, emit
from mlirstack.schedules.cuda.attention.attention_scores import KeyRun, Scores, offset_of
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.reduce import across_lanes
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.epilogue import pack_pair
from mlirstack.schedules.cuda.values import Bool, Float, Int, tree

ROWS = 2  # rows of a fragment that a thread has a part of
GROUP = 8  # columns of a group: a thread holds two of each row, next to each other
QUAD = 4  # threads that share rows


def fragment_rows(values: Sequence[Any]) -> list[list[Any]]:
    """A fragment (four values per group of 8 columns) as one list per row."""
    return [[values[4 * group + 2 * row + i] for group in range(len(values) // 4) for i in range(2)] for row in range(ROWS)]


def fragment_keys(first: Int, quad_lane: Int, count: int) -> KeyRun:
    """The columns of a thread's values of one row, of ``count`` columns that begin at ``first``."""
    return KeyRun(first + quad_lane * 2, [GROUP * group + i for group in range(count // GROUP) for i in range(2)])


@dataclass(frozen=True)
class RowState:
    """Per row: the largest score so far (-inf: none) and this thread's part of the sum of exponentials."""

    maxima: list[Float]
    sums: list[Float]

    @staticmethod
    def start(kernel: Kernel, rows: int = ROWS) -> RowState:
        """Before the first key."""
        return RowState([kernel.real(float("-inf"))] * rows, [kernel.real(0.0)] * rows)


@dataclass(frozen=True)
class RowSoftmax:
    """One softmax being computed; ``lanes``: threads that share a row.

    Exponentials are approximated to 2 ulp, below the rounding of the weights to 16 bits.  ``exact``: they and the final
    quotient are as exact as eager's float32; the numbers given are then scores, never bare products.
    """

    kernel: Kernel
    scores: Scores
    lanes: int = QUAD
    exact: bool = False

    def update(self, state: RowState, values: Sequence[Sequence[Float]]) -> tuple[RowState, list[list[Float]], list[Float]]:
        """With more scores: the new state, their weights, and what older weighted sums must be multiplied with."""
        maxima, sums, weights, corrections = [], [], [], []
        for old, total, row in zip(state.maxima, state.sums, values, strict=True):
            maximum = self.across_row(tree(Float.max_ignoring_nan, list(row)).max_ignoring_nan(old), Float.max_ignoring_nan)
            current = self.exponentials(row, maximum)
            correction = self.exponentials([old], maximum)[0]
            maxima.append(maximum)
            weights.append(current)
            corrections.append(correction)
            sums.append(total.fma(correction, tree(Float.__add__, list(current))))
        return RowState(maxima, sums), weights, corrections

    def finished(self, state: RowState) -> RowState:
        """At the end: the largest scores of all, times their factor, and the sums of all threads that share a row."""
        bare = self.scores.formula is None and not self.exact
        maxima = [maximum * self.scores.factor if bare else maximum for maximum in state.maxima]
        return RowState(maxima, [self.across_row(part, Float.__add__) for part in state.sums])

    def reciprocals(self, finished: RowState) -> list[Float]:
        """What each row's weighted sum is multiplied with at the end: NaN or 0 for a row without keys, as the graph says."""
        factors, nothing = [], self.scores.attention.nothing
        for maximum, total in zip(finished.maxima, finished.sums, strict=True):
            factor = self._reciprocal(total)
            if nothing is not None:
                factor = (maximum <= nothing).select(self.kernel.real(0.0), factor)
            factors.append(factor)
        return factors

    def packed(self, weights: Sequence[Sequence[Float]], kind: Any) -> list[Int]:
        """Weights as A fragments of the second product: four registers for each 16 keys."""
        registers = []
        for sixteen in range(len(weights[0]) // 4):
            for half in range(2):
                for row in weights:
                    low, high = row[4 * sixteen + 2 * half : 4 * sixteen + 2 * half + 2]
                    registers.append(pack_pair(self.kernel, low.to(kind).value, high.to(kind).value))
        return registers

    def across_row(self, value: Float, combine: Callable[[Float, Float], Float]) -> Float:
        """``value`` of all threads that share a row, combined."""

        def both(first: list[Any], second: list[Any]) -> list[Any]:
            return [combine(Float(first[0]), Float(second[0])).value]

        return Float(across_lanes(self.kernel, [value.value], both, self.lanes)[0])

    def exponentials(self, values: Sequence[Float], maximum: Float) -> list[Float]:
        """``exp(factor * (value - maximum))``; 0 for -inf, also where the maximum is -inf.

        Bare products take one fused instruction.  The scores of a formula may be as large as a mask of the lowest finite
        number makes them, where the product with log2(e) overflows: they are subtracted first.
        """
        kernel, factor = self.kernel, self.scores.exponent_factor
        shift = maximum.equals(float("-inf")).select(kernel.real(0.0), maximum)
        if self.exact:
            return [Float(dialect("math").ExpOp((value - shift).value).result) for value in values]
        if self.scores.formula is not None:
            return [self._exp2((value - shift) * factor) for value in values]
        negative = shift * -factor
        return [self._exp2(value.fma(factor, negative)) for value in values]

    def _exp2(self, value: Float) -> Float:
        # Results below 2⁻¹²⁶ become 0: next to the row's largest weight, which is 1, they are nothing.
        return Float(self.kernel.assembly("ex2.approx.ftz.f32 $0, $1;", "=f,f", [value], self.kernel.f32))

    def _reciprocal(self, value: Float) -> Float:
        if self.exact:
            return self.kernel.real(1.0) / value
        return Float(self.kernel.assembly("rcp.approx.ftz.f32 $0, $1;", "=f,f", [value], self.kernel.f32))


@dataclass(frozen=True)
class RowNumbers:
    """The numbers of rows that leave besides the output, if the graph has any (``RowFormula``); ``pointer``: where to."""

    kernel: Kernel
    scores: Scores
    pointer: Any

    @staticmethod
    def of(kernel: Kernel, scores: Scores) -> RowNumbers:
        """Adds the parameter; before the kernel's body."""
        formula = scores.attention.row_formula
        return RowNumbers(kernel, scores, kernel.pointer(formula.output.tensor.value) if formula is not None else None)

    def store(self, finished: RowState, batch: Int, rows: Sequence[Int], is_first: Bool) -> None:
        """``is_first``: is this thread the first of those that share its ``rows``?"""
        formula, kernel = self.scores.attention.row_formula, self.kernel
        if formula is None:
            return
        for row, maximum, total in zip(rows, finished.maxima, finished.sums, strict=True):

            def write(row: Int = row, maximum: Float = maximum, total: Float = total) -> None:
                value = self._value(maximum, total)
                place_of = offset_of(kernel, formula.output.layout, {BATCH: batch, ROW: row})
                kind = vectors.storage_type(value.type)
                vectors.store(kernel, [value], kernel.offset(self.pointer, place_of, kind))

            kernel.when(is_first & (row < self.scores.attention.rows), write)

    def _value(self, maximum: Float, total: Float) -> Any:
        """The formula; with a score of infinity the sum is infinite, not NaN, as the graph has it."""
        formula, infinity = self.scores.attention.row_formula, float("inf")
        assert formula is not None
        total = maximum.equals(infinity).select(self.kernel.real(infinity), total)

        def leaf(current: Element | Position) -> Any:
            assert isinstance(current, Element)
            number = maximum if current.tensor is formula.maximum else total
            return number.to(current.tensor.element).value

        return emit(formula.value, leaf)
