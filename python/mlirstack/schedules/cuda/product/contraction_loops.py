"""The loops of a contraction by role: what is a row, a column, a batch, K; and what its body multiplies.

Takes one node of a kernel graph; leaves its roles, or None where it is no matrix product.  Serves
:mod:`mlirstack.schedules.cuda.product.contraction`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.extent import Extent, Size, times
from mlirstack.schedules.cuda.graph import Node, Operand, Tensor
from mlirstack.schedules.cuda.product.access import Access, Digit, Digits


@dataclass(frozen=True)
class Body:
    """A multiply-add body: numbers of the two inputs, how they are extended, and a constant factor."""

    inputs: tuple[int, int]
    signed: tuple[bool, bool]
    scale: float


def multiply_add(node: Node) -> Body | None:
    """``out + cast(x) * cast(y)``, where one factor may also be multiplied with a constant; None for other bodies."""
    if len(node.outputs) != 1 or len(node.inputs) != 2:
        return None
    *inputs, out = list(node.body.arguments)
    add = functions.defining_op(functions.yield_op(node.body).operands[0])
    if add is None or add.name not in ("arith.addf", "arith.addi"):
        return None
    products = [value for value in add.operands if value != out]
    if len(products) != 1:
        return None
    factors, scale = _factors(products[0])
    if len(factors) != 2 or scale is None:
        return None
    origins = [_uncast(factor) for factor in factors]
    numbers = [inputs.index(value) if value in inputs else None for value, _ in origins]
    if sorted(n for n in numbers if n is not None) != [0, 1]:
        return None
    order = (0, 1) if numbers[0] == 0 else (1, 0)
    return Body((0, 1), (origins[order[0]][1], origins[order[1]][1]), scale)


def _factors(value: Any) -> tuple[list[Any], float | None]:
    """The factors of a product, and the product of those that are constants (None where one is not finite)."""
    op = functions.defining_op(value)
    if op is None or op.name not in ("arith.mulf", "arith.muli"):
        return [value], 1.0
    factors, scale = [], 1.0
    for operand in op.operands:
        producer = functions.defining_op(operand)
        if producer is not None and producer.name == "arith.constant":
            if op.name != "arith.mulf":
                return [], None
            scale *= ir.FloatAttr(producer.attributes["value"]).value
            continue
        inner, factor = _factors(operand)
        factors += inner
        scale *= factor if factor is not None else float("nan")
    return factors, scale if abs(scale) < float("inf") else None


def _uncast(value: Any) -> tuple[Any, bool]:
    """What was extended to ``value``, and whether as a signed number."""
    signed = True
    while (op := functions.defining_op(value)) is not None and op.name in ("arith.extf", "arith.extsi", "arith.extui"):
        signed = signed and op.name != "arith.extui"
        value = op.operands[0]
    return value, signed


@dataclass(frozen=True)
class Roles:
    """Loops of the contraction by role, each group outermost first; loops of size 1 are in none of them.

    ``first`` is the number of the input that is A; ``extent`` says what the size is that :attr:`Node.varying` walks along.
    """

    node: Node
    first: int
    batches: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    k: tuple[int, ...]
    extent: Extent | None = None

    @staticmethod
    def of(node: Node, body: Body, extent: Extent | None = None) -> Roles | None:
        """The roles; None where the loops are not those of a matrix product."""
        strides = [loop_strides(operand, len(node.sizes)) for operand in (*node.inputs, *node.outputs)]
        if None in strides:
            return None
        x, y, out = (s for s in strides if s is not None)
        loops = [loop for loop, size in enumerate(node.sizes) if size != 1]
        if any(not (x[d] or y[d]) for d in loops) or any(bool(out[d]) == (d in node.reductions) for d in loops):
            return None
        innermost = [d for d in loops if out[d] == 1]
        if innermost and x[innermost[0]] and y[innermost[0]]:
            return None  # the batch is the contiguous dimension: no matrix product can be written row by row
        first = 1 if innermost and x[innermost[0]] else 0
        a, b = (x, y) if first == 0 else (y, x)
        sizes = known(node.sizes)
        rows = sorted((d for d in loops if a[d] and not b[d] and out[d]), key=lambda d: -out[d])
        columns = sorted((d for d in loops if b[d] and not a[d] and out[d]), key=lambda d: -out[d])
        shared = sorted((d for d in loops if a[d] and b[d] and out[d]), key=lambda d: -out[d])
        k = sorted((d for d in loops if d in node.reductions), key=lambda d: (-a[d], -b[d]))
        outer_rows, rows = _collapse(rows, sizes, (a, out))
        outer_columns, columns = _collapse(columns, sizes, (b, out))
        if any(not (a[d] and b[d]) for d in k) or _collapse(k, sizes, (a, b))[0]:
            return None
        batches = _merge(sorted((*shared, *outer_rows, *outer_columns), key=lambda d: -out[d]), sizes, (a, b, out))
        outermost = (*rows[:1], *(group[0] for group in batches[:1]))
        if node.varying is not None and node.varying not in outermost:
            return None
        return Roles(node, first, batches, tuple(rows), tuple(columns), tuple(k), extent)

    def size(self, group: Sequence[int]) -> int:
        """Product of the sizes of some loops, at most."""
        total = 1
        for loop in group:
            total *= known(self.node.sizes)[loop]
        return total

    def points(self, group: Sequence[int]) -> Size:
        """The same, as it is at run time."""
        if self.extent is None or self.node.varying not in group:
            return self.size(group)
        return times(self.extent, self.size([loop for loop in group if loop != self.node.varying]))

    def digits(self, group: Sequence[int], strides: Mapping[int, int]) -> Digits:
        """The digits of a group of loops in a tensor with these strides per loop, neighbours merged where they collapse."""
        sizes, digits, divisor = known(self.node.sizes), list[Digit](), 1
        for loop in reversed(group):
            size, stride = sizes[loop], strides.get(loop, 0)
            if digits and stride == digits[0].size * digits[0].stride and digits[0].divisor * digits[0].size == divisor:
                digits[0] = Digit(digits[0].divisor, digits[0].size * size, digits[0].stride)
            elif stride:
                digits.insert(0, Digit(divisor, size, stride))
            divisor *= size
        return tuple(digits)

    def position(self, loop: int) -> Access:
        """The index of one loop, as an access to the product whose "offset" is that index."""
        tensor = self.node.outputs[0].tensor
        assert tensor is not None
        return self.access(tensor, {loop: 1})

    def access(self, tensor: Tensor, strides: Mapping[int, int]) -> Access:
        """A tensor with these strides per loop."""
        batches = tuple(self.digits(group, strides) for group in self.batches)
        return Access(tensor, batches, self.digits(self.rows, strides), self.digits(self.columns, strides))


def _collapse(loops: list[int], sizes: Sequence[int], tensors: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Loops (outermost first) split into outer ones and the inner ones that are a single loop in all ``tensors``."""
    start = max(0, len(loops) - 1)
    while start > 0 and _adjacent(loops[start - 1], loops[start], sizes, tensors):
        start -= 1
    return loops[:start], loops[start:]


def _merge(loops: list[int], sizes: Sequence[int], tensors: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Loops (outermost first) as runs, each of which is a single loop in all ``tensors``."""
    runs: list[tuple[int, ...]] = []
    for loop in loops:
        if runs and _adjacent(runs[-1][-1], loop, sizes, tensors):
            runs[-1] = (*runs[-1], loop)
        else:
            runs.append((loop,))
    return tuple(runs)


def _adjacent(outer: int, inner: int, sizes: Sequence[int], tensors: Sequence[Sequence[int]]) -> bool:
    return all(strides[outer] == sizes[inner] * strides[inner] for strides in tensors)


def loop_strides(operand: Operand, loops: int) -> list[int] | None:
    """Elements from one iteration of each loop to the next; None where an index is not a plain loop."""
    tensor = operand.tensor
    if tensor is None:
        return None
    strides = [0] * loops
    step = 1
    for size, dim in zip(reversed(known(tensor.shape)), reversed(operand.dims), strict=True):
        if dim is not None:
            strides[dim] += step
        elif size != 1:
            return None
        step *= size
    return strides


def known(sizes: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size is not None)
