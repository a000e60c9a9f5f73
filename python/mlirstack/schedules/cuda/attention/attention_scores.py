"""What attention does to the product Q Kᵀ before the softmax, as a kernel needs it: a factor, a causal edge, or any formula.

Takes the scores of an ``Attention``; leaves :class:`Scores`, which says what
tiles of keys a row needs, and writes the scores of a fragment of the product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect
from mlirstack.passes import functions
from mlirstack.schedules.cuda.attention.attention_description import BATCH, KEY, ROW, Attention
from mlirstack.schedules.cuda.attention.attention_expression import (
    Apply,
    Element,
    Expression,
    Position,
    constant,
    emit,
    factors_of,
    leaves,
    uncast,
)
from mlirstack.schedules.cuda.attention.attention_layout import Dimension, Layout, size_of
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.approximate import LOG2_E
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Float, Int, Number


@dataclass(frozen=True)
class Scores:
    """The scores of an attention.

    ``formula``: None where they are ``factor`` times the product.  ``edge``: keys beyond ``row + edge`` are masked (None:
    none are); it is at least 0, so that every row has a key.
    """

    attention: Attention
    factor: float
    formula: Expression | None
    edge: int | None

    @property
    def exponent_factor(self) -> float:
        """What the difference of two of the numbers that :class:`ScoreWriter` writes is multiplied with, for exp2."""
        return LOG2_E if self.formula is not None else self.factor * LOG2_E

    @property
    def masks(self) -> list[Element]:
        """Tensors that the formula reads besides the product."""
        found = leaves(self.formula) if self.formula is not None else ()
        return [leaf for leaf in found if isinstance(leaf, Element) and leaf.tensor is not self.attention.product]


def scores_of(attention: Attention) -> Scores:
    """The simplest form of the scores.

    Conversions to 16 bits within a pure factor are left out: the scores stay float32, as they are in the matrix unit.
    """
    edge, inner = None, uncast(attention.scores)
    while isinstance(inner, Apply) and inner.name == "arith.select":
        condition, yes, no = inner.arguments
        found, kept = None, None
        if constant(uncast(no)) == float("-inf"):
            found, kept = _edge(condition), yes
        elif constant(uncast(yes)) == float("-inf"):
            found, kept = _edge(condition, negated=True), no
        if found is None or kept is None or found < 0:
            break
        edge, inner = found if edge is None else min(edge, found), uncast(kept)
    factors, factor = factors_of(inner)
    is_product = len(factors) == 1 and isinstance(factors[0], Element) and factors[0].tensor is attention.product
    if is_product and factor * attention.factor > 0:
        return Scores(attention, factor * attention.factor, None, edge)
    return Scores(attention, attention.factor, attention.scores, edge)


# ------------------------------------------------------------------------------------------------------ causal conditions


@dataclass(frozen=True)
class _Linear:
    """``row * row index + key * key index + number``."""

    row: int
    key: int
    number: int

    def plus(self, other: _Linear, sign: int = 1) -> _Linear:
        return _Linear(self.row + sign * other.row, self.key + sign * other.key, self.number + sign * other.number)


_COMPARISONS = {2: "slt", 3: "sle", 4: "sgt", 5: "sge"}  # arith.CmpIPredicate; unsigned ones do not come of torch's code
_CONVERSIONS = ("arith.extsi", "arith.trunci", "arith.extui", "arith.index_cast", "arith.index_castui")


def _edge(condition: Expression, *, negated: bool = False) -> int | None:
    """c if ``condition`` (or its opposite) is ``key <= row + c``; None for other conditions."""
    if not isinstance(condition, Apply):
        return None
    if condition.name == "arith.xori" and constant(condition.arguments[1]) in (1.0, -1.0):
        return _edge(condition.arguments[0], negated=not negated)
    if condition.name != "arith.cmpi":
        return None
    name = _COMPARISONS.get(functions.integer(condition.op.attributes["predicate"]))
    left, right = (_linear(argument) for argument in condition.arguments)
    if name is None or left is None or right is None:
        return None
    if negated:
        name = {"slt": "sge", "sle": "sgt", "sgt": "sle", "sge": "slt"}[name]
    difference = left.plus(right, -1) if name in ("sgt", "sge") else right.plus(left, -1)
    slack = difference.number - (1 if name in ("sgt", "slt") else 0)  # the condition is: row - key + slack >= 0
    return slack if (difference.row, difference.key) == (1, -1) else None


def _linear(expression: Expression) -> _Linear | None:
    value = constant(expression)
    if value is not None:
        return _Linear(0, 0, int(value))
    if isinstance(expression, Position):
        layout = expression.layout
        row, key = layout.stride(ROW), layout.stride(KEY)
        plain = row is not None and key is not None and layout.ignores(BATCH)
        return _Linear(row or 0, key or 0, layout.offset) if plain else None
    if isinstance(expression, Apply) and expression.name in _CONVERSIONS:
        return _linear(expression.arguments[0])
    if isinstance(expression, Apply) and expression.name in ("arith.addi", "arith.subi"):
        left, right = (_linear(argument) for argument in expression.arguments)
        if left is None or right is None:
            return None
        return left.plus(right, 1 if expression.name == "arith.addi" else -1)
    return None


# ----------------------------------------------------------------------------------------------------------------- tiles


@dataclass(frozen=True)
class Tile:
    """Rows of one (batch, head): its number, the first row, tiles of keys, and how many of those have edges to check.

    Tiles of keys are gone through from the last to the first, so that those with edges come first.
    """

    batch: Int
    first_row: Int
    count: Int
    edged: Int


def row_blocks(attention: Attention, rows: int) -> int:
    """Tiles of ``rows`` query rows, over all batches and heads."""
    return -(-attention.rows // rows) * attention.batch


def key_tiles(scores: Scores, rows: int, keys: int, block: int) -> int:
    """Tiles of ``keys`` keys that the tile of ``rows`` query rows number ``block`` goes through."""
    every = -(-scores.attention.keys // keys)
    return every if scores.edge is None else min(every, ((block + 1) * rows + scores.edge + keys - 1) // keys)


def tile_of(kernel: Kernel, scores: Scores, rows: int, keys: int, number: Int, heads: int = 1) -> Tile:
    """Tile ``number``: neighbours share K and V; of causal attention the longest ones of a group of ``heads`` come first.

    ``heads`` divides the number of (batch, head) pairs.
    """
    attention, edge = scores.attention, scores.edge
    blocks, all_keys = -(-attention.rows // rows), -(-attention.keys // keys)
    group, member = number // (blocks * heads), number % (blocks * heads)
    batch, block = group * heads + member % heads, member // heads
    if edge is None:
        return Tile(batch, block * rows, kernel.integer(all_keys), kernel.integer(1))
    first = (kernel.integer(blocks - 1) - block) * rows
    count = ((first + (rows + edge + keys - 1)) // keys).minimum(all_keys)
    whole = ((first + (edge + 1)) // keys).minimum(count - 1)  # tiles that even the first row sees whole
    return Tile(batch, first, count, count - whole)


# --------------------------------------------------------------------------------------------------------------- writing


def place(kernel: Kernel, digits: Dimension, index: Number) -> Number:
    """Elements from the begin of a tensor to index ``index`` of a dimension."""
    total: Number = 0
    for position, (size, stride) in enumerate(digits):
        if stride:
            below = size_of(digits[position + 1 :])
            digit = index // below
            total = (digit % size if position else digit) * stride + total
    return total


def offset_of(kernel: Kernel, layout: Layout, indices: Mapping[int, Int]) -> Int:
    """Elements, in 64 bits, from the begin of a tensor to these indices of some dimensions and 0 of the others."""
    total = kernel.integer(layout.offset, kernel.i64)
    for dimension, index in indices.items():
        total = total + place(kernel, layout.dimensions[dimension], index.wide())
    return total


@dataclass(frozen=True)
class Masks:
    """Pointers of the tensors in a formula, as parameters of a kernel."""

    elements: tuple[Element, ...]
    pointers: tuple[Any, ...]

    @staticmethod
    def of(kernel: Kernel, scores: Scores) -> Masks:
        """Adds the parameters; before the kernel's body."""
        elements = tuple(scores.masks)
        pointers = {element.tensor: kernel.pointer(element.tensor.value) for element in elements}
        return Masks(elements, tuple(pointers[element.tensor] for element in elements))

    def pointer(self, element: Element) -> Any:
        """The address of the tensor of an element."""
        return next(p for e, p in zip(self.elements, self.pointers, strict=True) if e is element)


@dataclass(frozen=True)
class KeyRun:
    """The keys ``first`` plus each of ``offsets``."""

    first: Int
    offsets: Sequence[int]

    def indices(self, start: int, count: int) -> list[Int]:
        """The keys of some neighbouring offsets."""
        return [self.first + offset for offset in self.offsets[start : start + count]]


@dataclass(frozen=True)
class ScoreWriter:
    """Writes scores for one (batch, head); ``batch`` is its number."""

    kernel: Kernel
    scores: Scores
    masks: Masks
    batch: Int

    def write(
        self, products: Sequence[Float], rows: Sequence[Int], keys: KeyRun, *, edges: bool, neighbours: bool = True
    ) -> list[Float]:
        """Scores of a fragment: of each row (outer) and key (inner).

        ``neighbours``: keys come in pairs of neighbours, the first one even.  Without a formula they are the bare
        products, to be multiplied with the factor later.  ``edges``: the fragment may reach beyond the last key or the
        causal edge, and becomes -inf there.
        """
        count, step = len(keys.offsets), 2 if neighbours else 1
        values = list(products)
        if self.scores.formula is not None:
            values = [
                value
                for number, row in enumerate(rows)
                for at in range(0, count, step)
                for value in self._formula(products[number * count + at :][:step], row, keys.indices(at, step))
            ]
        if not edges:
            return values
        nothing = self.kernel.real(float("-inf"))
        seen = [room > offset for room in (self._room(row, keys.first) for row in rows) for offset in keys.offsets]
        return [visible.select(value, nothing) for visible, value in zip(seen, values, strict=True)]

    def _room(self, row: Int, first: Int) -> Int:
        """How many keys from ``first`` on the row sees: one comparison with a constant then tells for each of them."""
        attention, edge = self.scores.attention, self.scores.edge
        end = self.kernel.integer(attention.keys) if edge is None else (row + (edge + 1)).minimum(attention.keys)
        return end.maximum(first) - first

    def _formula(self, products: Sequence[Float], row: Int, keys: Sequence[Int]) -> list[Float]:
        """The formula for one row and one key or two neighbouring ones."""
        formula, attention = self.scores.formula, self.scores.attention
        assert formula is not None
        row = row.minimum(attention.rows - 1)
        loaded = {id(mask): self._load(mask, row, keys) for mask in self.masks.elements}
        results = []
        for number, (product, key) in enumerate(zip(products, keys, strict=True)):

            def leaf(current: Any, number: int = number, product: Float = product, key: Int = key) -> Any:
                if isinstance(current, Position):
                    return self._position(current, row, key)
                if current.tensor is attention.product:
                    return (product * self.scores.factor if self.scores.factor != 1.0 else product).value
                return loaded[id(current)][number]

            results.append(Float(emit(formula, leaf)))
        return results

    def _load(self, mask: Element, row: Int, keys: Sequence[Int]) -> list[Any]:
        """The elements of a mask for one or two keys: one access where two are neighbours in memory."""
        kernel, layout = self.kernel, mask.layout
        start = offset_of(kernel, layout, {BATCH: self.batch, ROW: row})
        pointer = self.masks.pointer(mask)
        digits, last = layout.dimensions[KEY], self.scores.attention.keys - 1
        if len(keys) == 2 and self._pairs(mask):
            first = keys[0].minimum(last - 1)
            return vectors.load(kernel, mask.tensor.element, self._at(pointer, mask, start + first.wide()), 2)
        return [
            vectors.load(kernel, mask.tensor.element, self._at(pointer, mask, start + place(kernel, digits, k.wide())))[0]
            for k in (key.minimum(last) for key in keys)
        ]

    def _pairs(self, mask: Element) -> bool:
        """Are keys 2i and 2i + 1 always a pair in memory that one access may read?"""
        layout, keys = mask.layout, self.scores.attention.keys
        others = [stride for index in (BATCH, ROW) for _, stride in layout.dimensions[index]]
        return layout.stride(KEY) == 1 and keys % 2 == 0 and not any(stride % 2 for stride in (*others, layout.offset))

    def _at(self, pointer: Any, mask: Element, offset: Int) -> Any:
        return self.kernel.offset(pointer, offset, vectors.storage_type(mask.tensor.element))

    def _position(self, position: Position, row: Int, key: Int) -> Any:
        total = offset_of(self.kernel, position.layout, {BATCH: self.batch, ROW: row, KEY: key})
        arith, kind = dialect("arith"), position.kind
        if str(kind) == "index":
            return total.index()
        return total.value if kind == total.type else arith.TruncIOp(kind, total.value).result
