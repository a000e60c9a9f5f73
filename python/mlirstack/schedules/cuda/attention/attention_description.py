"""What is known of an attention that was found in a graph: operands, results, sizes, and the scores as an expression.

Filled by :mod:`~mlirstack.schedules.cuda.attention.attention_match`; all kernels are written from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlirstack.schedules.cuda.attention.attention_expression import Element, Expression
from mlirstack.schedules.cuda.graph import Node, Tensor

BATCH, ROW, KEY, COLUMN = range(4)  # dimensions of every layout of an Attention


@dataclass(frozen=True)
class RowFormula:
    """A number of each row that leaves besides the output, such as the log-sum-exp of its scores.

    ``value`` is a formula of elements of ``maximum``, the largest score of a row, and of other tensors, which all stand for
    its sum of exponentials of the scores less the largest one.  ``output`` has no key and no column.
    """

    output: Element
    value: Expression
    maximum: Tensor


@dataclass(frozen=True)
class Attention:
    """One attention.  All layouts are over (batch and heads, query row, key, column of the head).

    ``scores`` is the argument of the softmax; in it ``product`` is the sum over columns of Q times K, not yet times
    ``factor``.  Rows whose largest score is at most ``nothing`` give zeros; None: they give what the formula gives, NaN.
    ``nodes`` are in program order; ``output`` and that of ``row_formula`` are all that leaves them.
    """

    query: Element
    key: Element
    value: Element
    output: Element
    batch: int
    rows: int
    keys: int
    width: int  # columns of Q and K
    value_width: int
    factor: float
    product: Tensor
    scores: Expression
    nothing: float | None
    row_formula: RowFormula | None
    nodes: tuple[Node, ...]

    @property
    def results(self) -> tuple[Element, ...]:
        """Everything that leaves."""
        return (self.output,) if self.row_formula is None else (self.output, self.row_formula.output)

    @property
    def flops(self) -> int:
        """Multiplications and additions of both products."""
        return 2 * self.batch * self.rows * self.keys * (self.width + self.value_width)
