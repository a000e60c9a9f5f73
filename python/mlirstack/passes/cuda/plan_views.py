"""Views of buffers on the host: where a memref begins and how its elements lie, as expressions over the sizes of the inputs.

The arithmetic of ``memref.subview``, ``expand_shape`` and ``collapse_shape``, without any IR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlirstack.passes.cuda.plan import Expr, evaluate

_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1, "ceildiv": 1}  # right operands that change nothing


def fold(operator: str, *operands: Expr) -> Expr:
    """``[operator, *operands]``, computed at once where all are numbers, left out where it changes nothing."""
    if all(isinstance(operand, int) for operand in operands):
        return evaluate([operator, *operands], {}, {})
    if len(operands) == 2:
        left, right = operands
        if right == _NEUTRAL.get(operator):
            return left
        if operator in ("add", "mul") and left == _NEUTRAL[operator]:
            return right
        if operator == "mul" and 0 in (left, right):
            return 0
    return [operator, *operands]


def product(sizes: Sequence[Expr]) -> Expr:
    """The product of ``sizes``."""
    total: Expr = 1
    for size in sizes:
        total = fold("mul", total, size)
    return total


@dataclass(frozen=True)
class View:
    """A memref: ``offset`` bytes behind the beginning of buffer ``buffer``; ``strides`` in elements."""

    buffer: int
    offset: Expr
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    element_bytes: int

    @property
    def is_contiguous(self) -> bool:
        """Do the elements lie in order, without gaps?"""
        expected: Expr = 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected = fold("mul", expected, size)
        return True

    @property
    def bytes(self) -> Expr:
        """Bytes of its elements."""
        return fold("mul", product(self.sizes), self.element_bytes)

    def at(self, indices: Sequence[Expr]) -> Expr:
        """Byte offset of an element from the beginning of the buffer."""
        place = self.offset
        for index, stride in zip(indices, self.strides, strict=True):
            place = fold("add", place, fold("mul", fold("mul", index, stride), self.element_bytes))
        return place


def contiguous(buffer: int, sizes: Sequence[Expr], element_bytes: int, offset: Expr = 0) -> View:
    """A view of elements in order."""
    strides: list[Expr] = []
    step: Expr = 1
    for size in reversed(sizes):
        strides.append(step)
        step = fold("mul", step, size)
    return View(buffer, offset, tuple(sizes), tuple(reversed(strides)), element_bytes)


def subview(view: View, offsets: Sequence[Expr], sizes: Sequence[Expr], steps: Sequence[Expr], kept: Sequence[int]) -> View:
    """A slice of ``view``; ``kept`` are the axes that the result has."""
    strides = [fold("mul", stride, step) for stride, step in zip(view.strides, steps, strict=True)]
    return View(
        view.buffer,
        view.at(offsets),
        tuple(sizes[axis] for axis in kept),
        tuple(strides[axis] for axis in kept),
        view.element_bytes,
    )


def expanded(view: View, groups: Sequence[Sequence[int]], sizes: Sequence[Expr]) -> View:
    """Every axis of ``view`` taken apart: into the axes of its group, of ``sizes``."""
    strides: list[Expr] = [1] * len(sizes)
    for group, stride in zip(groups, view.strides, strict=True):
        step = stride
        for axis in reversed(group):
            strides[axis] = step
            step = fold("mul", step, sizes[axis])
    return View(view.buffer, view.offset, tuple(sizes), tuple(strides), view.element_bytes)


def collapsed(view: View, groups: Sequence[Sequence[int]]) -> View:
    """The axes of each group as one; they lie without gaps."""
    sizes, strides = [], []
    for group in groups:
        moving = [axis for axis in group if view.sizes[axis] != 1]
        sizes.append(product([view.sizes[axis] for axis in group]))
        strides.append(view.strides[moving[-1] if moving else group[-1]])
    return View(view.buffer, view.offset, tuple(sizes), tuple(strides), view.element_bytes)
